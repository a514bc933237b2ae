"""Random credit: the negative control as a rule."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from creditscope.credit.adamw import AdamW
from creditscope.credit.base import CreditBatch, CreditRule, Options
from creditscope.stream.devices import moved
from creditscope.stream.interface import InterfaceStream, Stream


class DrawOptions(Options):
    source: Literal["logits", "labels"] = "logits"
    """What the random numbers of a batch follow from, beside the rule's key: its labels and logits, which another device
    rounds otherwise; or its labels and the training step, the same on every device and known to the host."""

    later: ClassVar[frozenset[str]] = frozenset({"source"})


class Drawing(CreditRule):
    """A rule whose random numbers follow from its key and the batch alone: measuring it does not change what it trains."""

    has_feedback = True
    Options: ClassVar[type[Options]] = DrawOptions
    options: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.key = 0
        self.numbers = ("key", "steps") if self.options.source == "labels" else ("key",)

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        self.key = int(torch.randint(2**62, (), generator=generator))

    def generator(self, batch: CreditBatch) -> torch.Generator:
        """Of this batch, on the CPU."""
        labels = self.options.source == "labels"
        digest = hashlib.sha256(f"{self.key} {self.steps}".encode() if labels else str(self.key).encode())
        for t in (batch.y if batch.labels is None else batch.labels, *([] if labels else [batch.logits])):
            digest.update(t.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return torch.Generator().manual_seed(int.from_bytes(digest.digest()[:7], "big"))

    def after_step(self, stream: InterfaceStream, optimizer: AdamW) -> None:
        self.steps += 1


class RandomCredit(Drawing):
    """a_l ~ N(0, 1), independent for every sample and layer.

    A pure function of the rule's key and the batch (a generator that runs on would let a measurement change training).
    """

    name = "random"
    summary = "random credit: N(0, 1) for every sample and layer, no information at all (negative control)"

    def credit(self, batch: CreditBatch) -> Sequence[Tensor]:
        rng, n = self.generator(batch), len(batch.y)
        return [moved(torch.randn(n, width, generator=rng), batch.logits) for width in batch.stream.widths]
