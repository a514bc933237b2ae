"""Sign-symmetric feedback: credit goes back through the signs of the forward weights, all with one magnitude per matrix."""

import torch
from torch import Tensor

from creditscope import CreditBatch, CreditRule, CreditscopeError, register


@register
class SignSymmetric(CreditRule):
    """a_L exact; a_l = a_{l+1} + S1^T S2^T a_{l+1}, where S has the signs of W and the mean of its sizes."""

    name = "sign-symmetric"
    summary = "sign-symmetric feedback: the signs of the forward weights carry credit back, their sizes do not"

    def attach(self, stream) -> None:
        self.blocks = getattr(stream, "blocks", None)
        if self.blocks is None or not all(hasattr(b, "linear1") and hasattr(b, "linear2") for b in self.blocks):
            raise CreditscopeError("sign-symmetric needs blocks with linear1 and linear2 (resmlp, student)")

    def setup(self, stream, n_classes, generator) -> None:
        self.attach(stream)

    def credit(self, batch: CreditBatch) -> list[Tensor]:
        credits = [batch.output_grad]
        for block in reversed(self.blocks):
            a = credits[-1]
            credits.append(a + a @ signs(block.linear2.weight) @ signs(block.linear1.weight))
        return credits[::-1]

    def exact_layers(self, depth: int) -> tuple[int, ...]:
        return (depth,)


@torch.no_grad()
def signs(weight: Tensor) -> Tensor:
    return weight.sign() * weight.abs().mean()
