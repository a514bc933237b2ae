"""Random credit: the negative control as a rule."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from creditscope.credit.base import CreditBatch, CreditRule
from creditscope.stream.interface import Stream


def generator_of(key: Tensor, batch: CreditBatch) -> torch.Generator:
    """A generator whose numbers follow from the key and the batch alone: measuring a rule does not change what it trains."""
    digest = hashlib.sha256(str(int(key)).encode())
    for t in (batch.y, batch.logits):
        digest.update(t.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return torch.Generator().manual_seed(int.from_bytes(digest.digest()[:7], "big"))


class RandomCredit(CreditRule):
    """a_l ~ N(0, 1), independent for every sample and layer.

    A pure function of the rule's key and the batch (a generator that runs on would let a measurement change training).
    """

    name = "random"
    has_feedback = True
    summary = "random credit: N(0, 1) for every sample and layer, no information at all (negative control)"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.key = torch.zeros((), dtype=torch.int64)

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        self.key = torch.randint(2**62, (), generator=generator)

    def credit(self, batch: CreditBatch) -> Sequence[Tensor]:
        rng, like = generator_of(self.key, batch), batch.logits
        return [torch.randn(len(batch.y), width, generator=rng).to(like) for width in batch.stream.widths]

    def state(self) -> dict[str, Tensor]:
        return {"key": self.key}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.key = state["key"]
