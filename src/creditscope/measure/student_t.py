"""Student's t, for every interval over seeds."""

from __future__ import annotations


def t_975(freedom: float) -> float:
    """The 97.5 % quantile of Student's t: half of a two-sided 95 % interval is this times the standard error."""
    from scipy import special  # here: only who has several seeds waits for it

    return float(special.stdtrit(freedom, 0.975))
