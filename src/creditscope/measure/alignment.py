"""Alignment: the per-sample, per-layer cosine between credit and reference, and every aggregate of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from creditscope.measure.concentration import mean_of
from creditscope.measure.facts import GROUP, Aggregate, Alignment
from creditscope.measure.reference import COSINE_EPS

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]
SIGN_MATTERS = 0.01
"""Two aggregates with opposite signs are called a sign flip only if both exceed this."""


def inner_products(a: Tensor, g: Tensor) -> tuple[Array, Array]:
    """a, g: [B, d] -> per-sample <a, g> and <a, a> in float64, [B] each."""
    a, g = a.double(), g.double()
    return (a * g).sum(1).cpu().numpy(), (a * a).sum(1).cpu().numpy()


def clamped_cosine(a: Tensor, g: Tensor) -> Array:
    """What the usual call prints for the mean-reduced gradient at batch 128, in the network's own dtype; [B]."""
    from torch.nn.functional import cosine_similarity  # a record is judged without torch

    # the library call itself, because its clamp is what is being shown
    return cosine_similarity(a.to(g.dtype), g / GROUP, dim=1, eps=COSINE_EPS).double().cpu().numpy()


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
