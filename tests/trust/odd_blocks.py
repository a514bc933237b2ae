"""Blocks of all kinds, and what is called a block (4, 8); the twin with frozen blocks (11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tests.trust.odd_grammar import D
from tests.trust.odd_parts import Branch, Plain, Residual, Tokens, Zoo, plain_net, seeded, token_net
from tests.trust.odd_runs import Encoder
from tests.trust.oracle import (
    EITHER,
    MEASURE,
    REFUSE,
    Batch,
    Network,
    Pass,
    WrongError,
    by_hooks,
    by_tape,
    left_as_found,
)
from torch import Tensor, nn

from creditscope import frozen_blocks

ZOO = Zoo()
add, run = ZOO.add, ZOO.run


# ---- what blocks may be named ------------------------------------------------------------------------------------


class SideBySide(Plain):
    """Both blocks of a pair read the same state."""

    def __init__(self) -> None:
        super().__init__([Branch() for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        for k in (0, 2):
            h = self.tape(h + self.layers[k](h) + self.layers[k + 1](h))
        return self.head(self.norm(h))


class Experts(nn.Module):
    """A mixture: the router chooses one branch for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(D, 2)
        self.experts = nn.ModuleList([Branch(), Branch()])

    def forward(self, h: Tensor) -> Tensor:
        weight = torch.softmax(self.router(h), 1)
        chosen = weight.argmax(1)
        out = torch.zeros_like(h)
        for k, expert in enumerate(self.experts):
            at = chosen == k
            out[at] = expert(h[at]) * weight[at, k : k + 1]
        return h + out


