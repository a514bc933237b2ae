"""Odd networks that a sceptical outsider brought: dataclasses, caches, norms outside of the blocks, writes after the last block,
samples that see only those before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from tests.trust.odd_grammar import D, Spec, build, sense
from tests.trust.odd_parts import Branch, Plain, Residual, Tokens, Zoo, plain_net, seeded, token_net, tokens, vectors
from tests.trust.oracle import EITHER, MARK, MEASURE, REFUSE, WrongError, left_as_found
from torch import Tensor, nn

from creditscope import Monitor, credit_from_grads, diagnose, find_blocks, frozen_blocks

ZOO = Zoo()
add, run = ZOO.add, ZOO.run


# ---- where the state stands ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    h: Tensor
    step: int = 0


class OfRecords(Plain):
    """Blocks take and return dataclasses."""

    class Block(Residual):
        def forward(self, given: Record) -> Record:  # type: ignore[override]
            return Record(given.h + self.branch(given.h), given.step + 1)

    def __init__(self) -> None:
        super().__init__([self.Block() for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        given = Record(self.tape(self.stem(x)))
        for layer in self.layers:
            given = layer(given)
            given = replace(given, h=self.tape(given.h))
        return self.head(self.norm(given.h))


add("blocks take and return dataclasses", lambda: plain_net(OfRecords))
add("blocks take and return dataclasses, not named", lambda: plain_net(OfRecords, blocks=None), MEASURE, 8)


class Thrice(Plain):
    """layer(query, key, value) with one tensor for all."""

    class Block(Residual):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # type: ignore[override]
            return q + self.branch(k) * torch.sigmoid(v)

    def __init__(self) -> None:
        super().__init__([self.Block() for _ in range(4)])

    def step(self, k: int, h: Tensor) -> Tensor:
        return self.layers[k](h, h, h)


class WithItsWeights(Thrice):
    """A block is given the state and something that the model makes of it."""

    class Block(Residual):
        def forward(self, h: Tensor, gate: Tensor) -> Tensor:  # type: ignore[override]
            return h + gate * self.branch(h)

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(D, D)

    def step(self, k: int, h: Tensor) -> Tensor:
        return self.layers[k](h, torch.sigmoid(self.gate(h)))


add("query, key and value are one tensor", lambda: plain_net(Thrice))
add("a gate made of the state goes with it", lambda: plain_net(WithItsWeights))


add("one block whose stream is the second argument", lambda: build(sense(Spec(depth=1, signature="second"))), EITHER,
    4, says="several tensors")  # fmt: skip


class NormsOutside(Plain):
    """h + branch(norm_l(h)): what enters a block is not the stream."""

    def __init__(self) -> None:
        super().__init__([Branch() for _ in range(4)])
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(4))

    def step(self, k: int, h: Tensor) -> Tensor:
        return h + self.layers[k](self.norms[k](h))


add("norms before the blocks, in the model", lambda: plain_net(NormsOutside), REFUSE, 4, says="not the stream")


class WritesAfter(Plain):
    """The readout works in place on h_L."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        for layer in self.layers:
            h = self.tape(layer(h))
        h.mul_(2.0).add_(0.3)
        return self.head(torch.tanh(h))


add("the readout writes to h_L", lambda: plain_net(WritesAfter), MEASURE, 6)
add("the readout writes to h_L, at level full", lambda: plain_net(WritesAfter, options={"level": "full"}), MEASURE, 6)


class TimeFirst(Tokens):
    """[T, B, d]; as many samples as tokens."""

    class Block(Residual):
        def forward(self, h: Tensor) -> Tensor:
            u = self.linear(self.norm(h))
            return h + torch.tanh(u + 0.5 * u.mean(0, keepdim=True))

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(self.Block() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x).transpose(0, 1))
        for layer in self.layers:
            h = self.tape(layer(h))
        return self.head(h[-1])


def two_tokens() -> list[tuple[Tensor, Tensor]]:
    return [(x[:, :2], y) for x, y in tokens((2, 2))]


add("[T, B, d] with two samples of two tokens", lambda: token_net(TimeFirst, "last", batches=two_tokens(),
    batch_dim=1), MEASURE, 7)  # fmt: skip


class OfFive(TimeFirst):
    """Batches of five samples only, each of five tokens."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) != 5:
            raise ValueError("a batch has five samples")
        return super().forward(x)


class SamplesOfFive(Tokens):
    """The same with samples first."""

    def forward(self, x: Tensor) -> Any:
        if len(x) != 5:
            raise ValueError("a batch has five samples")
        return super().forward(x)


class Windows(Tokens):
    """[B W, 3, d]: windows of three tokens, as many as samples are looked at."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x).reshape(-1, 3, D)
        for layer in self.layers:
            h = layer(h)
        return self.head(h.reshape(len(x), -1, D).mean(1))


