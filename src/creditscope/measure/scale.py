"""Scale: how large the hidden states are and how fast they grow with depth."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from creditscope.measure.facts import GROUP, Scale

Array = NDArray[np.float64]


def growth_of(means: Array) -> tuple[float, int | None]:
    """(max over l of means[l+1] / means[l], the l of the maximum). 0 -> positive is infinite growth; 0 -> 0 is skipped."""
    ratios = [
        (float(after / before) if before > 0 or np.isnan(before) else float("inf"), layer)
        for layer, (before, after) in enumerate(pairwise(means))
        if not (before == 0 and after == 0)
    ]
    if not ratios:
        return float("nan"), None
    if any(np.isnan(r) for r, _ in ratios):
        return float("nan"), None
    return max(ratios)


def groups_of(n: int, size: int = GROUP) -> list[slice]:
    """Consecutive full groups of `size` samples; a remainder belongs to none."""
    return [slice(k, k + size) for k in range(0, n - size + 1, size)]


def scale(norms: Array, all_tokens: Array | None = None) -> Scale:
    """norms: [L+1, N], the per-sample L2 norm of h_l; all_tokens: that of all its tokens, where h_l is one vector of them."""
    with np.errstate(over="ignore", invalid="ignore"):
        means = norms.mean(axis=1)
        growth, at = growth_of(means)
        by_group = tuple(growth_of(norms[:, part].mean(axis=1))[0] for part in groups_of(norms.shape[1]))
        total = float(means[-1] / means[0]) if means[0] != 0 else float("inf") if means[-1] > 0 else float("nan")
        return Scale(
            mean=tuple(map(float, means)),
            median=tuple(map(float, np.median(norms, axis=1))),
            growth=growth,
            growth_at=at,
            total_growth=total,
            growth_by_group=by_group,
            growth_all_tokens=None if all_tokens is None else growth_of(all_tokens.mean(axis=1))[0],
        )
