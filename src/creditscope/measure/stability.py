"""Stability: does the direction of the batch-mean gradient change from batch to batch?"""

from __future__ import annotations

import torch
from torch import Tensor

from creditscope.measure.facts import GROUP, Stability

ADVISED_GROUPS = 8


class GroupMeans:
    """Means of g_l over consecutive groups of 128 samples, however the samples arrive in batches."""

    def __init__(self, size: int = GROUP) -> None:
        self.size = size
        self.means: list[Tensor] = []
        self._sum: Tensor | None = None
        self._count = 0

    def add(self, g: Tensor) -> None:
        """g: [B, d]; summed in float64."""
        start = 0
        while start < len(g):
            part = g[start : start + self.size - self._count].sum(0, dtype=torch.float64)
            taken = min(self.size - self._count, len(g) - start)
            self._sum = part if self._sum is None else self._sum + part
            self._count += taken
            start += taken
            if self._count == self.size:
                self.means.append(self._sum / self.size)
                self._sum, self._count = None, 0


def mean_pairwise_cosine(vectors: list[Tensor]) -> float | None:
    """Mean over pairs of the cosine between vectors [d]; None if fewer than two are non-zero and finite."""
    units = [v / v.norm() for v in vectors if bool(torch.isfinite(v).all()) and v.norm() > 0]
    n = len(units)
    if n < 2:
        return None
    # |sum u|^2 = n + 2 * (sum over pairs of u_i . u_j)
    total = torch.stack(units).sum(0)
    return float((total @ total - n) / (n * (n - 1)))


def stability(groups: list[GroupMeans]) -> Stability:
    """groups: one collector per layer l = 0..L."""
    n = len(groups[-1].means)
    if n < 2:
        reason = f"needs 2 batches, {ADVISED_GROUPS} advised (full groups of {GROUP} samples given: {n})"
        return Stability(deepest=None, per_layer=(None,) * len(groups), groups=n, reason=reason)
    per_layer = tuple(mean_pairwise_cosine(g.means) for g in groups)
    reason = "" if per_layer[-1] is not None else "the batch-mean gradient at h_L is zero or not finite"
    return Stability(deepest=per_layer[-1], per_layer=per_layer, groups=n, reason=reason)


__all__ = ["ADVISED_GROUPS", "GroupMeans", "mean_pairwise_cosine", "stability"]
