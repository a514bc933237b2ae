"""Numbers in sentences."""

from __future__ import annotations


def number(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits; grouped thousands up to a million, scientific beyond and below .001."""
    if value == 0 or not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits}g}"
    text = f"{value:,.{digits}g}"
    return text if "e" not in text else f"{value:,.0f}"


def compared(value: float, threshold: float) -> str:
    """`value < threshold` in words, with as many digits as it takes to see the difference."""
    sign = "<" if value < threshold else ">" if value > threshold else "="
    for digits in range(3, 18):
        left, right = number(value, digits), number(threshold, digits)
        if sign == "=" or left != right:
            break
    return f"{left} {sign} {right}"


def between(interval: tuple[float, float]) -> str:
    """`[low, high]`."""
    return f"[{number(interval[0])}, {number(interval[1])}]"


def signed(value: float) -> str:
    """`value` with its sign and three decimals: +0.100."""
    return f"{value:+.3f}"
