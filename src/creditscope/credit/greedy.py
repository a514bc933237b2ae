"""Greedy local losses (Belilovsky, Eickenberg and Oyallon 2019; Nøkland and Eidnes 2019): a classifier for each layer."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from creditscope.credit.base import CreditBatch, Options
from creditscope.credit.bridge_net import Learning, made, read_states
from creditscope.errors import CreditscopeError
from creditscope.stream.interface import Stream


class GreedyOptions(Options):
    lr: float = Field(1e-3, gt=0, le=10)
    """Step size of the heads' AdamW."""


class Greedy(Learning):
    """a_l = gradient over h_l of CE(A_l h_l + c_l, y) for l < L, with a linear head (A_l, c_l) for each layer, trained on the
    same loss and saved with the network; a_L = dLoss/dh_L exact. Block l learns from a_{l+1}: its own classifier's error.
    """

    name = "greedy"
    summary = "greedy local losses: the gradient of a linear classifier that each layer has for itself"
    uses_norm = False
    site = "output"
    has_feedback = True
    exact_at_top = True
    Options = GreedyOptions
    options: GreedyOptions

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        if stream.scores_tokens:
            raise CreditscopeError(
                "credit rule 'greedy' needs one label per sample; language models have one per token"
            )
        super().setup(stream, n_classes, generator)

    def network(self, widths: list[int], size: int) -> nn.Module:
        self.widths, self.n_classes = widths, size
        return nn.ModuleList(nn.Linear(d, size) for d in widths[:-1])

    def _heads(self) -> list[Any]:
        return list(made(self.learner, self.name).net.children())

    def learn(self, batch: CreditBatch) -> None:
        states = read_states(batch)
        with torch.enable_grad():
            losses = [F.cross_entropy(head(h), batch.y) for head, h in zip(self._heads(), states, strict=False)]
            made(self.learner, self.name).step(sum(losses[1:], losses[0]))

    @torch.no_grad()
    def credit(self, batch: CreditBatch) -> list[Tensor]:
        top, credits = batch.exact_top(self.name), []
        for head, h in zip(self._heads(), read_states(batch), strict=False):
            e = torch.softmax(head(h), 1) - F.one_hot(batch.y, self.n_classes)
            credits.append((e @ head.weight).to(top.dtype))
        return [*credits, top]
