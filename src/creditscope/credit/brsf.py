"""brSF: batch-wise random-magnitude sign-concordant feedback (Liao, Leibo and Poggio 2016)."""

from __future__ import annotations

import torch
from torch import Tensor

from creditscope.credit.adamw import AdamW
from creditscope.credit.bridge_net import draw_seed
from creditscope.credit.weight_feedback import Products, WeightFeedback, xavier
from creditscope.stream.devices import moved
from creditscope.stream.interface import InterfaceStream, Stream


class BRSF(WeightFeedback):
    """B = |M| sign(W) with M redrawn at every training step; between two steps it stays, so that measuring changes nothing."""

    name = "brsf"
    summary = "sign symmetry: back through the signs of the weights, with magnitudes redrawn at every step"
    has_feedback = True
    numbers = ("seed", "steps")

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        self.seed = draw_seed(generator)

    def _through(self, stream: InterfaceStream) -> Products:
        self._generator = self.step_generator()
        return super()._through(stream)

    def feedback(self, name: str, weight: Tensor) -> Tensor:
        return moved(xavier(weight.shape, self._generator).abs(), weight) * weight.sign()

    def after_step(self, stream: InterfaceStream, optimizer: AdamW) -> None:
        self.steps += 1
