"""KP: Kolen-Pollack learning of the feedback (Kolen and Pollack 1994; Akrout et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from creditscope.credit.adamw import AdamW
from creditscope.credit.base import Options
from creditscope.credit.weight_feedback import FixedWeightFeedback, matrices
from creditscope.stream.interface import InterfaceStream, Stream


class KPOptions(Options):
    decay: float = Field(0.5, ge=0, le=1e3)
    """After each step W and B are multiplied by 1 - lr * decay, beside the weight decay of the optimiser, which both get."""


class KolenPollack(FixedWeightFeedback):
    """B of the shape of each W gets the increment that W gets: AdamW on the same gradients, with the same decay.

    The gap W - B shrinks at every step by (1 - lr * weight_decay)(1 - lr * decay), whatever the gradients are. AdamW's .01 at
    lr 1e-3 closes 6 % of it in 30 epochs of CIFAR-10 under the cosine schedule; hence `decay`. A frozen W moves nothing.
    """

    name = "kp"
    summary = "Kolen-Pollack: feedback matrices that get the increments of the weights, and decay as they do"
    Options = KPOptions
    options: KPOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.optimizer = AdamW({}, 0.0, 0.0)

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        super().setup(stream, n_classes, generator)
        self.optimizer = AdamW(self.B, 0.0, 0.0)

    def to(self, device: torch.device | str) -> KolenPollack:
        held = self.optimizer.state()
        super().to(device)
        self.optimizer = AdamW(self.B, 0.0, 0.0)  # of the matrices that are there now
        self.optimizer.load(held)
        return self

    @torch.no_grad()
    def after_step(self, stream: InterfaceStream, optimizer: AdamW) -> None:
        moved = {name: w for name, w in matrices(stream).items() if w.grad is not None}
        for name, w in moved.items():
            self.B[name].grad = w.grad
        self.optimizer.lr, self.optimizer.weight_decay = optimizer.lr, optimizer.weight_decay
        self.optimizer.step()
        self.optimizer.zero_grad()
        for name, w in moved.items():
            w.mul_(1 - optimizer.lr * self.options.decay)
            self.B[name].mul_(1 - optimizer.lr * self.options.decay)

    def state(self) -> dict[str, Tensor]:
        return super().state() | {f"optim.{name}": t.clone() for name, t in self.optimizer.state().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        super().load(state)
        self.optimizer = AdamW(self.B, 0.0, 0.0)
        self.optimizer.load({name[6:]: t for name, t in state.items() if name.startswith("optim.")})