class Dense(Plain):
    """DenseNet: every block appends to the state."""

    class Block(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.linear = nn.Linear(n, 3)

        def forward(self, h: Tensor) -> Tensor:
            return torch.cat([h, torch.tanh(self.linear(h))], 1)

    def __init__(self) -> None:
        super().__init__([self.Block(D + 3 * k) for k in range(3)], width=D + 9)


class Unused(Plain):
    """The last block is never called."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        for layer in list(self.layers)[:-1]:
            h = self.tape(layer(h))
        return self.head(self.norm(h))


class Idle(Plain):
    """The last block is called, and what it gives is dropped."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        for layer in list(self.layers)[:-1]:
            h = self.tape(layer(h))
        self.layers[-1](h)
        return self.head(self.norm(h))


class Answer(Plain):
    """Gives back a mapping, a tuple, or logits among other things."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Any:
        logits = super().forward(x)
        return {"logits": logits, "features": x} if self.how == "mapping" else (logits, x)


def with_parametrization() -> nn.Module:
    model: Any = Plain(depth=3)
    for layer in model.layers:
        nn.utils.parametrizations.weight_norm(layer.linear)
    return model


def scaled_by_a_hook() -> nn.Module:
    model = Plain(depth=3)
    model.layers[1].register_forward_hook(lambda m, args, out: 1.5 * out)
    return model


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(D, D, batch_first=True)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.lstm(h)[0]


class OfLSTM(Tokens):
    def __init__(self) -> None:
        super().__init__(lambda h: h[:, -1])
        self.layers = nn.ModuleList([Recurrent() for _ in range(3)])


class Reversible(Plain):
    """Reversible: the state is two halves, each updated from the other."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f, self.g = nn.Linear(D // 2, D // 2), nn.Linear(D // 2, D // 2)

        def forward(self, h: Tensor) -> Tensor:
            a, b = h.chunk(2, 1)
            a = a + torch.tanh(self.f(b))
            return torch.cat([a, b + torch.tanh(self.g(a))], 1)

    def __init__(self) -> None:
        super().__init__([self.Block() for _ in range(3)])


class BetweenNorms(Plain):
    """A norm stands between the blocks, in the model."""

    def __init__(self) -> None:
        super().__init__()
        self.between = nn.LayerNorm(D)

    def step(self, k: int, h: Tensor) -> Tensor:
        h = self.layers[k](h)
        return h if k == len(self.layers) - 1 else self.between(h)


def tiny() -> nn.Module:
    model: Any = Plain()
    with torch.no_grad():
        model.head.weight.mul_(1e-20)
    return model


class Linearly(Residual):
    """No bound on the branch."""

    def __init__(self, size: float) -> None:
        super().__init__()
        with torch.no_grad():
            self.linear.weight.mul_(size)

    def branch(self, h: Tensor) -> Tensor:
        return self.linear(self.norm(h))


def exploding() -> nn.Module:
    return Plain([Linearly(100.0**k) for k in range(4)])


def _as_modules() -> Network:
    net = plain_net()
    net.blocks = list(net.model.layers)  # type: ignore[arg-type]
    return net


def _wrapped() -> Network:
    net = plain_net()
    net.model = nn.DataParallel(net.model)
    net.blocks = "module.layers.*"
    return net


def _requiring() -> Network:
    net = plain_net()
    net.batches = [(x.requires_grad_(True), y) for x, y in net.batches]
    net.passes = lambda model, batches: by_tape(model, [(x.detach(), y) for x, y in batches])
    return net


add("two blocks side by side", lambda: plain_net(SideBySide), REFUSE, 4)
add("a mixture of experts", lambda: plain_net(lambda: Plain([Experts() for _ in range(3)])))
add("DenseNet: the state grows", lambda: plain_net(Dense))
add("a block that is never called", lambda: plain_net(Unused), REFUSE, 10)
add("a block whose output is dropped", lambda: plain_net(Idle), REFUSE, 4)
add("logits in a mapping", lambda: plain_net(lambda: Answer("mapping")))
add("logits in a tuple", lambda: plain_net(lambda: Answer("tuple")))
add("weight norm by parametrization", lambda: plain_net(with_parametrization), MEASURE, 6)
add("a user's forward hook scales a block", lambda: plain_net(scaled_by_a_hook), MEASURE, 4)
add("LSTM blocks", lambda: token_net(OfLSTM, "last"))
add("reversible blocks", lambda: plain_net(Reversible))
add("a norm between the blocks only", lambda: plain_net(BetweenNorms), EITHER, 4)
add("tiny gradients", lambda: plain_net(tiny), MEASURE)
add("a state that explodes", lambda: plain_net(exploding), MEASURE)
add("blocks given as modules", _as_modules, MEASURE)
add("blocks given in another order", lambda: plain_net(blocks=["layers.2", "layers.0", "layers.3", "layers.1"]), EITHER)
add("a block and a part of it", lambda: plain_net(blocks=["layers.0", "layers.0.linear", "layers.1"]), REFUSE, 4)
add("names inside a wrapper", _wrapped, MEASURE)
add("inputs that require a gradient", _requiring, MEASURE, 6)


def part_of_the_blocks(names: list[str], expect: str, name: str) -> None:
    def passes(model: nn.Module, batches: Sequence[Batch]) -> list[Pass]:
        return by_hooks(model, batches, names)

    add(name, lambda: plain_net(lambda: Plain(depth=4), blocks=names, passes=passes), expect, 4)


part_of_the_blocks(["layers.0", "layers.1"], MEASURE, "the first two of four blocks")
part_of_the_blocks(["layers.2", "layers.3"], MEASURE, "the last two of four blocks")
part_of_the_blocks(["layers.0", "layers.2"], EITHER, "every other block")


# ---- 11: frozen_blocks --------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(D), nn.MultiheadAttention(D, 2, batch_first=True)

    def forward(self, h: Tensor) -> Tensor:
        u = self.norm(h)
        return h + self.attention(u, u, u, need_weights=False)[0]


class Tied(Tokens):
    """The linear map of the first block is the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Embedding(D, D)
        self.layers[0].linear.weight = self.stem.weight  # type: ignore[union-attr]


def trained(make: Callable[[], nn.Module]) -> nn.Module:
    """Every parameter moved away from its initialisation."""
    model = seeded(make)
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            p.add_(1.0 + torch.arange(p.numel()).view_as(p) % (k + 2))
    return model


@run("frozen_blocks: attention starts as its constructor starts it", MEASURE, 11)
def _() -> None:
    def make() -> nn.Module:
        model = Tokens()
        model.layers = nn.ModuleList([Attention() for _ in range(2)])
        return model

    fresh, model = make(), trained(make)
    with left_as_found(model):
        twin = frozen_blocks(model, "layers.*")
    _starts_alike(fresh, twin)


@run("frozen_blocks: torch's encoder layers", MEASURE, 11)
def _() -> None:
    model = trained(lambda: Encoder(True, False))
    with left_as_found(model):
        twin = frozen_blocks(model, "encoder.layers.*")
    _starts_alike(seeded(lambda: Encoder(True, False)), twin, "encoder.layers.")


def _starts_alike(fresh: nn.Module, twin: nn.Module, prefix: str = "layers.") -> None:
    """Constants are the same constants, and random weights have the same spread (within what 64 numbers show)."""
    theirs = dict(twin.named_parameters())
    for name, p in fresh.named_parameters():
        if not name.startswith(prefix):
            continue
        q = theirs[name].detach()
        if p.numel() == 1 or float(p.detach().std()) == 0:
            if not torch.equal(p.detach(), q):
                first, here = float(p.detach().flatten()[0]), float(q.flatten()[0])
                raise WrongError(f"{name} starts at {first:g} in the constructor, at {here:.3g} here")
        elif p.dim() > 1:
            ratio = float(q.std() / p.detach().std())
            if not 0.6 < ratio < 1.6:
                raise WrongError(f"{name} spreads {ratio:.2f} times as wide as in the constructor")
        elif float(q.abs().max()) > 2 * float(p.detach().abs().max()) + 1e-9:
            raise WrongError(
                f"{name} reaches {float(q.abs().max()):.3g}, in the constructor {float(p.detach().abs().max()):.3g}"
            )


@run("frozen_blocks: a weight shared with the embedding", MEASURE, 11)
def _() -> None:
    model = trained(Tied)
    with left_as_found(model):
        twin: Any = frozen_blocks(model, "layers.*")
    if not torch.equal(twin.stem.weight, model.stem.weight):  # type: ignore[arg-type, union-attr]
        raise WrongError("the embedding's weight was re-initialised")
    if not twin.stem.weight.requires_grad:
        raise WrongError("the embedding's weight was frozen")
