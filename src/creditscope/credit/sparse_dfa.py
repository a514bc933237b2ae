"""Sparse DFA: direct feedback alignment with few feedback connections (Crafton et al. 2019)."""

from __future__ import annotations

import torch
from pydantic import Field

from creditscope.credit.base import Options
from creditscope.credit.dfa import DFA
from creditscope.stream.interface import Stream


class SparseDFAOptions(Options):
    share: float = Field(0.1, gt=0, le=1)
    """Share of the entries of each B_l that are not zero."""


class SparseDFA(DFA):
    """a_l = B_l^T e; of each B_l a share of the entries, chosen at random, is N(0, 1)/sqrt(share C), the others are zero."""

    name = "sparse-dfa"
    summary = "DFA with sparse feedback: a tenth of the entries of each random matrix, the others zero"
    Options = SparseDFAOptions
    options: SparseDFAOptions

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        super().setup(stream, n_classes, generator)
        for b in self.B:
            kept = max(1, round(self.options.share * b.numel()))
            b.view(-1)[torch.randperm(b.numel(), generator=generator)[kept:]] = 0
            b *= self.options.share**-0.5
