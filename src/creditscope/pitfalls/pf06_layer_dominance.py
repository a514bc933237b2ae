"""PF06: one aligned layer (usually layer 0) hides behind the average over layers."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.pitfalls.base import NO_COSINE, Answer, Facts, Numbers, Tensor, clear, found, from_facts, unknown

COSINES = (0.45, 0.01, 0.01, 0.0, 0.01)
"""Close to the published DFA: aligned at the embedding, nothing behind it."""


def example() -> tuple[list[Tensor], list[Tensor]]:
    """a, g: five layers of [64, 32]."""
    from creditscope.pitfalls.tiny import generator, randn, with_cosine

    rng = generator(6)
    g = [randn(64, 32, rng=rng) for _ in COSINES]
    return [with_cosine(x, cos, rng) for x, cos in zip(g, COSINES, strict=True)], g


def reproduce() -> Numbers:
    from creditscope.pitfalls.tiny import cosine

    a, g = example()
    layers = [float(cosine(x, y).mean()) for x, y in zip(a, g, strict=True)]
    wrong, right = sum(layers) / len(layers), sum(layers[1:]) / len(layers[1:])
    share = abs(layers[0]) / sum(map(abs, layers))
    return {"wrong": wrong, "right": right, "share": share}


def tensors(cosines: Sequence[float | None]) -> str | None:
    """The mean cosine of every layer, layer 0 first."""
    from creditscope import DiagnosticThresholds
    from creditscope.measure.alignment import concentration

    fact = concentration(tuple(cosines), ())
    if len(cosines) > 1 and fact.top_share is not None and fact.top_share > DiagnosticThresholds().concentration_share:
        return (
            f"layer {fact.top_layer} carries {fact.top_share:.0%} of Σ|cos_l|; the deep mean is "
            f"{fact.deep_mean or 0:+.3f}"
        )
    return None


@from_facts
def audit(facts: Facts) -> Answer:
    if facts.alignment is None or not any(c is not None for c in facts.alignment.mean):
        return unknown(NO_COSINE)
    from creditscope.measure.alignment import NEAR_ZERO, carried_by_none

    sentence, top = tensors(facts.alignment.mean), max(abs(c) for c in facts.alignment.mean if c is not None)
    if sentence and facts.aggregate is not None and carried_by_none(facts.aggregate, top):
        return clear(
            f"all aggregations of Γ lie within ±{NEAR_ZERO:g} of 0: there is no alignment that a layer could carry"
        )
    if sentence:
        return found(sentence)
    share = facts.concentration.top_share if facts.concentration else None
    return clear(f"no layer carries more than {share or 0:.0%} of Σ|cos_l|")
