"""Bad data (9); networks and rules that break when they are run in another way than their own (10)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from tests.trust.odd_grammar import IN, C, D, T
from tests.trust.odd_parts import Plain, Residual, Zoo, plain_net, seeded, tokens, vectors
from tests.trust.oracle import (
    EITHER,
    MARK,
    MEASURE,
    REFUSE,
    Batch,
    Case,
    Network,
    Pass,
    WrongError,
    by_hooks,
    by_tape,
    credit_by_class,
    left_as_found,
)
from torch import Tensor, nn

from creditscope import diagnose

ZOO = Zoo()
add, run = ZOO.add, ZOO.run


# ---- 9: bad data --------------------------------------------------------------------------------------------------


def bad_data(value: float) -> None:
    """One bad input is not the network's fault: refused, or measured without a word of divergence."""
    net = plain_net()
    net.batches[0][0][3, 1] = value
    with left_as_found(net.model, net.batches):
        report = diagnose(
            net.model, net.batches, blocks="layers.*", headline_acc=0.5, frozen_baseline_acc=0.3, n_test=1000
        )
    if "diverged" in str(report):
        raise WrongError(f"one input of {value} makes a healthy network diverged")
    if not any("input" in w for w in report.verdict.warnings):
        raise WrongError("nothing is said of the bad input")


for _value in (math.nan, math.inf, -math.inf):
    ZOO.cases.append(Case(f"one input is {_value}", lambda value=_value: bad_data(value), EITHER, (9,)))  # type: ignore[misc]


@run("a weight is NaN: the network's fault", MEASURE, 9)
def _() -> None:
    net = plain_net()
    with torch.no_grad():
        net.model.layers[1].linear.weight[0, 0] = math.nan  # type: ignore[index, union-attr]
    report = diagnose(net.model, net.batches, blocks="layers.*")
    if report.checks["D1"].answer != "fail" or "diverged" not in str(report):
        raise WrongError("a network with NaN in its weights is not called diverged")


for _acc in (1.0, 0.0):

    @run(f"accuracy {_acc:g} on 20 samples decides nothing", MEASURE, 9)
    def _(acc: float = _acc) -> None:
        net = plain_net()
        report = diagnose(
            net.model, net.batches, blocks="layers.*", headline_acc=acc, frozen_baseline_acc=acc, n_test=20
        )
        if report.checks["D3"].answer == "fail":  # Wilson at p = 1, n = 20 reaches down to .84
            raise WrongError(f"D3 is definite with 20 samples: {report.checks['D3'].sentence}")


@run("three equal margins of rounded accuracies decide nothing", MEASURE, 9)
def _() -> None:
    net = plain_net()
    report = diagnose(
        net.model,
        net.batches,
        blocks="layers.*",
        headline_acc=[0.50, 0.51, 0.52],
        frozen_baseline_acc=[0.48, 0.49, 0.50],
    )
    if report.checks["D3"].answer in ("pass", "fail"):  # the margin is 2 pp, known to 1 pp
        raise WrongError(f"a margin of rounded numbers is definite: {report.checks['D3'].sentence}")


# ---- 10: raw exceptions -------------------------------------------------------------------------------------------


class Encoder(nn.Module):
    """torch's own encoder with a padding mask."""

    def __init__(self, norm_first: bool, nested: bool, masked_read: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(D, 2, 16, 0.1, batch_first=True, norm_first=norm_first)
        self.stem = nn.Linear(IN, D)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=nested)
        self.head, self.masked_read = nn.Linear(D, C), masked_read

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        h = self.encoder(self.stem(x), src_key_padding_mask=padding)
        if self.masked_read:
            real = (~padding).to(h.dtype).unsqueeze(-1)
            return self.head((h * real).sum(1) / real.sum(1))
        return self.head(h[:, 0])


