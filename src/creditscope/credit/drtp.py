"""DRTP: direct random target projection (Frenkel, Lefebvre and Bol 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from creditscope.credit.base import CreditBatch
from creditscope.credit.dfa import DFA
from creditscope.stream.labels import IGNORED


class DRTP(DFA):
    """a_l = -B_l^T onehot(y), B_l as in `dfa`: the label alone, before the network has answered."""

    name = "drtp"
    summary = "direct random target projection: the label through one fixed random matrix per layer, no error at all"

    def signal(self, batch: CreditBatch) -> Tensor:
        zeros = torch.zeros_like(batch.error)
        onehot = zeros.scatter(-1, batch.y.clamp_min(0).unsqueeze(-1), 1.0)
        return -onehot * (batch.y != IGNORED).unsqueeze(-1)
