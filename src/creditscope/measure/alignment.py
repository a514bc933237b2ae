"""Alignment: the per-sample, per-layer cosine between credit and reference, and every aggregate of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from creditscope.measure.facts import GROUP, Aggregate, Alignment, Concentration, Facts
from creditscope.measure.reference import COSINE_EPS

Array = NDArray[np.float64]
SIGN_MATTERS = 0.01
"""Two aggregates with opposite signs are called a sign flip only if both exceed this."""
NEAR_ZERO = 0.05
"""Below this every aggregate tells a reader the same, that credit and gradient are nearly orthogonal (87 to 93 degrees), and
neither the ratio nor the sign of two such numbers means anything."""
LEAST_LAYERS = 3
"""Layers that must count before one of them can be said to carry the alignment: of two, one always has half or more."""


def inner_products(a: Tensor, g: Tensor) -> tuple[Array, Array]:
    """a, g: [B, d] -> per-sample <a, g> and <a, a> in float64, [B] each."""
    a, g = a.double(), g.double()
    return (a * g).sum(1).cpu().numpy(), (a * a).sum(1).cpu().numpy()


def clamped_cosine(a: Tensor, g: Tensor) -> Array:
    """What the usual call prints for the mean-reduced gradient at batch 128, in the network's own dtype; [B]."""
    # the library call itself, because its clamp is what is being shown
    return F.cosine_similarity(a.to(g.dtype), g / GROUP, dim=1, eps=COSINE_EPS).double().cpu().numpy()


def cosine(dot: Array, a_squared: Array, g_squared: Array) -> Array:
    """Cosine where both vectors are non-zero and finite, NaN (not measurable) elsewhere."""
    size = np.sqrt(a_squared) * np.sqrt(g_squared)
    ok = (size > 0) & np.isfinite(size) & np.isfinite(dot)
    return np.divide(dot, size, out=np.full(dot.shape, np.nan), where=ok)


def mean_or_none(values: Array) -> float | None:
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else None


def alignment(
    dot: Array,
    a_squared: Array,
    g_squared: Array,
    floor: float,
    counting: tuple[int, ...] | None = None,
    note: str = "",
) -> Alignment:
    """dot, a_squared, g_squared: [L+1, N]. `floor` (for ‖g_l‖ / 128) only counts samples under it; nothing is dropped for it.

    `counting`: the layers whose credit trains something (None: all), and `note`: why.
    """
    cos = cosine(dot, a_squared, g_squared)
    counts = np.isfinite(cos).sum(axis=1)
    return Alignment(
        mean=tuple(mean_or_none(row) for row in cos),
        std=tuple(float(np.nanstd(row, ddof=1)) if n > 1 else None for row, n in zip(cos, counts, strict=True)),
        measurable=tuple(map(int, counts)),
        under_floor=tuple(float((np.sqrt(row) / GROUP < floor).mean()) for row in g_squared),
        floor=floor,
        credit_norm=tuple(float(np.sqrt(row).mean()) for row in a_squared),
        counting=tuple(range(len(cos))) if counting is None else counting,
        counting_note=note,
    )


def aggregate(
    dot: Array, a_squared: Array, g_squared: Array, clamped: Array, counting: tuple[int, ...] | None = None
) -> Aggregate:
    """Γ under five aggregations over the layers that count (None: all); clamped: [L+1, N] from `clamped_cosine`."""
    all_layers = mean_of([mean_or_none(row) for row in cosine(dot, a_squared, g_squared)])
    if counting is not None:
        dot, a_squared, g_squared, clamped = (array[list(counting)] for array in (dot, a_squared, g_squared, clamped))
    layers = [mean_or_none(row) for row in cosine(dot, a_squared, g_squared)]
    return aggregate_of(
        {
            "headline": mean_of(layers),
            "concat": mean_or_none(cosine(dot.sum(0), a_squared.sum(0), g_squared.sum(0))),
            "norm_weighted": norm_weighted(layers, [float(np.sqrt(row).mean()) for row in g_squared]),
            "flattened": mean_or_none(cosine(dot.sum(1), a_squared.sum(1), g_squared.sum(1))),
            "clamped_128": mean_of([mean_or_none(row) for row in clamped]),
        },
        all_layers,
    )


def mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of those that are known."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def norm_weighted(layer_means: Sequence[float | None], norms: Sequence[float]) -> float | None:
    """Layer means weighted by the layer's mean ‖g_l‖."""
    measured = [(c, w) for c, w in zip(layer_means, norms, strict=True) if c is not None]
    weight = sum(w for _, w in measured)
    return sum(c * w for c, w in measured) / weight if weight > 0 and np.isfinite(weight) else None


def aggregate_of(values: dict[str, float | None], all_layers: float | None) -> Aggregate:
    """The five aggregations with what follows from them."""
    known = [v for v in values.values() if v is not None]
    return Aggregate(
        **values,
        spread=max(known) - min(known) if known else None,
        sign_flips=bool(known) and max(known) > SIGN_MATTERS and min(known) < -SIGN_MATTERS,
        gamma_all_layers=all_layers,
    )


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


def finite(t: Tensor) -> bool:
    return bool(torch.isfinite(t).all())
