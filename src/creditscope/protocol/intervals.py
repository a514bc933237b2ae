"""Interval of a mean over a handful of values: Student's t, never a bootstrap (it covers .74 of .95 at n = 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from creditscope.measure.student import t_975


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % t-interval of the mean of `values` (one per group or seed); None below two or if one is not finite."""
    n = len(values)
    if n < 2 or not all(math.isfinite(value) for value in values):
        return None
    # Scaled to the largest value: norms of a network that explodes would overflow when squared.
    scale = max(abs(value) for value in values) or 1.0
    scaled = [value / scale for value in values]
    mean = math.fsum(scaled) / n
    variance = math.fsum((value - mean) ** 2 for value in scaled) / (n - 1)
    half = t_975(n - 1) * math.sqrt(variance / n)
    return (mean - half) * scale, (mean + half) * scale
