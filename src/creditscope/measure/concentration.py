"""Concentration: how the alignment is spread over the layers, and whether one of them carries it. Numbers only, no torch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from creditscope.measure.facts import Aggregate, Concentration, Facts

NEAR_ZERO = 0.05
"""Below this every aggregate tells a reader the same, that credit and gradient are nearly orthogonal (87 to 93 degrees), and
neither the ratio nor the sign of two such numbers means anything."""
LEAST_LAYERS = 3
"""Layers that must count before one of them can be said to carry the alignment: of two, one always has half or more."""


def mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of those that are known."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def near_zero(values: Iterable[float]) -> bool:
    """Whether all of these aggregates say no more than "nearly orthogonal"."""
    return all(abs(value) < NEAR_ZERO for value in values)


def concentration(
    layer_means: tuple[float | None, ...], exact_layers: tuple[int, ...], counting: tuple[int, ...] | None = None
) -> Concentration:
    """How the layer means are spread over the layers that count (None: all).

    `exact_layers`: layers whose credit is the reference by construction.
    """
    counts = set(range(len(layer_means)) if counting is None else counting)
    enough = len(counts) >= LEAST_LAYERS
    total = sum(abs(c) for layer, c in enumerate(layer_means) if c is not None and layer in counts)
    share = tuple(
        c / total if c is not None and total > 0 and layer in counts and enough else None
        for layer, c in enumerate(layer_means)
    )
    top = max(((abs(s), layer) for layer, s in enumerate(share) if s is not None), default=None)
    deep = list(range(1, len(layer_means)))
    return Concentration(
        share=share,
        top_layer=top[1] if top else None,
        top_share=top[0] if top else None,
        deep_mean=mean_of(layer_means[layer] for layer in deep if layer in counts),
        deep_mean_without_exact=mean_of(
            layer_means[layer] for layer in deep if layer in counts and layer not in exact_layers
        ),
        exact_layers=tuple(sorted(exact_layers)),
        deep_mean_all_layers=mean_of(layer_means[layer] for layer in deep),
    )


def concentrated(facts: Facts, limit: float, earned: bool = True) -> bool:
    """Mode 2: one of the layers that count has more than this share of Σ|cos_l|.

    `earned` (three-check/1.1): and there is an alignment that it could carry.
    """
    fact = facts.concentration
    if fact is None or fact.top_layer is None or fact.top_share is None:
        return False
    cosine = None if facts.alignment is None else facts.alignment.mean[fact.top_layer]
    if earned and facts.aggregate is not None and cosine is not None and carried_by_none(facts.aggregate, cosine):
        return False
    return abs(fact.top_share) > limit


def carried_by_none(gamma: Aggregate, cosine: float) -> bool:
    """Whether there is no alignment that the layer with the largest |cos_l|, `cosine`, could carry.

    Every aggregate of Γ is near zero, and so would be the mean over three layers, the fewest that are asked, of which only this
    one is aligned: the one aligned layer of a deep network is not overlooked.
    """
    return near_zero([*gamma.measured.values(), cosine / LEAST_LAYERS])
