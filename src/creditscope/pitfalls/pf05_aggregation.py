"""PF05: how cosines are aggregated over samples and layers changes Γ several-fold, even its sign."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from creditscope.pitfalls.base import NO_COSINE, Answer, Facts, Numbers, Spot, Tensor, clear, found, from_facts, times
from creditscope.pitfalls.source import COSINES, Source, number

if TYPE_CHECKING:
    from creditscope.measure.facts import Aggregate

SEVERAL = 2.0
"""Aggregates that differ by more than this factor (and by .01) count as different."""
MATTERS = 0.01


EXAMPLE = {"cosines": (0.3, -0.2, -0.2), "sizes": (10.0, 1.0, 1.0)}
"""Three layers: aligned where g is large, slightly opposed where it is small."""


def reproduce() -> Numbers:
    from creditscope.pitfalls import tiny

    a, g = tiny.layers(5, **EXAMPLE)
    layers = [float(tiny.cosine(x, y).mean()) for x, y in zip(a, g, strict=True)]
    sizes = [float(y.norm(dim=1).mean()) for y in g]
    wrong = sum(c * w for c, w in zip(layers, sizes, strict=True)) / sum(sizes)
    right = sum(layers) / len(layers)
    return {"wrong": wrong, "right": right, "layers": layers}


def tensors(a: Sequence[Tensor], g: Sequence[Tensor]) -> str | None:
    """a, g: one [B, d_l] tensor per layer."""
    import numpy as np

    from creditscope.measure.alignment import aggregate, clamped_cosine, inner_products

    pairs = [(x.detach().flatten(1), y.detach().flatten(1)) for x, y in zip(a, g, strict=True)]
    dot, a_squared = (np.stack(part) for part in zip(*(inner_products(x, y) for x, y in pairs), strict=True))
    g_squared = np.stack([inner_products(y, y)[1] for _, y in pairs])
    clamped = np.stack([clamped_cosine(x, y) for x, y in pairs])
    return disagreement(aggregate(dot, a_squared, g_squared, clamped))


def code(source: Source) -> Iterator[Spot]:
    """One cosine of two whole batches: `F.cosine_similarity(a.flatten(), g.flatten(), dim=0)`."""
    for call in source.calls:
        if source.is_call(call, COSINES) and len(call.args) >= 2 and all(map(_flat, call.args[:2])):
            yield source.spot(call, "one cosine of the whole batch: samples with a large gradient decide it")


def _flat(node: ast.expr) -> bool:
    """x.flatten(), x.ravel(), x.view(-1), x.reshape(-1); the gradient of a weight has no samples."""
    if any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in ast.walk(node)):
        return False
    match node:
        case ast.Call(func=ast.Attribute(attr="flatten" | "ravel"), args=[], keywords=[]):
            return True
        case ast.Call(func=ast.Attribute(attr="view" | "reshape"), args=[size], keywords=[]):
            return number(size) == -1
    return False


def extremes(fact: Aggregate) -> tuple[tuple[str, float], tuple[str, float]]:
    """The smallest and the largest of the unclamped aggregates that were measured, with their names."""
    from creditscope.measure.facts import CLAMPED

    known = sorted((value, name) for name, value in fact.measured.items() if name != CLAMPED)
    (small, low), (large, high) = known[0], known[-1]
    return (low, small), (high, large)


def disagreement(fact: Aggregate) -> str | None:
    """One sentence where the unclamped aggregates disagree (the clamp itself is PF02)."""
    from creditscope.measure.concentration import near_zero

    (low, small), (high, large) = extremes(fact)
    if near_zero((small, large)):
        return None
    shown = f"{low} {small:+.3f}, {high} {large:+.3f}"
    if small < -MATTERS and large > MATTERS:
        return f"the sign of Γ depends on the aggregation: {shown}"
    if large - small > MATTERS and times(small, large) > SEVERAL:
        return f"Γ depends on the aggregation {times(small, large):.1f}-fold: {shown}"
    return None


@from_facts
def audit(facts: Facts) -> Answer:
    from creditscope.measure.concentration import NEAR_ZERO, near_zero

    if facts.aggregate is None or facts.aggregate.headline is None:
        return NO_COSINE
    if sentence := disagreement(facts.aggregate):
        return found(sentence)
    (low, small), (high, large) = extremes(facts.aggregate)
    if near_zero((small, large)):
        return clear(f"all aggregations lie within ±{NEAR_ZERO:g} of 0: {low} {small:+.3f}, {high} {large:+.3f}")
    return clear(f"the aggregations agree within a factor of {SEVERAL:g}: {low} {small:+.3f}, {high} {large:+.3f}")
