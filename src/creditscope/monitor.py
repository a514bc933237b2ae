"""Diagnostics during training: the facts and the checks that fire, at one moment of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from creditscope.credit.base import CreditRule
from creditscope.measure.sweep import collect, cross_entropy, dtype_of, facts_from
from creditscope.protocol import DiagnosticThresholds, run_checks
from creditscope.stream import Stream, untouched


def snapshot(
    model: nn.Module,
    batches: Sequence[tuple[Any, Tensor]],
    credit: CreditRule | None,
    *,
    stream: Stream,
    thresholds: DiagnosticThresholds | None = None,
) -> dict[str, Any]:
    """One line of a trajectory: norms, cosines, growth, stability and the checks that fire (D3 needs a null: never here)."""
    thresholds = thresholds or DiagnosticThresholds()
    with untouched(model):
        got = collect(stream, batches, credit, cross_entropy)
    facts = facts_from(got, stream, credit, thresholds.floor_for(dtype_of(model)))
    checks = run_checks(facts, thresholds)
    return {
        "h": list(facts.scale.mean),
        "g_per_sample": list(facts.reference.per_sample),
        "cosine": list(facts.alignment.mean) if facts.alignment else None,
        "gamma": facts.aggregate.headline if facts.aggregate else None,
        "growth": facts.scale.growth,
        "stability": facts.stability.deepest,
        "fired": [check.id for check in checks if check.answer == "fail"],
        "diverged": bool(facts.non_finite),
    }
