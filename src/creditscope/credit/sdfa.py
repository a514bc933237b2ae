"""sDFA: direct feedback alignment with the sign of the error (Launay et al. 2019; Frenkel et al. 2021 call it sDFA)."""

from __future__ import annotations

from torch import Tensor

from creditscope.credit.base import CreditBatch
from creditscope.credit.dfa import DFA


class SignDFA(DFA):
    """a_l = B_l^T sign(e), B_l as in `dfa`."""

    name = "sdfa"
    summary = "sign-DFA: the sign of the output error through one fixed random matrix per layer"

    def signal(self, batch: CreditBatch) -> Tensor:
        return batch.error.sign()
