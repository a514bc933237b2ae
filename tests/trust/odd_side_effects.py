"""Networks, loaders and rules that change when they are looked at (6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from tests.trust.odd_grammar import IN, D
from tests.trust.odd_parts import Plain, Residual, Tokens, Zoo, plain_net, seeded, tokens, vectors
from tests.trust.oracle import (
    MEASURE,
    REFUSE,
    Batch,
    Network,
    WrongError,
    by_tape,
    check,
    compare,
    credit_by_class,
    expected,
    left_as_found,
    same,
)
from torch import Tensor, nn
from torch.ao.quantization import FusedMovingAvgObsFakeQuantize
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.dlpack import from_dlpack

from creditscope import Monitor, diagnose

ZOO = Zoo()
add, run = ZOO.add, ZOO.run


class LoRA(nn.Linear):
    """Merges its low-rank part into the weight in eval(), and takes it out again in train()."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__(n, m)
        self.down, self.up = nn.Parameter(torch.randn(2, n) * 0.3), nn.Parameter(torch.randn(m, 2) * 0.3)
        self.merged = False

    def train(self, mode: bool = True) -> LoRA:
        if mode == self.merged:
            with torch.no_grad():
                self.weight += (-1.0 if mode else 1.0) * (self.up @ self.down)
            self.merged = not mode
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return out if self.merged else out + x @ self.down.t() @ self.up.t()


def lora(kind: type[LoRA] = LoRA) -> nn.Module:
    model = Plain(depth=3)
    for layer in model.layers:
        layer.linear = kind(D, D)
    return model


class Counting(Residual):
    """Writes buffers in every forward pass, eval mode or not."""

    calls: Tensor
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(D))

    def forward(self, h: Tensor) -> Tensor:
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0).to(self.mean)
        return super().forward(h)


add("LoRA that merges in eval()", lambda: plain_net(lora), MEASURE, 6)
add("LoRA, merged already", lambda: plain_net(lambda: lora().eval()), MEASURE, 6)
add("buffers written in eval mode", lambda: plain_net(lambda: Plain([Counting() for _ in range(3)])), MEASURE, 6)


class Switch:
    """Stands beside the network: what it says is not put back with the modules."""

    merged = False


class SwitchedLoRA(LoRA):
    """Keeps whether it is merged in a switch that only its own train() turns."""

    merged = property(lambda self: self.switch.merged, lambda self, merged: setattr(self.switch, "merged", merged))

    def __init__(self, n: int, m: int) -> None:
        self.__dict__["switch"] = Switch()
        super().__init__(n, m)


@run("LoRA with a switch beside it", MEASURE, 6)
def _() -> None:
    model, batches = seeded(lambda: lora(SwitchedLoRA)), vectors()
    model.train()
    before = model(batches[0][0])
    diagnose(model, batches, blocks="layers.*")
    if not torch.equal(model(batches[0][0]), before):
        raise WrongError("the network is left merged")


@run("Monitor: LoRA goes on learning", MEASURE, 6)
def _() -> None:
    def learnt(watched: bool) -> nn.Module:
        model, batches = seeded(lora), vectors()
        monitor = Monitor(model, batches, blocks="layers.*") if watched else None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.train()
        for step in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
            optimizer.step()
            if monitor is not None:
                monitor.step(step)
        return model

    alone, beside = learnt(False), learnt(True)
    for (name, p), q in zip(alone.named_parameters(), beside.parameters(), strict=True):
        if not torch.equal(p, q):
            raise WrongError(f"the Monitor changes the training: {name}")


def loader(shuffle: bool) -> tuple[DataLoader[Any], torch.Generator, list[Batch]]:
    (x, y), *_ = vectors((23,))
    own = torch.Generator().manual_seed(5)
    made: DataLoader[Any] = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=shuffle, generator=own)
    return made, own, [(x, y)]


for _shuffle in (True, False):

    def _with_loader(shuffle: bool = _shuffle) -> Network:
        made, own, batches = loader(shuffle)
        return plain_net(batches=batches, given=made, watched=(own,))

    add(f"DataLoader with its own generator, shuffle={_shuffle}", _with_loader, MEASURE, 6)


