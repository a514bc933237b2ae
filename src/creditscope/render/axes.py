"""Round numbers for the axes of the small charts."""

from __future__ import annotations

import math
from collections.abc import Sequence


def linear_axis(values: Sequence[float], most: int = 5) -> tuple[float, float, list[float]]:
    """(low, high, ticks) with round ticks around the finite values."""
    finite = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    if not (high - low) > 1e-9 * max(abs(low), abs(high)):
        wide = max(abs(high), 1.0) * 0.1
        low, high = low - wide, high + wide
    raw = (high - low) / most
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [round(k * step, 12) if step > 1e-9 else k * step for k in range(first, last + 1)]
    return ticks[0], ticks[-1], ticks


def log_axis(values: Sequence[float], most: int = 6) -> tuple[float, float, list[float]]:
    """(low, high, ticks), all powers of ten, around the positive finite values."""
    exponents = [math.log10(v) for v in values if math.isfinite(v) and v > 0] or [0.0]
    first, last = math.floor(min(exponents) + 1e-9), math.ceil(max(exponents) - 1e-9)
    first, last = max(first, -307), min(max(last, first + 1), 308)
    step = max(1, math.ceil((last - first) / most))
    return 10.0**first, 10.0**last, [10.0**k for k in range(first, last + 1, step)]


def whole_ticks(xs: Sequence[float], most: int = 9) -> list[int]:
    """Whole numbers over the range of the x values, evenly spaced from the first."""
    low, high = math.ceil(min(xs)), math.floor(max(xs))
    span = high - low
    step = next(
        (m * 10**e for e in range(8) for m in (1, 2, 5) if span / (m * 10**e) <= most - 1),
        span or 1,
    )
    return list(range(low, high + 1, step))


def tick_text(value: float) -> str:
    """0.25, 400, 1e-7."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:.4g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}"
