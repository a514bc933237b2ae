"""Exceptions in the user's code, at every call: afterwards the model is as it was found, to the bit.

    python tests/trust/raised.py [PART OF A NAME]    every call in turn; `test_raised.py` takes a few of them

A function of the library is run once to count the calls of one thing that belongs to the user (the forward pass of the model or
of one of its modules, the update, the batches, the training function), and then once for each call, which raises. The state of
the model and of all generators is taken by the oracle, not by the library.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.trust.oracle import WrongError, left_as_found

from creditscope import CreditscopeError, certify, depth_profile, run_null


class PlantedError(Exception):
    """What the user's code raises."""


class Calls:
    """Counts, and raises at the n-th call. A class attribute, so that nobody who puts a model's state back puts it back too."""

    at: int | None = None
    n = 0

    @classmethod
    def call(cls) -> None:
        cls.n += 1
        torch.rand(1)
        np.random.rand()  # noqa: NPY002
        random.random()
        if cls.n == cls.at:
            raise PlantedError("planted")


class Block(nn.Module):
    """Draws numbers, keeps a buffer and a count of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.2)
        self.seen = 0
        self.planted = False

    def reset_parameters(self) -> None:
        self.linear.reset_parameters()
        self.norm.reset_parameters()

    def forward(self, h: Tensor) -> Tensor:
        self.seen += 1
        if self.planted:
            Calls.call()
        out: Tensor = h + self.drop(torch.tanh(self.norm(self.linear(h))))
        return out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.planted = False

    def forward(self, x: Tensor) -> Tensor:
        if self.planted:
            Calls.call()
        h = self.stem(x)
        for layer in self.layers:
            h = layer(h)
        out: Tensor = self.head(h)
        return out


def network() -> Net:
    """In the middle of somebody's work: mixed modes, a frozen weight, gradients, hooks of their own."""
    torch.manual_seed(0)
    model = Net()
    model.layers[1].eval()
    model.stem.bias.requires_grad_(False)
    model(torch.randn(4, 6)).sum().backward()
    model.head.register_forward_hook(lambda *_: None)
    model.layers[0].register_full_backward_hook(lambda *_: None)
    return model


def batches(seed: int, n: int = 6, planted: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        if planted:
            Calls.call()
        x = torch.randn(10, 6, generator=generator)
        yield x, x[:, :3].argmax(1)


class Loader:
    """As a user's: read from the start again, and able to fail at any batch."""

    def __init__(self, seed: int, planted: bool) -> None:
        self.seed, self.planted = seed, planted

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return batches(self.seed, planted=self.planted)


@dataclass(frozen=True)
class Case:
    name: str
    run: Callable[[Net], Any]
    plant: Callable[[Net], None] = lambda model: None
    """Which forward pass counts."""


def _profile(fit: bool = False, test: bool = False) -> Callable[[Net], Any]:
    return lambda model: depth_profile(model, Loader(1, fit), Loader(2, test), "layers.*", init=_init)


def _init(block: nn.Module) -> None:
    for p in block.parameters():
        p.normal_(std=0.2)


def _certify(planted: bool = False) -> Callable[[Net], Any]:
    def update(model: nn.Module, batch: Any) -> None:
        x, y = batch
        loss = F.cross_entropy(model(x), y)
        if planted:
            Calls.call()
        loss.backward()

    return lambda model: certify(update, model, next(iter(Loader(1, False))), "layers.*")


def _null(train: bool = False, build: bool = False) -> Callable[[Net], Any]:
    def train_fn(model: nn.Module, seed: int) -> float:
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        for x, y in batches(seed, 2):
            if train:
                Calls.call()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        torch.rand(1)
        return 0.5

    def start() -> nn.Module:
        if build:
            Calls.call()
        return Net()

    def run(model: Net) -> Any:
        return run_null(train_fn, model, [0, 1], "layers.*", build=start)

    return run


def _whole(model: Net) -> None:
    model.planted = True


def _inner(model: Net) -> None:
    model.layers[1].planted = True  # type: ignore[assignment]


CASES = [
    Case("depth_profile: forward of the model", _profile(), _whole),
    Case("depth_profile: forward of a block", _profile(), _inner),
    Case("depth_profile: fit_batches", _profile(fit=True)),
    Case("depth_profile: test_batches", _profile(test=True)),
    Case("certify: forward of the model", _certify(), _whole),
    Case("certify: forward of a block", _certify(), _inner),
    Case("certify: update", _certify(planted=True)),
    Case("run_null: training function", _null(train=True)),
    Case("run_null: forward of the model", _null(), _whole),
    Case("run_null: build", _null(build=True)),
]


def calls(case: Case) -> int:
    """How often the user's code is called in an undisturbed run, which leaves everything as found too."""
    return _run(case, None)[0]


def planted(case: Case, n: int) -> None:
    """The n-th call raises. What comes out is the user's own exception, one line that names it, or, where the library only
    tried what a model takes, what comes out of an undisturbed run."""
    made = _run(case, n)[1]
    if made is not None and made != _run(case, None)[1]:
        raise WrongError(f"call {n} of {case.name} raised, and another answer is given")


def _run(case: Case, at: int | None) -> tuple[int, str | None]:
    """Calls, and what is answered (None: it raised)."""
    model = network()
    case.plant(model)
    Calls.n, Calls.at = 0, at
    with left_as_found(model):
        try:
            answer = repr(case.run(model))
        except PlantedError:
            answer = None
        except CreditscopeError as error:
            answer = None
            if at is None or "planted" not in str(error) or "\n" in str(error):
                raise
    return Calls.n, answer


def main(arguments: Sequence[str]) -> int:
    wrong = total = 0
    for case in CASES:
        if not all(part in case.name for part in arguments):
            continue
        n = calls(case)
        bad = 0
        for k in range(1, n + 1):
            try:
                planted(case, k)
            except Exception as error:  # whatever comes out is what is looked for
                bad += 1
                print(f"{case.name}, call {k}: {type(error).__name__}: {error}", flush=True)
        print(f"{case.name}: {n} calls, {bad} wrong", flush=True)
        total, wrong = total + n, wrong + bad
    print(f"{total} exceptions, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1:]))
