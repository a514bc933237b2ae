"""uSF: uniform sign-concordant feedback (Liao, Leibo and Poggio 2016)."""

from __future__ import annotations

from torch import Tensor

from creditscope.credit.weight_feedback import WeightFeedback, xavier_std


class USF(WeightFeedback):
    """B = sqrt(2 / (fan in + fan out)) sign(W), the signs those of W at every step."""

    name = "usf"
    summary = "sign symmetry: back through the signs of the weights, all with one magnitude per matrix"

    def feedback(self, name: str, weight: Tensor) -> Tensor:
        return weight.sign() * xavier_std(weight.shape)
