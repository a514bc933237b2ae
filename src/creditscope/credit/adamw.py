"""AdamW: torch's fused kernel called directly, without what `torch.optim.AdamW.step` does around it for every parameter.

With the thirty small tensors of a ResMLP that is a noticeable part of the step. The arithmetic is torch's, to the bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor

BETAS, EPS = (0.9, 0.999), 1e-8


class AdamW:
    """Decoupled weight decay, betas (.9, .999), eps 1e-8. Parameters without a gradient stay as they are."""

    def __init__(
        self, params: Mapping[str, Tensor], lr: float, weight_decay: float, factors: Mapping[str, float] | None = None
    ) -> None:
        """factors: by how much the learning rate of a named parameter is larger; 1 where it is not named."""
        self.lr, self.weight_decay = lr, weight_decay
        self._factors = dict(factors or {})
        self._params = dict(params)
        self._steps = dict.fromkeys(params, 0)
        self._moments = {name: _zeros(p) for name, p in params.items()}

    def zero_grad(self) -> None:
        for p in self._params.values():
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        groups: dict[tuple[int, float, torch.dtype, torch.device], list[tuple[Tensor, Tensor, Tensor, Tensor]]]
        groups = defaultdict(list)
        for name, p in self._params.items():
            if p.grad is not None:
                self._steps[name] += 1
                kind = self._steps[name], self._factors.get(name, 1.0), p.dtype, p.device
                groups[kind].append((p, _laid_out(p.grad, p), *self._moments[name]))
        for (step, factor, _, device), moved in groups.items():
            params, grads, exp_avgs, exp_avg_sqs = map(list, zip(*moved, strict=True))
            torch._fused_adamw_(
                params,
                grads,
                exp_avgs,
                exp_avg_sqs,
                [],
                [_count(step, device)] * len(params),
                lr=self.lr * factor,
                beta1=BETAS[0],
                beta2=BETAS[1],
                weight_decay=self.weight_decay,
                eps=EPS,
                amsgrad=False,
                maximize=False,
            )

    def started(self) -> bool:
        """Has it moved a parameter yet?"""
        return any(self._steps.values())

    def state(self) -> dict[str, Tensor]:
        """`step.<name>`, `exp_avg.<name>`, `exp_avg_sq.<name>` of every parameter."""
        made: dict[str, Tensor] = {}
        for name, (exp_avg, exp_avg_sq) in self._moments.items():
            made[f"step.{name}"] = _count(self._steps[name], exp_avg.device)
            made |= {f"exp_avg.{name}": exp_avg, f"exp_avg_sq.{name}": exp_avg_sq}
        return made

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave; a parameter that is not in it starts anew."""
        for name, p in self._params.items():
            known = f"step.{name}" in state
            self._steps[name] = int(state[f"step.{name}"]) if known else 0
            self._moments[name] = _zeros(p)
            if known:
                for moment, kind in zip(self._moments[name], ("exp_avg", "exp_avg_sq"), strict=True):
                    moment.copy_(state[f"{kind}.{name}"])


def _laid_out(grad: Tensor, p: Tensor) -> Tensor:
    """The gradient in the order of the parameter's memory, which is how the kernel walks over both."""
    return grad if grad.stride() == p.stride() else torch.empty_like(p).copy_(grad)


def _zeros(p: Tensor) -> tuple[Tensor, Tensor]:
    return torch.zeros_like(p), torch.zeros_like(p)


def _count(step: int, device: torch.device) -> Tensor:
    return torch.full((), float(step), dtype=torch.float32, device=device)  # filled there: nothing is copied
