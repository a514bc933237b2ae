"""WM: weight mirror (Akrout et al. 2019)."""

from __future__ import annotations

import torch
from pydantic import Field

from creditscope.credit.adamw import AdamW
from creditscope.credit.base import Options
from creditscope.credit.bridge_net import draw_seed
from creditscope.credit.weight_feedback import FixedWeightFeedback, matrices
from creditscope.stream.devices import moved
from creditscope.stream.interface import InterfaceStream, Stream


class WMOptions(Options):
    rate: float = Field(0.02, gt=0, le=1)
    """Step of the mirror, and its decay: the share of B that each noise phase replaces."""
    samples: int = Field(64, ge=1, le=65536)
    """Noise vectors of one phase."""
    every: int = Field(1, ge=1, le=1_000_000)
    """Training steps from one noise phase to the next."""


class WeightMirror(FixedWeightFeedback):
    """After a training step each weight is given noise x ~ N(0, 1) and answers y = W x; Hebbian: B <- (1 - r) B + r mean(y x^T).

    The mean of y x^T is W, so that B follows W with a lag of 1/r phases. Kernels: as the matrix of their patches.
    """

    name = "wm"
    summary = "weight mirror: feedback matrices learned from the weights' answers to noise"
    numbers = ("seed", "steps")
    Options = WMOptions
    options: WMOptions

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        super().setup(stream, n_classes, generator)
        self.seed = draw_seed(generator)

    @torch.no_grad()
    def after_step(self, stream: InterfaceStream, optimizer: AdamW) -> None:
        self.steps += 1
        if self.steps % self.options.every:
            return
        generator = self.step_generator()
        for name, weight in matrices(stream).items():
            x = moved(torch.randn(self.options.samples, weight[0].numel(), generator=generator), weight)
            y = x @ weight.flatten(1).t()
            answer = (y.t() @ x).div_(len(x)).view_as(weight)
            self.B[name] = self.B[name].to(weight).lerp(answer, self.options.rate)