def encoder_net(norm_first: bool, nested: bool, masked_read: bool = False) -> Network:
    batches: list[Batch] = []
    for x, y in tokens():
        lengths = torch.arange(len(x)) % 3 + T - 2
        batches.append(((x, torch.arange(T) >= lengths.unsqueeze(1)), y))
    return Network(
        seeded(lambda: Encoder(norm_first, nested, masked_read)),
        batches,
        "encoder.layers.*",
        passes=lambda model, given: by_hooks(model, given, [f"encoder.layers.{k}" for k in range(3)]),
        read="flatten" if masked_read else "cls",
        false_alarms="none",
    )


for _first in (True, False):
    for _nested in (True, False):
        add(
            f"nn.TransformerEncoder with padding, norm_first={_first} nested={_nested}",
            lambda first=_first, nested=_nested: encoder_net(first, nested),  # type: ignore[misc]
            MEASURE,
            10,
        )
add("nn.TransformerEncoder with padding, masked mean", lambda: encoder_net(False, False, True), MEASURE, 10, 7)


class Local(Plain):
    """Local learning: no gradient crosses the block boundaries."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def step(self, k: int, h: Tensor) -> Tensor:
        if self.how == "detach":
            return self.layers[k](h.detach())
        if self.how == "detach one" and k == 2:
            return self.layers[k](h.detach())
        with self._quiet(k):
            return self.layers[k](h)

    @contextlib.contextmanager
    def _quiet(self, k: int) -> Iterator[None]:
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not (self.how == "no_grad" or (self.how == "no_grad one" and k == 1))
        ):
            yield


for _how in ("detach", "detach one", "no_grad", "no_grad one"):
    add(
        f"local learning: {_how}",
        lambda how=_how: plain_net(lambda: Local(how)),  # type: ignore[misc]
        REFUSE,
        10,
        5,
        says="gradient|detach|no_grad",
    )


class DetachedInside(Residual):
    """The block detaches its branch's input: the branch gets no gradient, the skip does."""

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(h.detach())


add("a branch on a detached state", lambda: plain_net(lambda: Plain([DetachedInside() for _ in range(3)])), REFUSE, 5,
    10, says="gradient|detach")  # fmt: skip


class Depth(Plain):
    """The number of blocks that run depends on the batch."""

    def __init__(self, by: str) -> None:
        super().__init__(depth=6)
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        n = (len(x) % 3 + 3) if self.by == "size" else (3 + int(x.sum() > 0) * 3)
        for layer in list(self.layers)[:n]:
            h = self.tape(layer(h))
        return self.head(self.norm(h))


class EarlyExit(Plain):
    """Samples leave at different depths."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        leaves = torch.where(x[:, :1] > 0, 2, 4)
        for k, layer in enumerate(self.layers):
            h = self.tape(torch.where(leaves > k, layer(h), h))
        return self.head(self.norm(h))


CALLS = r"depth|not called|number of blocks|blocks? (ran|run|were|was)|calls"


def signed_batches() -> list[Batch]:
    (x, y), (u, v) = vectors((8, 8))
    return [(x.abs(), y), (-u.abs(), v)]


add("depth changes with the batch size", lambda: plain_net(lambda: Depth("size"), batches=vectors((9, 8))), REFUSE,
    10, says=CALLS)  # fmt: skip
add("depth changes with the data", lambda: plain_net(lambda: Depth("data"), batches=signed_batches()), REFUSE, 10,
    says=CALLS)  # fmt: skip
add("samples leave at different depths", lambda: plain_net(EarlyExit, marks=("beside",), false_alarms="none"), MARK,
    10, 4)  # fmt: skip


class Fixed(Plain):
    """A batch of 12 and no other."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(12, IN))


class Even(Plain):
    """Any even batch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(len(x) // 2, 2, IN).flatten(0, 1))


add("a fixed batch size", lambda: plain_net(Fixed, batches=vectors((12, 12))), MEASURE, 10)
add("a fixed batch size, not named", lambda: plain_net(Fixed, batches=vectors((12, 12)), blocks=None), EITHER, 10)


class Sizes(Plain):
    """Batches of some sizes."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, x: Tensor) -> Tensor:
        if len(x) not in self.sizes:
            raise ValueError(f"a batch of {len(x)} samples")
        return super().forward(x)


