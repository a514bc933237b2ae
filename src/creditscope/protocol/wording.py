"""Numbers in sentences."""

from __future__ import annotations

import math

from creditscope.measure.facts import Aggregate
from creditscope.measure.student_t import cut

READINGS_DIFFER = 0.02
"""Γ over all layers stands beside Γ over the layers that count where they differ by more than this."""


def number(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits; grouped thousands up to a million, scientific beyond and below .001."""
    text = f"{value:,.{digits}g}"
    return text if "e" not in text or not 1 <= abs(value) < 1e6 else f"{float(text):,.0f}"


def compared(value: float, threshold: float) -> str:
    """`value < threshold` in words, with as many digits as it takes to see the difference."""
    sign = "<" if value < threshold else ">" if value > threshold else "="
    for digits in range(3, 18):
        left, right = number(value, digits), number(threshold, digits)
        if sign == "=" or left != right:
            break
    return f"{left} {sign} {right}"


def between(interval: tuple[float, float], least: float = -math.inf, most: float = math.inf) -> str:
    """`[low, high]`, no further than what is possible."""
    low, high, said = cut(*interval, least, most)
    return f"[{number(low)}, {number(high)}]{said}"


def signed_pp(value: float) -> str:
    """Percentage points with their sign and one decimal: -5.6."""
    return f"{value:+.1f}"


def between_pp(low: float, high: float) -> str:
    """`[low, high]` of a margin in percentage points."""
    low, high, said = cut(low, high, -100.0, 100.0)
    return f"[{signed_pp(low)}, {signed_pp(high)}]{said}"


def signed(value: float) -> str:
    """`value` with its sign and three decimals: +0.100."""
    return f"{value:+.3f}"


def over_all_layers(gamma: float | None, all_layers: float | None, digits: int = 3) -> str:
    """ "; +0.169 over all layers" where that reading of Γ differs by more than .02; else ""."""
    if gamma is None or all_layers is None or not abs(gamma - all_layers) > READINGS_DIFFER:
        return ""
    return f"; {all_layers:+.{digits}f} over all layers"


def other_reading(aggregate: Aggregate) -> str:
    """The other reading of one network's Γ, where it differs."""
    return over_all_layers(aggregate.headline, aggregate.gamma_all_layers)
