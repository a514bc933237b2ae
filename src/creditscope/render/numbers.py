"""How numbers look, everywhere."""

from __future__ import annotations

import math

from creditscope.measure.student_t import cut
from creditscope.protocol.checks import INTERPRETIVE
from creditscope.protocol.wording import not_one
from creditscope.tables import mean, sample_std


def printable(text: str) -> str:
    """The text on one line: control codes, line breaks and other characters that are not printed become spaces."""
    return "".join(c if c.isprintable() else " " for c in text)


def shortened(text: str, longest: int) -> str:
    """Printable text of limited length."""
    text = printable(text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def clip(text: object, longest: int = 300) -> str:
    """Text from outside: one line of limited length, its words one space apart."""
    return shortened(" ".join(printable(str(text)).split()), longest)


def num(value: float | None, digits: int = 3) -> str:
    """4.2e-09, 0.0123, 104, 1.8e+04; NaN and infinities in words; "–" for what was not measured. A size below 1 is never
    printed as 1 (`not_one`), here and below."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e4:
        return not_one(value, digits, lambda d: f"{value:.{d}g}") if abs(value) < 100 else f"{value:.0f}"
    return f"{value:.{digits - 1}e}"


def signed(value: float | None, digits: int = 3) -> str:
    """Cosines (two or three decimals) and margins (one, in percentage points): the sign is always there."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return num(value)
    return not_one(value, digits, lambda d: f"{value:+.{d}f}") if digits >= 2 else f"{value:+.{digits}f}"


def share(value: float | None, digits: int = 3) -> str:
    """An accuracy, or another value between 0 and 1: 0.306."""
    return "–" if value is None else not_one(value, digits, lambda d: f"{value:.{d}f}")


def percent(value: float) -> str:
    """A share in percent: 31%; 99.7%, not 100%."""
    return not_one(value, 0, lambda d: f"{100 * value:.{d}f}", 100.0) + "%"


def interval_of(low: float | None, high: float | None, digits: int = 1) -> str:
    """[low, high] of a margin, in percentage points; "" where there is none."""
    if low is None or high is None:
        return ""
    low, high, remark = cut(low, high, -100.0, 100.0)
    return f"[{signed(low, digits)}, {signed(high, digits)}]{remark}"


def span_of(low: float, high: float, least: float = 0.0) -> str:
    """low to high of an accuracy, or of a Γ (`least` -1)."""
    low, high, remark = cut(low, high, least, 1.0)
    return f"{share(low)} to {share(high)}{remark}"


def accuracy(values: tuple[float, ...]) -> str:
    """.306, or mean ± sample standard deviation over n networks."""
    if not values:
        return "–"
    spread = sample_std(values)
    return share(mean(values)) + ("" if spread is None else f" ± {spread:.3f} (n={len(values)})")


MARKS = {
    "pass": "✓ pass",
    "fail": "✗ fail",
    "inconsistent": "≠ inconsistent",
    "inconclusive": "? inconclusive",
    "incomplete": "… incomplete",
    "mixed": "◐ mixed",
    "not measurable": "– not measurable",
    "not measured": "– not measured",
}
"""Answers in words and with a mark: never by colour alone."""

STYLES = {
    "pass": "green",
    "fail": "bold red",
    "inconsistent": "bold red",
    "inconclusive": "yellow",
    "incomplete": "yellow",
    "mixed": "yellow",
}


def mark(answer: str, check: str = "") -> str:
    """`check`: the id of the check that gave the answer."""
    if check == "C" and answer in INTERPRETIVE:
        return f"• {INTERPRETIVE[answer]}"
    return MARKS.get(answer, answer)