for _sizes in ((1, 8), (1, 3, 8), (3, 8), (1, 2, 4, 6, 8), (8,)):
    for _n in (2, 3, 8):
        if _n in _sizes:
            sized = partial(plain_net, partial(Sizes, *_sizes), batches=vectors((_n, _n)))
            add(f"batches of {_sizes} samples, given {_n}", sized, MEASURE, 10)
        else:

            def _other_size(sizes: tuple[int, ...] = _sizes, n: int = _n) -> None:
                diagnose(seeded(lambda: Sizes(*sizes)), vectors((n, n)), blocks="layers.*")

            run(f"batches of {_sizes} samples, given {_n}", REFUSE, 10, says="cannot run")(_other_size)


class Crowd(Plain):
    """Samples look at each other where there are more of them than a proof looks at."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def mixed(self, h: Tensor, where: str) -> Tensor:
        return h + 0.3 * h.flip(0) if where == self.where and len(h) > 3 else h

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.mixed(self.stem(x), "stem"))
        for layer in self.layers:
            h = self.tape(self.mixed(layer(h), "step"))
        return self.mixed(self.head(self.norm(h)), "head")


for _where in ("stem", "step", "head"):
    crowd = partial(plain_net, partial(Crowd, _where), batches=vectors((8, 8)), marks=("dependent",))
    add(f"samples look at each other from four on: {_where}", crowd, EITHER, 10)


class Tired(Plain):
    """Another network after so many calls."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, x: Tensor) -> Tensor:
        self.calls -= 1
        return super().forward(x if self.calls >= 0 else 2 * x)


for _calls in (2, 3, 4):
    tired = partial(plain_net, partial(Tired, _calls), batches=vectors((8, 8)))
    add(f"another network after {_calls} calls", tired, REFUSE, 10)

tired = partial(plain_net, partial(Tired, 2), batches=vectors((3, 3)))
add("another network after 2 calls, three samples", tired, REFUSE, 10)

add("even batch sizes only", lambda: plain_net(Even, batches=vectors((12, 8))), MEASURE, 10)


def bad_rule(change: Callable[[list[Tensor]], Any]) -> None:
    net = plain_net()
    with left_as_found(net.model, net.batches):
        diagnose(
            net.model,
            net.batches,
            blocks="layers.*",
            credit=lambda h, logits, y: change(credit_by_class()(h, logits, y)),
        )


def _raise(_: Any) -> Any:
    raise KeyError("layer 3")


RULES: dict[str, Callable[[list[Tensor]], Any]] = {
    "too few": lambda a: a[:-1],
    "too many": lambda a: [*a, a[-1]],
    "one tensor": lambda a: a[0],
    "nothing": lambda a: None,
    "an empty list": lambda a: [],
    "NaN at one layer": lambda a: [a[0] * math.nan, *a[1:]],
    "a wrong width": lambda a: [t[:, :-1] for t in a],
    "a wrong batch": lambda a: [t[:-1] for t in a],
    "numbers": lambda a: [1.0 for _ in a],
    "an exception": _raise,
}
for _name, _change in RULES.items():
    ZOO.cases.append(Case(f"a rule that gives {_name}", lambda change=_change: bad_rule(change), REFUSE, (10,)))  # type: ignore[misc]


@run("a rule that gives NaN to one sample", EITHER, 10)
def _() -> None:
    def change(a: list[Tensor]) -> list[Tensor]:
        a[1][0] = math.nan
        return a

    bad_rule(change)


class SingleOnly(Residual):
    """An operation that exists in float32 only, as fused kernels do."""

    def branch(self, h: Tensor) -> Tensor:
        if h.dtype != torch.float32:
            raise RuntimeError(f"expected Float32, got {h.dtype}")
        return super().branch(h)


def single(model: nn.Module, batches: Sequence[Batch]) -> list[Pass]:
    return by_tape(model, batches, torch.float32)


add("float32 only", lambda: plain_net(lambda: Plain([SingleOnly() for _ in range(3)]), passes=single), MEASURE, 10)
