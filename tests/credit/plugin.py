"""A rule as another package would bring it (through an entry point)."""

from torch import Tensor

from creditscope import CreditBatch, CreditRule


class Theirs(CreditRule):
    name = "theirs"
    summary = "a rule of another package"

    def credit(self, batch: CreditBatch) -> list[Tensor]:
        return batch.hiddens
