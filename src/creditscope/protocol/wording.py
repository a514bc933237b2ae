"""Numbers in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable

from creditscope.measure.depth import UNSTATED
from creditscope.measure.facts import Aggregate
from creditscope.measure.student_t import cut

READINGS_DIFFER = 0.02
"""Γ over all layers stands beside Γ over the layers that count where they differ by more than this."""


ONE = 1e-6
"""A cosine or a share this near to 1 is 1, up to rounding."""


def not_one(value: float, digits: int, text: Callable[[int], str], one: float = 1.0) -> str:
    """`text(digits)`; with as many more digits as it takes where a size below 1 would read `one`: 0.999, not 1."""
    if abs(value) < 1 - ONE:
        while abs(float(text(digits))) == one:
            digits += 1
    return text(digits)


def number(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits; grouped thousands up to a million, scientific beyond and below .001."""
    text = not_one(value, digits, lambda d: f"{value:,.{d}g}")
    return text if "e" not in text or not 1 <= abs(value) < 1e6 else f"{float(text):,.0f}"


def compared(value: float, threshold: float, unit: str = "") -> str:
    """`value < threshold` in words, each with its unit, with as many digits as it takes to see the difference."""
    sign = "<" if value < threshold else ">" if value > threshold else "="
    for digits in range(3, 18):
        left, right = number(value, digits), number(threshold, digits)
        if sign == "=" or left != right:
            break
    return f"{left}{unit} {sign} {right}{unit}"


def between(interval: tuple[float, float], least: float = -math.inf, most: float = math.inf) -> str:
    """`[low, high]`, no further than what is possible."""
    low, high, remark = cut(*interval, least, most)
    return f"[{number(low)}, {number(high)}]{remark}"


def null_name(kind: str) -> str:
    """ "matched null", "bp null", "null of unstated kind": what every output calls a null (random-blocks baseline)."""
    return "null of unstated kind" if kind == UNSTATED else f"{kind} null"


def in_percent(accuracy: float) -> str:
    """An accuracy beside a difference in percentage points: 31.32 %."""
    return not_one(accuracy, 2, lambda d: f"{100 * accuracy:.{d}f}", 100.0) + " %"


def signed_pp(value: float) -> str:
    """Percentage points with their sign and one decimal: -5.6."""
    return f"{value:+.1f}"


def between_pp(low: float, high: float) -> str:
    """`[low, high]` of a margin in percentage points."""
    low, high, remark = cut(low, high, -100.0, 100.0)
    return f"[{signed_pp(low)}, {signed_pp(high)}]{remark}"


def signed(value: float) -> str:
    """`value` with its sign and three decimals: +0.100."""
    return not_one(value, 3, lambda d: f"{value:+.{d}f}")


def over_all_layers(gamma: float | None, all_layers: float | None) -> str:
    """ "; +0.169 over all layers" where that reading of Γ differs by more than .02; else ""."""
    if gamma is None or all_layers is None or not abs(gamma - all_layers) > READINGS_DIFFER:
        return ""
    return f"; {signed(all_layers)} over all layers"


def other_reading(aggregate: Aggregate) -> str:
    """The other reading of one network's Γ, where it differs."""
    return over_all_layers(aggregate.headline, aggregate.gamma_all_layers)
