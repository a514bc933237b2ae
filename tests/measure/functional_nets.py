"""Tiny networks whose losses are known in closed form."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from creditscope.measure.functional import Probe, double_stream, make_probe
from creditscope.measure.loss import cross_entropy
from creditscope.stream.interface import Stream


class Zero(nn.Module):
    """f_l = 0: every h_l is h_0."""

    def forward(self, h: Tensor) -> Tensor:
        return torch.zeros_like(h)


class TanhBranch(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(width, width)
        self.linear2 = nn.Linear(width, width)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = self.linear2(torch.tanh(self.linear1(h)))
        return out


class Net(nn.Module):
    """h_0 = x; `depth` blocks; logits = head(h_L)."""

    def __init__(self, block: type[nn.Module] | None = None, width: int = 5, depth: int = 2, classes: int = 3) -> None:
        super().__init__()
        self.embed = nn.Identity()
        self.blocks = nn.ModuleList(Zero() if block is None else block(width) for _ in range(depth))
        self.out_ln = nn.Identity()
        self.out_head = nn.Identity() if block is None else nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for block in self.blocks:
            h = h + block(h)
        out: Tensor = self.out_head(h)
        return out


def samples(n: int = 6, width: int = 5, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, generator=rng), torch.randint(classes, (n,), generator=rng)


def tanh_net(seed: int = 0, **kwargs: int) -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Net(TanhBranch, **kwargs)


def probe_of(model: nn.Module, batch, credit=None, loss_fn=cross_entropy) -> tuple[Stream, Probe]:
    stream = double_stream(model, batch, None, None)
    stream.model.eval()
    return stream, make_probe(stream, batch, credit, loss_fn, torch.Generator().manual_seed(7))


def linear_loss(logits: Tensor, y: Tensor) -> Tensor:
    """<logits, w_y> with w_y = (y + 1, y + 2, ...): linear in h, gradient w_y."""
    return (logits * weights(logits, y)).sum(1)


def weights(logits: Tensor, y: Tensor) -> Tensor:
    return y[:, None] + 1.0 + torch.arange(logits.shape[1]).to(logits)


def quadratic_loss(logits: Tensor, y: Tensor) -> Tensor:
    """½‖logits‖²: gradient = the logits."""
    return 0.5 * logits.square().sum(1)


def constant_loss(logits: Tensor, y: Tensor) -> Tensor:
    return 0.0 * logits.sum(1) + 2.5
