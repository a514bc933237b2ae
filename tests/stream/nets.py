"""Networks that know nothing of creditscope, and the hand-written autograd computation for any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

C, T, D_IN, D = 4, 5, 6, 16
"""Classes, tokens, input features, width."""

Array = NDArray[np.float64]


def shaken(model: nn.Module, seed: int = 0, std: float = 0.3) -> Any:
    """Every parameter drawn anew and large enough that no block is close to the identity; batch statistics too."""
    gen = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=gen) * std)
        for name, b in model.named_buffers():
            if "running" in name:
                b.copy_(torch.rand(b.shape, generator=gen) + 0.5)
    return model


class EncoderClassifier(nn.Module):
    """An unmodified torch.nn.TransformerEncoder between a projection and a head."""

    def __init__(self, pool: str = "cls", batch_first: bool = True, norm_first: bool = False) -> None:
        super().__init__()
        self.pool, self.batch_first = pool, batch_first
        self.proj = nn.Linear(D_IN, D)
        self.cls = nn.Parameter(torch.zeros(1, 1, D))
        layer = nn.TransformerEncoderLayer(
            D, 2, 24, dropout=0.1, batch_first=batch_first, norm_first=norm_first, activation="gelu"
        )
        self.encoder = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(D), enable_nested_tensor=False)
        self.head = nn.Linear(D, C)

    def start(self, x: Tensor) -> Tensor:
        h = torch.cat([self.cls.expand(len(x), -1, -1), self.proj(x)], dim=1)
        return h if self.batch_first else h.transpose(0, 1)

    def end(self, h: Tensor) -> Tensor:
        assert self.encoder.norm is not None
        h = self.encoder.norm(h)
        h = h if self.batch_first else h.transpose(0, 1)
        return self.head(h[:, 0] if self.pool == "cls" else h.mean(1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.encoder(self.start(x))
        h = h if self.batch_first else h.transpose(0, 1)
        return self.head(h[:, 0] if self.pool == "cls" else h.mean(1))


class PostActivation(nn.Module):
    """relu(shortcut(x) + conv(relu(conv(x)))): the classic residual block; a stride changes the shape."""

    def __init__(self, c_in: int, c_out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1)
        self.bn = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1)
        same = c_in == c_out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(c_in, c_out, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.shortcut(x) + self.conv2(torch.relu(self.bn(self.conv1(x)))))


class ResidualCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.stages = nn.Sequential(PostActivation(4, 4), PostActivation(4, 6, stride=2), PostActivation(6, 6))
        self.fc = nn.Linear(6, C)

    def start(self, x: Tensor) -> Tensor:
        return torch.relu(self.stem(x))

    def end(self, h: Tensor) -> Tensor:
        return self.fc(h.mean((2, 3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.stages(self.start(x)))


class PlainMLP(nn.Module):
    """A stack without any skip connection; the first map of a block may work in place on its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(D_IN, D)
        self.layers = nn.ModuleList(nn.Sequential(nn.ReLU(inplace=inplace), nn.Linear(D, D)) for _ in range(3))
        self.last = nn.Linear(D, C)

    def start(self, x: Tensor) -> Tensor:
        return self.first(x)

    def end(self, h: Tensor) -> Tensor:
        return self.last(torch.tanh(h))

    def forward(self, x: Tensor) -> Tensor:
        h = self.start(x)
        for layer in self.layers:
            h = layer(h)
        return self.end(h)


class BranchModel(nn.Module):
    """The model adds what its blocks return; `between` puts a LayerNorm on the stream after each block."""

    def __init__(self, n: int = 3, tied: bool = False, between: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(D_IN, D)
        cells = [nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D)) for _ in range(1 if tied else n)]
        self.layers = nn.ModuleList(cells)
        self.order = [0] * n if tied else list(range(n))
        self.between = nn.LayerNorm(D) if between else nn.Identity()
        self.last = nn.Linear(D, C)

    def start(self, x: Tensor) -> Tensor:
        return self.first(x)

    def end(self, h: Tensor) -> Tensor:
        return self.last(h)

    def steps(self) -> list[Callable[[Tensor], Tensor]]:
        return [lambda h, k=k: self.between(h + self.layers[k](h)) for k in self.order]  # type: ignore[misc]

    def forward(self, x: Tensor) -> Tensor:
        h = self.start(x)
        for step in self.steps():
            h = step(h)
        return self.end(h)


def by_hand(
    start: Callable[[Tensor], Tensor],
    steps: Sequence[Callable[..., Tensor]],
    end: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """([h_0..h_L], [g_0..g_L], per-sample losses) by plain autograd; call with the model in eval mode."""
    hs = [start(x).detach().requires_grad_()]
    for step in steps:
        hs.append(step(hs[-1]))
    losses = F.cross_entropy(end(hs[-1]), y, reduction="none")
    gs = torch.autograd.grad(losses.sum(), hs)
    return [h.detach() for h in hs], list(gs), losses.detach()


def norms(rows: Tensor) -> Array:
    """Per-sample L2 norm over everything but the first dimension, by numpy in float64."""
    return np.sqrt((rows.detach().numpy().astype(np.float64).reshape(len(rows), -1) ** 2).sum(1))


def floats(values: Sequence[float | None]) -> Array:
    """Measured values; one that was not measured is NaN."""
    return np.array(values, dtype=float)


def cosines(a: Tensor, g: Tensor) -> Array:
    a64 = a.detach().numpy().astype(np.float64).reshape(len(a), -1)
    g64 = g.detach().numpy().astype(np.float64).reshape(len(g), -1)
    return np.array([np.dot(u, v) / np.linalg.norm(u) / np.linalg.norm(v) for u, v in zip(a64, g64, strict=True)])


def batch(shape: tuple[int, ...], n: int = 24, seed: int = 1) -> tuple[Tensor, Tensor]:
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(n, *shape, generator=gen), torch.randint(0, C, (n,), generator=gen)


def random_credit(shapes: list[tuple[int, ...]], seed: int = 5) -> list[Tensor]:
    gen = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=gen) for shape in shapes]
