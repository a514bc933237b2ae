"""Intervals of a mean over few values (Student's t, never a bootstrap: it covers .74 of .95 at n = 3) and of an accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from creditscope.measure.binomial import wilson
from creditscope.measure.depth import Accuracy, accuracies, checked_n_test, resolution
from creditscope.measure.student_t import t_975


def t_interval(values: Sequence[float], least_std: float = 0.0) -> tuple[float, float] | None:
    """95 % t-interval of the mean of `values` (one per group or seed); None below two or if one is not finite.

    `least_std`: no standard deviation smaller than this is believed (values of finite resolution may agree by rounding).
    """
    n = len(values)
    if n < 2 or not all(math.isfinite(value) for value in values):
        return None
    # Scaled to the largest value: norms of a network that explodes would overflow when squared.
    scale = max(abs(value) for value in values) or 1.0
    scaled = [value / scale for value in values]
    mean = math.fsum(scaled) / n
    variance = math.fsum((value - mean) ** 2 for value in scaled) / (n - 1)
    half = t_975(n - 1) * math.sqrt(max(variance, (least_std / scale) ** 2) / n)
    return (mean - half) * scale, (mean + half) * scale


@dataclass(frozen=True)
class AccuracyInterval:
    """Mean accuracy with its 95 % interval; low = high = mean for a point comparison."""

    mean: float
    low: float
    high: float
    kind: str


def accuracy_interval(accuracy: Accuracy, n_test: int | None = None) -> AccuracyInterval:
    """t over seeds where there are two or more; else binomial (Wilson) from `n_test`; else a point.

    Over seeds no standard deviation is taken smaller than that of the rounding of the accuracies (see `measure.depth`).
    """
    values = accuracies(accuracy, "accuracy")
    size = checked_n_test(n_test)
    mean = math.fsum(values) / len(values)
    over_seeds = t_interval(values, least_std=resolution(values, size) / math.sqrt(12))
    if over_seeds is not None:
        return AccuracyInterval(mean, *over_seeds, kind=f"t over {len(values)} seeds")
    if size is not None:
        return AccuracyInterval(mean, *wilson(mean, size), kind="binomial, this network only")
    return AccuracyInterval(mean, mean, mean, kind="point comparison")
