"""Student's t, for every interval over seeds."""

from __future__ import annotations


def t_975(freedom: float) -> float:
    """The 97.5 % quantile of Student's t: half of a two-sided 95 % interval is this times the standard error."""
    from scipy import special  # here: only who has several seeds waits for it

    return float(special.stdtrit(freedom, 0.975))


CUT = ", cut at the possible range"


def cut(low: float, high: float, least: float, most: float) -> tuple[float, float, str]:
    """An interval over few seeds may leave what is possible: it is printed cut, with words that say so (else "")."""
    return max(low, least), min(high, most), CUT if low < least or high > most else ""
