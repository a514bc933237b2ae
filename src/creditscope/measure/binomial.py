"""Intervals of a share of right answers: all of them have a width at 0 and at 1."""

from __future__ import annotations

import math
from statistics import NormalDist

from creditscope.measure.facts import Evaluation


def z_of(level: float) -> float:
    """Half the width of a two-sided normal interval of this level, in standard errors."""
    return NormalDist().inv_cdf((1 + level) / 2)


Z_95 = z_of(0.95)
CONSISTENT = 0.999
"""Level of the interval with which a stated accuracy is compared."""


def wilson(p: float, n: float) -> tuple[float, float]:
    """95 % score interval of a share p of n samples (Wilson 1927)."""
    z2 = Z_95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # the ends are exact at 0 and 1, where the formula leaves a rounding error
    return (0.0 if p == 0 else centre - half), (1.0 if p == 1 else centre + half)


def newcombe(p: float, q: float, n: float) -> tuple[float, float]:
    """95 % interval of p - q, shares of n samples each (Newcombe 1998, method 10: from the two score intervals)."""
    (p_low, p_high), (q_low, q_high) = wilson(p, n), wilson(q, n)
    return p - q - math.hypot(p - p_low, q_high - q), p - q + math.hypot(p_high - p, q - q_low)


def paired(gained: float, lost: float, n: float, z: float = Z_95) -> tuple[float, float]:
    """Interval of gained - lost, shares of n samples that only one of two answers gets right, and only the other.

    Wald after half a sample is added to each cell of the 2 x 2 table (Agresti and Min 2005): it has a width where the two
    never differ.
    """
    b, c, m = gained * n + 0.5, lost * n + 0.5, n + 2
    centre, half = (b - c) / m, z * math.sqrt(b + c - (b - c) ** 2 / m) / m
    return max(centre - half, -1.0), min(centre + half, 1.0)


def clopper_pearson(right: int, n: int, level: float) -> tuple[float, float]:
    """Exact interval of a share of `right` of n samples: covers with at least `level`."""
    from scipy import special  # here: it takes its time to load

    tail = (1 - level) / 2
    low = 0.0 if right == 0 else float(special.betaincinv(right, n - right + 1, tail))
    high = 1.0 if right == n else float(special.betaincinv(right + 1, n - right, 1 - tail))
    return low, high


def evaluation(accuracy: float, n: int, n_classes: int | None, largest_class: float | None) -> Evaluation:
    """The accuracy of n evaluation samples as a fact, with its 99.9 % interval."""
    low, high = clopper_pearson(round(accuracy * n), n, CONSISTENT)
    return Evaluation(accuracy=accuracy, n=n, low=low, high=high, n_classes=n_classes, largest_class=largest_class)
