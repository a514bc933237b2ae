"""AdamW: torch's fused kernel by its functional form, without what `torch.optim.AdamW.step` does around it for every parameter.

With the thirty small tensors of a ResMLP that is a noticeable part of the step. The arithmetic is torch's, to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim.adamw import adamw

BETAS, EPS = (0.9, 0.999), 1e-8
KEYS = ("step", "exp_avg", "exp_avg_sq")


class AdamW:
    """Decoupled weight decay, betas (.9, .999), eps 1e-8. Parameters without a gradient stay as they are."""

    def __init__(self, params: Mapping[str, Tensor], lr: float, weight_decay: float) -> None:
        self.lr, self.weight_decay = lr, weight_decay
        self._params = dict(params)
        self._state = {name: _fresh(p) for name, p in params.items()}

    def zero_grad(self) -> None:
        for p in self._params.values():
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        moved = [(p, p.grad, *self._state[name]) for name, p in self._params.items() if p.grad is not None]
        if not moved:
            return
        params, grads, steps, exp_avgs, exp_avg_sqs = map(list, zip(*moved, strict=True))
        adamw(
            params,
            grads,
            exp_avgs,
            exp_avg_sqs,
            [],
            steps,
            foreach=False,
            fused=True,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self.lr,
            weight_decay=self.weight_decay,
            eps=EPS,
            maximize=False,
        )

    def started(self) -> bool:
        """Has it moved a parameter yet?"""
        return any(int(step) for step, _, _ in self._state.values())

    def state(self) -> dict[str, Tensor]:
        """`step.<name>`, `exp_avg.<name>`, `exp_avg_sq.<name>` of every parameter."""
        return {f"{key}.{name}": t for name, own in self._state.items() for key, t in zip(KEYS, own, strict=True)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave; a parameter that is not in it starts anew."""
        self._state = {
            name: tuple(state[f"{key}.{name}"].clone() for key in KEYS) if f"step.{name}" in state else _fresh(p)  # type: ignore[misc]
            for name, p in self._params.items()
        }


def _fresh(p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.zeros((), dtype=torch.float32, device=p.device), torch.zeros_like(p), torch.zeros_like(p)
