"""frSF: fixed random-magnitude sign-concordant feedback (Liao, Leibo and Poggio 2016)."""

from __future__ import annotations

import torch
from torch import Tensor

from creditscope.credit.weight_feedback import FixedWeightFeedback


class FRSF(FixedWeightFeedback):
    """B = |M| sign(W) with M drawn once, the signs those of W at every step."""

    name = "frsf"
    summary = "sign symmetry: back through the signs of the weights, with fixed random magnitudes"

    def drawn(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        return super().drawn(weight, generator).abs()

    def feedback(self, name: str, weight: Tensor) -> Tensor:
        return self.B[name].to(weight) * weight.sign()