@run("Monitor: DataLoader with its own generator", MEASURE, 6)
def _() -> None:
    made, own, batches = loader(True)
    net = plain_net(batches=batches)
    with left_as_found(net.model, own):
        monitor = Monitor(net.model, made, blocks="layers.*")
        monitor.step(0)
    hold_free = expected(by_tape(net.model, batches), "vector", 0, None)
    same("h", monitor.history[-1]["h"], hold_free["h"], 1e-4)


def spoiling(hiddens: Sequence[Tensor], logits: Tensor, y: Tensor) -> list[Tensor]:
    """Computes a fixed credit, and writes into all that it was given."""
    found = credit_by_class()(hiddens, logits, y)
    for t in (*hiddens, logits):
        t.mul_(0).add_(1)
    y.fill_(0)
    return found


@run("a credit function that writes into its tensors", MEASURE, 6)
def _() -> None:
    net = plain_net()
    truth = by_tape(net.model, net.batches)
    with left_as_found(net.model, net.batches):
        report = diagnose(net.model, net.batches, blocks=net.blocks, credit=spoiling)
    compare(report, net, truth, credit_by_class())


@run("a credit function that writes into the weights", REFUSE, 6)
def _() -> None:
    net = plain_net()

    def credit(hiddens: Sequence[Tensor], logits: Tensor, y: Tensor) -> list[Tensor]:
        with torch.no_grad():
            next(net.model.parameters()).add_(1.0)
        return credit_by_class()(hiddens, logits, y)

    diagnose(net.model, net.batches, blocks=net.blocks, credit=credit)


def half_frozen() -> nn.Module:
    model = Plain()
    for k, p in enumerate(model.parameters()):
        p.requires_grad_(k % 2 == 0)
        p.grad = torch.ones_like(p) if k % 3 == 0 and p.requires_grad else None
    model.layers[1].eval()
    return model


add("half of it frozen, modes mixed, gradients present", lambda: plain_net(half_frozen), MEASURE, 6)
add("everything frozen", lambda: plain_net(lambda: Plain().requires_grad_(False)), MEASURE, 6)
add("dropout in train mode", lambda: plain_net(lambda: Plain([nn.Sequential(Residual(),
    nn.Dropout(0.5)) for _ in range(3)])), MEASURE, 6)  # fmt: skip


@run("called under no_grad", MEASURE, 6, 10)
def _() -> str:
    with torch.no_grad():
        return _under(plain_net())


def _under(net: Network) -> str:
    with torch.enable_grad():
        truth = by_tape(net.model, net.batches)
    return check(Network(net.model, net.batches, net.blocks, passes=lambda *_: truth))


class Noisy(Residual):
    """Draws in eval mode too."""

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(h) + 0.3 * torch.randn_like(h)


add("noise in eval mode", lambda: plain_net(lambda: Plain([Noisy() for _ in range(3)])), REFUSE, 6)


# ---- weights that `train` writes to where torch does not see it -----------------------------------------------------


def _by_numpy(layer: nn.Linear) -> None:
    layer.weight.detach().numpy()[:] *= 0.9


def _by_array(layer: nn.Linear) -> None:
    np.asarray(layer.weight.detach())[:] *= 0.9


def _by_dlpack(layer: nn.Linear) -> None:
    from_dlpack(layer.weight.detach()).mul_(0.9)


def _by_kept_array(layer: nn.Linear) -> None:
    cast(Any, layer).array[:] *= 0.9


def _turned(layer: nn.Linear) -> None:
    layer.weight.data = layer.weight.data.t()


