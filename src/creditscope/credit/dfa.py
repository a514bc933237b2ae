"""DFA: direct feedback alignment (Nøkland 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from creditscope.credit.base import CreditBatch, CreditRule, gaussian, require_fit
from creditscope.stream.interface import Stream


class DFA(CreditRule):
    """a_l = B_l^T e with B_l in R^{C x d_l} fixed, N(0, 1)/sqrt(C); e = softmax(logits) - onehot(y).

    Language models: a_l at token t is B_l^T e_t, with one B_l for all tokens.
    """

    name = "dfa"
    has_feedback = True
    tensors: ClassVar[tuple[str, ...]] = ("B",)
    summary = "direct feedback alignment: the output error through one fixed random matrix per layer"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.B: list[Tensor] = []

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        self.B = [gaussian((n_classes, width), n_classes**-0.5, generator) for width in stream.feedback_widths]

    def attach(self, stream: Stream) -> None:
        require_matrices(self.name, [b.shape[1] for b in self.B], stream.feedback_widths)

    def signal(self, batch: CreditBatch) -> Tensor:
        """What is sent to every layer, [B, C] (language models [B, T, C])."""
        return batch.error

    def credit(self, batch: CreditBatch) -> list[Tensor]:
        e = self.signal(batch)
        return [(e @ b.to(e)).flatten(1) for b in self.B]


def require_matrices(name: str, have: Sequence[int], need: Sequence[int]) -> None:
    """One line where a rule's matrices do not fit the stream (or were never drawn)."""
    require_fit(f"the feedback matrices of {name!r} have widths", have, need)
