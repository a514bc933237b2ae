"""One moment of a run: the facts that one network can give by itself, and the checks that fire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from creditscope.credit.base import CreditRule
from creditscope.measure.facts import Facts
from creditscope.measure.loss import cross_entropy
from creditscope.measure.sweep import collect, dtype_of, facts_from
from creditscope.protocol.checks import run_checks
from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.stream.interface import Stream
from creditscope.stream.untouched import untouched


def snapshot(
    model: nn.Module,
    batches: Sequence[tuple[Any, Tensor]],
    credit: CreditRule | None,
    *,
    stream: Stream,
    thresholds: DiagnosticThresholds | None = None,
) -> dict[str, Any]:
    """One line of a trajectory: norms, cosines, growth, stability and the checks that fire (D3 needs a null: never here).

    stream: of one of our own networks, which needs no proof.
    """
    thresholds = thresholds or DiagnosticThresholds()
    with untouched(model):
        got = collect(stream, batches, credit, cross_entropy, hashed=False)
    return trajectory_line(facts_from(got, stream, credit, thresholds.floor_for(dtype_of(model))), thresholds)


def trajectory_line(facts: Facts, thresholds: DiagnosticThresholds) -> dict[str, Any]:
    return {
        "h": list(facts.scale.mean),
        "g_per_sample": list(facts.reference.per_sample),
        "cosine": list(facts.alignment.mean) if facts.alignment else None,
        "gamma": facts.aggregate.headline if facts.aggregate else None,
        "growth": facts.scale.growth,
        "stability": facts.stability.deepest,
        "fired": [check.id for check in run_checks(facts, thresholds) if check.answer == "fail"],
        "diverged": bool(facts.non_finite),
    }