def of_length(n: int, size: int) -> list[tuple[Tensor, Tensor]]:
    return [(x.repeat(1, 3, 1)[:, :n], y) for x, y in tokens((size, size))]


add("[T, B, d], batches of one size, as many samples as tokens", lambda: token_net(OfFive, "last", batches=of_length(5, 5),
    batch_dim=1), MEASURE, 7)  # fmt: skip
add("batches of one size, as many samples as tokens", lambda: token_net(lambda: SamplesOfFive(lambda h: h[:, 2]), "flatten",
    batches=of_length(5, 5)), MEASURE, 7)  # fmt: skip
for _size in (3, 6):
    add(f"windows of three tokens in batches of {_size}", lambda size=_size: token_net(Windows, batches=of_length(6, size)),  # type: ignore[misc]
        REFUSE, 7, says="no batch dimension")  # fmt: skip


class Keeping(Plain):
    """A hook of the user's keeps the states, and the head takes their mean (as Hugging Face sums layers)."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Tensor] = []
        for layer in self.layers:
            layer.register_forward_hook(self.keep)

    def keep(self, module: nn.Module, args: Any, out: Tensor) -> Tensor | None:
        if self.tape.on:
            out = self.tape(out)
        self.kept.append(out)
        return out if self.tape.on else None

    def forward(self, x: Tensor) -> Tensor:
        self.kept.clear()
        h = self.tape(self.stem(x))
        for layer in self.layers:
            h = layer(h)
        return self.head(self.norm(torch.stack(self.kept).mean(0)))


add("a hook keeps the states for the head", lambda: plain_net(Keeping, marks=("beside",)), MARK, 3)


# ---- samples that see each other -----------------------------------------------------------------------------------


class Before(Residual):
    """A sample sees those before it in the batch; the first one sees none."""

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(h + 0.3 * (h.cumsum(0) - h))


class Capacity(Residual):
    """The first two samples of a batch get the branch."""

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.cat([self.branch(h[:2]), torch.zeros_like(h[2:])])


for _kind, _block in (("samples see those before them", Before), ("an expert with room for two samples", Capacity)):
    add(
        _kind,
        lambda block=_block: plain_net(  # type: ignore[misc]
            lambda: Plain([block() for _ in range(4)]), marks=("dependent",)
        ),
        MARK,
        7,
    )


# ---- left as found ---------------------------------------------------------------------------------------------------


class Remembering(Plain):
    """Counts, caches and installs a hook in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.log, self.cache, self.plain = 0, [0.0], {"first": 1.0}, torch.zeros(D)

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        self.log.append(float(x.sum()))
        self.cache[str(len(x))] = 2.0
        self.plain.add_(1.0)
        if not hasattr(self, "installed"):
            self.installed = self.layers[0].register_forward_hook(lambda *_: None)
        return super().forward(x)


@run("counters, caches, lists and hooks of a forward pass", MEASURE, 6)
def _() -> None:
    model = seeded(Remembering)
    with left_as_found(model):
        diagnose(model, vectors(), blocks="layers.*")
    found = (model.calls, model.log, model.cache, float(model.plain.abs().sum()), len(model.layers[0]._forward_hooks))
    if found != (0, [0.0], {"first": 1.0}, 0.0, 0):
        raise WrongError(f"the model remembers the measurement: {found}")


