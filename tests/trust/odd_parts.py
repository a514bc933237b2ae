"""Parts that the hand-written odd networks are put together from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tests.trust.odd_grammar import IN, SIZES, C, D, T
from tests.trust.oracle import MEASURE, Batch, Case, Network, Tape, network
from torch import Tensor, nn


class Residual(nn.Module):
    """h + f(h); tokens look at one another."""

    def __init__(self, mixes: bool = False) -> None:
        super().__init__()
        self.norm, self.linear, self.mixes = nn.LayerNorm(D), nn.Linear(D, D), mixes

    def branch(self, h: Tensor) -> Tensor:
        u = self.linear(self.norm(h))
        return torch.tanh(u + 0.5 * u.mean(1, keepdim=True) if self.mixes else u)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(h)


class Branch(Residual):
    def forward(self, h: Tensor) -> Tensor:
        return self.branch(h)


class Plain(nn.Module):
    """stem, layers, norm, head; the states go through the tape. A subclass changes a part of it."""

    def __init__(self, layers: Sequence[nn.Module] | None = None, depth: int = 4, width: int = D) -> None:
        super().__init__()
        self.tape = Tape()
        self.stem: nn.Module = nn.Linear(IN, D)
        self.layers = nn.ModuleList([Residual() for _ in range(depth)] if layers is None else layers)
        self.norm: nn.Module = nn.LayerNorm(width)
        self.head: nn.Module = nn.Linear(width, C)

    def step(self, k: int, h: Tensor) -> Tensor:
        return self.layers[k](h)

    def read(self, h: Tensor) -> Tensor:
        return h

    def forward(self, x: Tensor) -> Any:
        h = self.tape(self.stem(x))
        for k in range(len(self.layers)):
            h = self.tape(self.step(k, h))
        return self.head(self.read(self.norm(h)))


class Tokens(Plain):
    """[B, T, d]; `pool` gives what the head reads."""

    def __init__(self, pool: Callable[[Tensor], Tensor] | None = None, depth: int = 4, width: int = D) -> None:
        super().__init__([Residual(mixes=True) for _ in range(depth)])
        self.pool = pool or (lambda h: h[:, 0])
        self.head = nn.Linear(width, C)

    def read(self, h: Tensor) -> Tensor:
        return self.pool(h)


def seeded(make: Callable[[], Any], seed: int = 0) -> Any:
    """A network with the weights of that seed; the global generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def vectors(sizes: Sequence[int] = SIZES, shape: Sequence[int] = (IN,), classes: int = C, seed: int = 0) -> list[Batch]:
    gen = torch.Generator().manual_seed(seed)
    return [(torch.randn(n, *shape, generator=gen), torch.randint(classes, (n,), generator=gen)) for n in sizes]


def tokens(sizes: Sequence[int] = SIZES, seed: int = 0) -> list[Batch]:
    return vectors(sizes, (T, IN), seed=seed)


def plain_net(make: Callable[[], nn.Module] = Plain, **known: Any) -> Network:
    """A network on vectors with `layers.*` as its blocks."""
    known.setdefault("blocks", "layers.*")
    known.setdefault("batches", vectors())
    return Network(seeded(make), **known)


def token_net(make: Callable[[], nn.Module] = Tokens, read: str = "cls", **known: Any) -> Network:
    known.setdefault("batches", tokens())
    return plain_net(make, read=read, **known)


class Zoo:
    """Cases in the order in which a module adds them."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def add(
        self, name: str, build: Callable[[], Network], expect: str = MEASURE, *classes: int, says: str = ""
    ) -> None:
        self.cases.append(network(name, build, expect, classes, says))

    def run(
        self, name: str, expect: str, *classes: int, says: str = ""
    ) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
        """The function is the case."""

        def put(fn: Callable[[], Any]) -> Callable[[], Any]:
            self.cases.append(Case(name, fn, expect, classes, says))
            return fn

        return put


class LoudFunction(torch.autograd.Function):
    """The backward pass has a value of its own where the state is zero."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, value: float) -> Tensor:
        ctx.save_for_backward(h)
        ctx.value = value
        return h.view_as(h)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (h,) = ctx.saved_tensors
        return torch.where(h == 0, torch.full_like(grad, ctx.value), grad), None
