"""Reference: how large the backpropagation gradient is, in both conventions that papers use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from creditscope.measure.facts import Reference, batch_mean
from creditscope.measure.scale import groups_of

COSINE_EPS = 1e-8
"""Denominator floor of torch.nn.functional.cosine_similarity."""
SURE = 20 * float(np.finfo(np.float32).eps) / 2
"""A cross-entropy in float32 below which p_y - 1, a number of steps of eps / 2, is rounded by 5 % or more: so is the gradient."""


def reference(norms: NDArray[np.float64], rounded: int = 0, slopes: Sequence[NDArray[np.float64]] = ()) -> Reference:
    """norms: [L+1, N], the per-sample L2 norm of g_l from the summed loss; the others: see `rounded_samples`, `loss_scale`."""
    means = norms.mean(axis=1)
    return Reference(
        per_sample=tuple(map(float, means)),
        batch_mean_128=tuple(map(batch_mean, means)),
        clamp_batch_size=tuple(map(float, means / (10 * COSINE_EPS))),
        deepest_by_group=tuple(float(norms[-1, part].mean()) for part in groups_of(norms.shape[1])),
        zero_samples=tuple(int((row == 0).sum()) for row in norms),
        rounded_samples=rounded,
        loss_scale=float(np.concatenate(slopes).mean()) if slopes else None,
    )
