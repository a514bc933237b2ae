"""The locality certificate: what it costs in plain updates of the same batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.bench_diagnose import CLASSES, INPUTS
from benchmarks.harness import Row, interleaved, ratio
from creditscope import certify
from creditscope.models import ResMLP

SAMPLES = 16


def run(rounds: int) -> list[Row]:
    rows = []
    for width, depth in ((64, 4), (256, 4), (64, 12)):
        torch.manual_seed(0)
        model = ResMLP(INPUTS, CLASSES, width=width, depth=depth)
        batch = torch.randn(SAMPLES, INPUTS), torch.randint(0, CLASSES, (SAMPLES,))
        cases: dict[str, Callable[[], object]] = {
            f"d={width}, L={depth}": partial(certify, update, model, batch),
            "one update": partial(update, model, batch),
        }
        times = interleaved(cases, rounds)
        rows.append(ratio(f"certificate, {SAMPLES} samples", times, f"d={width}, L={depth}", "one update"))
    return rows


def update(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Backpropagation, as a user writes it."""
    model.zero_grad(set_to_none=True)
    F.cross_entropy(model(batch[0]), batch[1]).backward()
