"""The detectors on a user's own tensors, modules and numbers: met where the pitfall is, silent where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from creditscope.pitfalls import get_pitfall
from creditscope.pitfalls.tiny import randn, with_cosine


def detector(number: int) -> Callable[..., str | None]:
    found = get_pitfall(number).tensors
    assert found is not None
    return found


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def pair(cos: float = 0.4) -> tuple[torch.Tensor, torch.Tensor]:
    g = randn(64, 48, rng=rng())
    return with_cosine(g, cos, torch.Generator().manual_seed(1)), g


class Net(nn.Module):
    def __init__(self, saved: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.drop = nn.Dropout()
        self.names = ["a", "b"]
        if saved:
            self.register_buffer("B", torch.ones(4))
        else:
            self.B = [torch.ones(4)]


def cases() -> list[tuple[int, tuple[Any, ...], str | None]]:
    a, g = pair()
    other = torch.Generator().manual_seed(7)
    h = randn(8, 16, rng=rng())
    shuffled = pair(0.8)[0][torch.randperm(64, generator=rng())]
    zeros = g.clone()
    zeros[:3] = 0
    lone = nn.BatchNorm1d(3)
    three = [randn(32, 16, rng=rng()) * size for size in (10.0, 1.0, 1.0)]
    opposed = [with_cosine(x, c, other) for x, c in zip(three, (0.3, -0.2, -0.2), strict=True)]
    return [
        (1, (h, float(h.norm(p=-1))), "whole tensor"),
        (1, (h, float(h.norm(dim=-1).mean())), None),
        (2, (a, g * 1e-10), "64 of 64"),
        (2, (a, g), None),
        (2, (a, torch.zeros_like(g)), None),
        (3, (g.float() * 1e-9,), "float16"),
        (3, ((g * 1e-9).half(),), "taken in float16"),
        (3, (g.float(),), None),
        (3, ((g * 1e-9).bfloat16(),), "float16"),
        (4, (0.4, [0.01, -0.02, 0.0, 0.02]), "quote both"),
        (4, (0.4, [0.41, 0.38, 0.42]), None),
        (5, (opposed, three), "sign"),
        (5, (three, three), None),
        (6, ([0.5, 0.01, 0.0, 0.01],), "layer 0"),
        (6, ([0.5, 0.4, 0.5, 0.4],), None),
        (6, ([None, None],), None),
        (7, (Net(saved=False),), "B"),
        (7, (Net(saved=True),), None),
        (7, (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),), None),
        (8, (shuffled, g), "another order"),
        (8, (a[:10], g), "10 samples"),
        (8, (a, g), None),
        (8, (randn(64, 48, rng=rng()), torch.randn(64, 48, generator=torch.Generator().manual_seed(5))), None),
        (9, ({"epochs": 5, "lr": 1}, {"epochs": 2, "lr": 1, "train_last": 0}), "epochs 5 against 2"),
        (9, ({"epochs": 5}, {"epochs": 5, "train_last": 0}), None),
        (10, (Net(saved=True).train(),), "train mode"),
        (10, (Net(saved=True).eval(),), None),
        (10, (nn.Linear(2, 2).train(),), None),
        (10, (lone.train(),), "train mode"),
        (11, ([x / x.norm(dim=1, keepdim=True) for x in three],), "normalised"),
        (11, (three,), None),
        (12, (0.8, 0.1, None), "70.0 pp"),
        (12, (0.8, 0.1, 0.75), None),
        (13, ({128: 1e-5, 1024: 1.25e-6},), "mean-reduced"),
        (13, ({128: 1e-5, 1024: 1.01e-5},), None),
        (13, ({128: 1e-5},), None),
        (14, (a, zeros), "3 of 64"),
        (14, (a, g), None),
        (15, ([1, 3], range(4)), "seeds 0, 2"),
        (15, ([0, 1], [1, 0]), None),
    ]


@pytest.mark.parametrize(("number", "args", "says"), cases(), ids=lambda v: str(v) if isinstance(v, int | str) else "")
def test_detector(number: int, args: tuple[Any, ...], says: str | None) -> None:
    sentence = detector(number)(*args)
    if says is None:
        assert sentence is None
    else:
        assert sentence is not None
        assert says in sentence
        assert "\n" not in sentence