class Cache:
    """Keys of a run, to which every block appends; no tensor that a look at the arguments would find."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []


class Caching(Tokens):
    class Block(Residual):
        def forward(self, h: Tensor, mask: Tensor, cache: Cache) -> Tensor:  # type: ignore[override]
            cache.keys.append(h)
            if len(cache.keys) > 4:
                raise RuntimeError("the cache of another run")
            return h + self.branch(h) * mask.unsqueeze(2)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(self.Block(mixes=True) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        mask, cache, h = (x[:, :, 0] > 0).to(x), Cache(), self.tape(self.stem(x))
        for layer in self.layers:
            h = self.tape(layer(h, mask, cache))
        return self.head(h[:, 0])


add(
    "a mask beside the stream and a cache that blocks write to", lambda: token_net(Caching, marks=("beside",)), MARK, 10
)


# ---- one line ----------------------------------------------------------------------------------------------------------


class KeepsGraph(Plain):
    def forward(self, x: Tensor) -> Any:
        self.last = self.stem(x)
        return super().forward(x)


def kept() -> nn.Module:
    model: nn.Module = seeded(KeepsGraph)
    model(vectors()[0][0])
    return model


def refused(name: str, says: str, what: Callable[[], Any]) -> None:
    run(name, REFUSE, 10, says=says)(what)


def _linear(m: nn.Linear) -> nn.Linear:
    return nn.Linear(m.in_features, m.out_features)


refused("frozen_blocks of a model that keeps a graph", "cannot be copied", lambda: frozen_blocks(kept(), "layers.*"))
refused("credit_from_grads of a model that keeps a graph", "cannot be copied", lambda: credit_from_grads(kept(),
    to_exact={nn.Linear: _linear}))  # fmt: skip
refused("frozen_blocks of a lazy model", "lazy", lambda: frozen_blocks(nn.Sequential(nn.LazyLinear(3)), "0"))


class Raising(Plain):
    def forward(self, x: Tensor) -> Any:
        if float(x.mean()) > 5:
            raise KeyError("odd\nbatch")
        return super().forward(x)


def shifted(by: float) -> list[tuple[Tensor, Tensor]]:
    (x, y), (z, w) = vectors()
    return [(x, y), (z + by, w)]


refused("a model that fails on the second batch", "cannot run", lambda: diagnose(seeded(Raising), shifted(9.0),
    blocks="layers.*"))  # fmt: skip


class ReversedOrder(Plain):
    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        for layer in self.layers if float(x.mean()) < 5 else reversed(list(self.layers)):
            h = self.tape(layer(h))
        return self.head(self.norm(h))


refused("the order of the blocks changes with the data", "order", lambda: diagnose(seeded(ReversedOrder),
    shifted(9.0), blocks="layers.*"))  # fmt: skip
refused(
    "a loss that is a number",
    "loss_fn",
    lambda: diagnose(seeded(Plain), vectors(), blocks="layers.*", loss_fn=lambda logits, y: 1.0),  # type: ignore[arg-type,return-value]
)
refused("a loss without a gradient", "loss_fn", lambda: diagnose(seeded(Plain), vectors(), blocks="layers.*",
    loss_fn=lambda logits, y: logits.detach().square().sum(1)))  # fmt: skip
refused("read='last' of a vector", "does not fit", lambda: diagnose(seeded(Plain), vectors(), blocks="layers.*",
    read="last"))  # fmt: skip
refused("read='mean' of a head that reads the first token", "does not hold", lambda: diagnose(seeded(Tokens), tokens(),
    blocks="layers.*", read="mean"))  # fmt: skip


class ByVector(Plain):
    def __init__(self) -> None:
        super().__init__()
        n = sum(p.numel() for p in self.layers.parameters())
        nn.utils.vector_to_parameters(torch.randn(n), self.layers.parameters())


class BySetattr(Plain):
    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            setattr(layer.linear, "weight", nn.Parameter(5 * torch.randn(D, D)))  # noqa: B010


for _made in (ByVector, BySetattr):
    refused(
        f"frozen_blocks: weights set in the constructor ({_made.__name__})",
        "sets weights",
        lambda made=_made: frozen_blocks(seeded(made), "layers.*"),  # type: ignore[misc]
    )


# ---- other losses, growing networks ---------------------------------------------------------------------------------


@run("one logit per sample, binary cross-entropy", MEASURE, 10)
def _() -> None:
    class Binary(Plain):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x)[:, 0]

    batches = [(x, (y % 2).float()) for x, y in vectors()]
    bce = nn.BCEWithLogitsLoss(reduction="none")
    model = seeded(Binary)
    report = diagnose(model, batches, blocks="layers.*", loss_fn=bce)
    total, n = 0.0, 0
    for x, y in batches:
        h = model.stem(x)
        for layer in model.layers:
            h = layer(h)
        h = h.detach().requires_grad_()
        bce(model.head(model.norm(h))[:, 0], y).sum().backward()
        assert h.grad is not None
        total, n = total + float(h.grad.norm(dim=1).sum()), n + len(y)
    if abs(report.facts.reference.per_sample[-1] - total / n) > 1e-5 * total / n:
        raise WrongError(f"g_L = {report.facts.reference.per_sample[-1]}, in truth {total / n}")


@run("Monitor: blocks that were found, and then one more", MEASURE, 1, 8)
def _() -> None:
    model = seeded(Plain)
    monitor = Monitor(model, vectors())
    monitor.step(0)
    model.layers.append(seeded(Residual))
    monitor.step(1)
    depths = [len(line["h"]) - 1 for line in monitor.history]
    if depths != [4, 5] or find_blocks(model, vectors()[0]) != [f"layers.{k}" for k in range(5)]:
        raise WrongError(f"depths {depths}")
