"""Inputs and answers of odd forms; weights that a network writes to by itself; parts that are compiled or quantised."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from tests.trust.odd_grammar import IN, C, D
from tests.trust.odd_parts import Plain, Residual, Zoo, plain_net, seeded, vectors
from tests.trust.oracle import (
    MEASURE,
    REFUSE,
    Batch,
    Network,
    WrongError,
    by_tape,
    compare,
    credit_by_class,
    left_as_found,
)
from torch import Tensor, nn

from creditscope import diagnose, frozen_blocks

ZOO = Zoo()
add, run = ZOO.add, ZOO.run

# ---- weights to which the forward pass writes ----------------------------------------------------------------------


class Bounded(Residual):
    """The norm of its weights is bounded in the forward pass, as in EEGNet."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def branch(self, h: Tensor) -> Tensor:
        w = self.linear.weight
        if self.how == "other data":
            w.data = torch.renorm(w.data, 2, 0, 0.3)
        elif self.how == "by data":
            w.data.clamp_(-0.1, 0.1)
        elif self.how == "in place":
            with torch.no_grad():
                w.clamp_(-0.1, 0.1)
        elif self.how == "rounded":
            with torch.no_grad():
                w.div_(w.norm(dim=1, keepdim=True))
        else:
            with torch.no_grad():
                w.mul_(0.99)
        return super().branch(h)


def bounded(how: str) -> Network:
    return plain_net(lambda: Plain([Bounded(how) for _ in range(3)]))


for _how in ("other data", "by data", "in place", "rounded"):
    add(f"weights bounded in the forward pass: {_how}", partial(bounded, _how), MEASURE, 6)
add("weights that shrink in the forward pass", partial(bounded, "shrunk"), REFUSE, 6, says="the model|own logits|twice")


@run("weights that shrink in the forward pass are left as found", MEASURE, 6)
def _() -> None:
    net = bounded("shrunk")
    with left_as_found(net.model, net.batches):
        try:
            diagnose(net.model, net.batches, blocks="layers.*")
        except ValueError as error:
            if "credit rule" in str(error):
                raise WrongError(f"the rule is blamed, and there is none: {error}") from error


# ---- what torch does not let hooks or gradients through -----------------------------------------------------------


class InInference(Plain):
    def forward(self, x: Tensor) -> Any:
        with torch.inference_mode():
            return super().forward(x)


class StemInInference(Plain):
    def forward(self, x: Tensor) -> Any:
        with torch.inference_mode():
            h = self.stem(x)
        for layer in self.layers:
            h = layer(h)
        return self.head(self.norm(h))


def refused(name: str, model: Callable[[], nn.Module], says: str, *classes: int) -> None:
    """Of which the oracle itself can say nothing."""

    @run(name, REFUSE, *classes, says=says)
    def _() -> None:
        diagnose(seeded(model), vectors(), blocks="layers.*")


refused("a forward pass in inference mode", InInference, "no gradient leads", 5)
refused("a stem in inference mode", StemInInference, "no gradient leads", 5)


class Decorated(Plain):
    @torch.compile(backend="eager")
    def forward(self, x: Tensor) -> Any:
        return super().forward(x)


def _decorated() -> Network:
    """As it was written, for the oracle: the decorator changes no number."""

    def passes(model: Any, batches: Any) -> Any:
        plain = seeded(Plain)
        plain.load_state_dict(model.state_dict())
        return by_tape(plain, batches)

    return plain_net(Decorated, passes=passes)


add("a forward pass under @torch.compile", _decorated, MEASURE, 8)


