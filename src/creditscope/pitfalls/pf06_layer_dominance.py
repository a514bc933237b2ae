"""PF06: one aligned layer (usually layer 0) hides behind the average over layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from creditscope.pitfalls.base import NO_COSINE, Answer, Facts, Numbers, clear, found, from_facts, unknown

if TYPE_CHECKING:
    from creditscope.measure.facts import Concentration

COSINES = (0.45, 0.01, 0.01, 0.0, 0.01)
"""Close to the published DFA: aligned at the embedding, nothing behind it."""


def reproduce() -> Numbers:
    from creditscope.pitfalls import tiny

    a, g = tiny.layers(6, COSINES, [1.0] * len(COSINES))
    layers = [float(tiny.cosine(x, y).mean()) for x, y in zip(a, g, strict=True)]
    wrong, right = sum(layers) / len(layers), sum(layers[1:]) / len(layers[1:])
    share = abs(layers[0]) / sum(map(abs, layers))
    return {"wrong": wrong, "right": right, "share": share}


def tensors(cosines: Sequence[float | None]) -> str | None:
    """The mean cosine of every layer, layer 0 first."""
    from creditscope import DiagnosticThresholds
    from creditscope.measure.concentration import concentration

    fact = concentration(tuple(cosines), ())
    share = fact.top_share
    return _sentence(fact) if share is not None and share > DiagnosticThresholds().concentration_share else None


def _sentence(fact: Concentration) -> str:
    return (
        f"layer {fact.top_layer} carries {fact.top_share:.0%} of Σ|cos_l|; the deep mean is {fact.deep_mean or 0:+.3f}"
    )


@from_facts
def audit(facts: Facts) -> Answer:
    if facts.alignment is None or not any(c is not None for c in facts.alignment.mean):
        return NO_COSINE
    from creditscope import DiagnosticThresholds
    from creditscope.measure.concentration import LEAST_LAYERS, NEAR_ZERO, concentrated

    fact, limit = facts.concentration, DiagnosticThresholds().concentration_share
    if fact is not None and concentrated(facts, limit):
        return found(_sentence(fact))
    if concentrated(facts, limit, earned=False):
        return clear(
            f"all aggregations of Γ lie within ±{NEAR_ZERO:g} of 0: there is no alignment that a layer could carry"
        )
    if fact is None or fact.top_share is None:
        return unknown(f"no share is computed: it needs {LEAST_LAYERS} layers that count and have a cosine")
    return clear(f"no layer carries more than {abs(fact.top_share):.0%} of Σ|cos_l|")
