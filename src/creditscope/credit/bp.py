"""BP: the exact gradient, end to end."""

from __future__ import annotations

from creditscope.credit.base import CreditRule


class BP(CreditRule):
    """a_l = dLoss/dh_l."""

    name = "bp"
    summary = "backpropagation: the exact gradient end to end (the reference itself)"
    is_exact = True
    uses_norm = False
    objective = "exact"