def _other_parameter(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(layer.weight.detach() * 0.9)


class Writing(Residual):
    """Changes its weight whenever a mode is set."""

    def __init__(self, write: Callable[[nn.Linear], None]) -> None:
        super().__init__()
        self.write = write
        self.linear.array = self.linear.weight.detach().numpy()  # type: ignore[assignment]

    def train(self, mode: bool = True) -> Writing:
        super().train(mode)
        self.write(self.linear)
        return self


for _write in (_by_numpy, _by_array, _by_dlpack, _by_kept_array, _turned, _other_parameter):
    for _training in (True, False):

        def _written(write: Callable[[nn.Linear], None] = _write, training: bool = _training) -> None:
            model, batches = seeded(lambda: Plain([Writing(write) for _ in range(3)])).train(training), vectors()
            with left_as_found(model, batches):
                diagnose(model, batches, blocks="layers.*")

        run(f"train() writes to a weight: {_write.__name__[1:]}, in train mode: {_training}", MEASURE, 6)(_written)


class Renorming(Plain):
    """An embedding that shortens its vectors in the forward pass."""

    def __init__(self) -> None:
        super().__init__(depth=3)
        self.table = nn.Embedding(20, IN, max_norm=0.5)

    def forward(self, x: Tensor) -> Any:
        return super().forward(self.table((x * 5).long().abs().clamp(max=19)).mean(1))


@run("an embedding with max_norm", MEASURE, 6)
def _() -> None:
    model, batches = seeded(Renorming), vectors()
    with left_as_found(model, batches):
        diagnose(model, batches, blocks="layers.*")


class Late(Plain):
    """Makes a part of itself in its first forward pass."""

    def __init__(self, make: Callable[[nn.Module, Tensor], None]) -> None:
        super().__init__(depth=3)
        self.make = make

    def read(self, h: Tensor) -> Tensor:
        if not hasattr(self, "late"):
            self.make(self, h)
        return h * self.late if isinstance(self.late, Tensor) else self.late(h)


def _buffer(model: nn.Module, h: Tensor) -> None:
    model.register_buffer("late", h.new_full((D,), 0.3))


def _parameter(model: nn.Module, h: Tensor) -> None:
    model.late = nn.Parameter(h.new_full((D,), 0.3))


def _module(model: nn.Module, h: Tensor) -> None:
    model.late = nn.Identity()


for _made in (_buffer, _parameter, _module):
    add(f"a {_made.__name__[1:]} made in the first pass", partial(plain_net, partial(Late, _made)), MEASURE, 6)


class Buffered(Residual):
    """Gives its state back in memory of its own, the same at every call."""

    def __init__(self, mixes: bool = False, by_data: bool = False) -> None:
        super().__init__(mixes)
        self.by_data = by_data
        self.memory: dict[Any, Tensor] = {}

    def forward(self, h: Tensor) -> Tensor:
        out = super().forward(h)
        memory = self.memory.setdefault((h.shape, h.dtype), torch.empty_like(out).detach())
        if self.by_data:
            memory.copy_(out.detach())
            out.data = memory
            return out
        if memory.requires_grad:
            memory = self.memory[h.shape, h.dtype] = memory.detach()
        return memory.copy_(out)


for _by_data in (False, True):
    for _n in (2, 3, 8):

        def _buffered(by_data: bool = _by_data, n: int = _n) -> Network:
            model = seeded(lambda: Tokens(lambda h: h.mean(1)))
            model.layers = nn.ModuleList([Buffered(True, by_data) for _ in range(3)])
            return Network(model, tokens((n, n)), "layers.*", read="mean")

        add(f"states in memory of their own, by data: {_by_data}, {_n} samples", _buffered, MEASURE, 6)


class Quantised(Residual):
    """Fake quantisation as torch prepares it: its observers write to their buffers unseen, in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.fake = FusedMovingAvgObsFakeQuantize()

    def forward(self, h: Tensor) -> Tensor:
        return h + self.fake(self.branch(h))


def quantised(observes: bool) -> nn.Module:
    """After a batch of training: the ranges are known."""
    model = Plain([Quantised() for _ in range(3)])
    model(vectors()[0][0])
    if not observes:
        model.apply(lambda m: m.disable_observer() if isinstance(m, FusedMovingAvgObsFakeQuantize) else None)
    return model


for _observes in (True, False):
    quantised_net = partial(plain_net, partial(quantised, _observes), passes=lambda *_: [])
    add(f"fake quantisation, observers on: {_observes}", quantised_net, REFUSE, 6, 5)


class Output(Plain):
    """Gives its logits back in memory of its own."""

    def __init__(self) -> None:
        super().__init__(depth=3)
        self.memory: dict[Any, Tensor] = {}

    def forward(self, x: Tensor) -> Any:
        out = super().forward(x)
        memory = self.memory.setdefault((out.shape, out.dtype), torch.empty_like(out).detach())
        memory.copy_(out.detach())
        out.data = memory
        return out


for _n in (2, 3, 8):
    add(f"logits in memory of their own, {_n} samples", partial(plain_net, Output, batches=vectors((_n,))), MEASURE, 6)