def _scripted() -> Network:
    net = plain_net(lambda: Plain(depth=3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted: Any = torch.jit.script(nn.Sequential(nn.Linear(D, D), nn.Tanh()))
    net.model.get_submodule("layers").register_module("1", scripted)
    return net


add("a block in TorchScript", _scripted, REFUSE, 8, says="TorchScript")


def _quantised() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: nn.Module = torch.ao.quantization.quantize_dynamic(Plain(depth=3).eval(), {nn.Linear}, torch.qint8)
    return model


if {"fbgemm", "x86"} & {*torch.backends.quantized.supported_engines}:
    refused("layers quantised dynamically", _quantised, "no gradient of the loss arrives", 5)

# ---- forms of inputs ----------------------------------------------------------------------------------------------


def given(form: Any, **known: Any) -> Network:
    """The plain network, whose batches creditscope gets in another form."""
    net = plain_net(lambda: Plain(depth=3), **known)
    net.given = [form(x, y) for x, y in net.batches]
    return net


def labels_as(dtype: str, x: Tensor, y: Tensor) -> Any:
    return x, y.numpy().astype(dtype)


def inputs_as(dtype: str, x: Tensor, y: Tensor) -> Any:
    return x.numpy().astype(dtype), y


add("arrays in reverse order", lambda: given(lambda x, y: (x.numpy()[::-1, ::-1][::-1, ::-1], y.numpy()[::-1][::-1])))
add(
    "arrays with bytes in the other order",
    lambda: given(lambda x, y: (x.numpy().astype(">f4"), y.numpy().astype(">i8"))),
)
for _dtype in ("uint16", "uint32", "uint64"):
    add(f"labels of {_dtype}", partial(given, partial(labels_as, _dtype)))
for _dtype in ("object", "longdouble", "U1"):
    add(
        f"an array of {_dtype}",
        partial(given, partial(inputs_as, _dtype)),
        REFUSE,
        9,
        says="which torch cannot read",
    )
add("a mapping of another class", lambda: given(lambda x, y: (UserDict(x=x), y)))


@dataclass
class Sample:
    x: Tensor


class OfSample(Plain):
    def forward(self, given: Any) -> Any:
        return super().forward(given.x)


for _kind in (Sample, SimpleNamespace):

    @run(f"inputs in a {_kind.__name__}", REFUSE, 9, says="of which no samples can be taken")
    def _(kind: Any = _kind) -> None:
        batches = [(kind(x=x), y) for x, y in vectors((3, 3, 3))]
        diagnose(seeded(lambda: OfSample(depth=3)), batches, blocks="layers.*")


class Scaled(Plain):
    def forward(self, scale: Any, x: Tensor, names: Any = None) -> Any:  # type: ignore[override]
        return super().forward(x * scale)


def scaled(*forms: Any) -> Network:
    net = plain_net(lambda: Scaled(depth=3))
    net.batches = [((forms[k % len(forms)], x, ["a"] * len(x)), y) for k, (x, y) in enumerate(vectors())]
    return net


add("a single number before the inputs", lambda: scaled(torch.tensor(1.5)))
add("a number of Python that changes with the batch", lambda: scaled(1.0, 2.0, 0.5))


class Graph(Residual):
    def forward(self, h: Tensor, edges: Tensor) -> Tensor:  # type: ignore[override]
        return h + torch.tanh(edges @ self.linear(h))


class OfGraph(Plain):
    def forward(self, x: Tensor, edges: Tensor) -> Any:  # type: ignore[override]
        h = self.tape(self.stem(x))
        for layer in self.layers:
            h = self.tape(layer(h, edges))
        return self.head(self.norm(h))


@run("a graph by a sparse matrix", MEASURE, 7)
def _() -> None:
    """One graph to a batch, its nodes the samples."""
    gen = torch.Generator().manual_seed(0)
    batches: list[Batch] = [
        ((x, torch.rand(len(x), len(x), generator=gen).round().to_sparse()), y) for x, y in vectors()
    ]
    net = plain_net(lambda: OfGraph([Graph() for _ in range(3)]), batches=batches, marks=("dependent",))
    report = diagnose(net.model, batches, blocks=net.blocks, credit=credit_by_class())
    compare(report, net, by_tape(net.model, batches), credit_by_class())


add("sparse inputs", lambda: given(lambda x, y: (x.to_sparse(), y)), REFUSE, 9, says="give dense tensors")

# ---- functions that hold a module ------------------------------------------------------------------------------------


def _wrapped() -> nn.Module:
    """A forward pass that was replaced by a function, as is done to scale or to log it."""
    model = Plain(depth=3)
    for layer in model.layers:
        own = layer.forward
        layer.forward = lambda h, own=own: 1.1 * own(h)
    return model


@run("a null whose blocks would run with the weights of the network", REFUSE, 11, says="holds modules of the original")
def _() -> None:
    frozen_blocks(seeded(_wrapped), blocks="layers.*", seed=1)


@run("a forward pass replaced by a function", MEASURE, 11)
def _() -> None:
    diagnose(seeded(_wrapped), vectors(), blocks="layers.*")


# ---- forms of credit and of answers ----------------------------------------------------------------------------------


class Pixels(nn.Module):
    """A class for every pixel: logits [B, C, H, W]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, D, 1), nn.Conv2d(D, C, 1)
        self.layers = nn.ModuleList(nn.Conv2d(D, D, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for layer in self.layers:
            h = h + torch.tanh(layer(h))
        return self.head(h)


def pixels() -> list[Batch]:
    """As many pixels in a row as classes."""
    return [(x, (2 * x[:, 0]).long().abs().clamp(max=C - 1)) for x, _ in vectors(shape=(3, C, C))]


@run("a class for every pixel, of a square of the size of the classes", REFUSE, 9, says="classes last or")
def _() -> None:
    diagnose(seeded(Pixels), pixels(), blocks="layers.*")


@run("a class for every pixel, with a loss of the user's", MEASURE, 9)
def _() -> None:
    def loss(logits: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(logits, y, reduction="none").mean((1, 2))

    facts = diagnose(seeded(Pixels), pixels(), blocks="layers.*", loss_fn=loss).facts
    if facts.accuracy is not None:
        raise WrongError(f"accuracy {facts.accuracy}, of classes that stand nobody knows where")


for _name, _form in (("complex", lambda h: h + 1j), ("sparse", Tensor.to_sparse)):

    @run(f"a credit that is {_name}", REFUSE, 9, says="return real numbers in dense tensors")
    def _(form: Any = _form) -> None:
        diagnose(seeded(Plain), vectors(), blocks="layers.*", credit=lambda hiddens, *_: [form(h) for h in hiddens])


class FeaturesFirst(Plain):
    def forward(self, x: Tensor) -> Any:
        h = self.stem(x)
        for layer in self.layers:
            h = layer(h)
        return h, self.head(self.norm(h))


@run("features before the logits: the report says what it takes", MEASURE, 9)
def _() -> None:
    report = diagnose(seeded(FeaturesFirst), vectors(), blocks="layers.*")
    if f"[{D}] per sample, is taken as logits, not [{C}]" not in str(report):
        raise WrongError("no word about which tensor is taken")


@run("logits with further dimensions: the line speaks of their shape", REFUSE, 9, says="labels have shape")
def _() -> None:
    model = nn.Sequential(nn.Linear(IN, D), Residual(), Residual(), nn.Linear(D, C), nn.Unflatten(1, (C, 1, 1)))
    diagnose(model, vectors(), blocks=["1", "2"])


class Split(Plain):
    """Passes eight samples at a time through its blocks."""

    def forward(self, x: Tensor) -> Any:
        return torch.cat([super(Split, self).forward(part) for part in x.split(8)])


@run("a batch in parts", REFUSE, 8, says="more than 4 times|rows for a batch")
def _() -> None:
    diagnose(seeded(Split), vectors((16, 16)), blocks="layers.*")


class Sorted(Plain):
    """Puts its samples into another order and back, as packed sequences do."""

    def forward(self, x: Tensor) -> Any:
        order = x[:, 0].argsort()
        return super().forward(x[order])[order.argsort()]


@run("samples in another order inside", REFUSE, 7, says="is not the gradient")
def _() -> None:
    diagnose(seeded(Sorted), vectors(), blocks="layers.*")


@run("a report that is printed draws no random numbers", MEASURE, 6)
def _() -> None:
    code = (
        "import random; from creditscope import diagnose; from tests.trust.odd_parts import Plain, vectors\n"
        "report = diagnose(Plain(), vectors(), blocks='layers.*')\n"
        "before = random.getstate(); str(report); assert random.getstate() == before"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise WrongError(done.stderr[-300:])
