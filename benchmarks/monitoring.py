"""What a `Monitor` adds to training, by how often it measures: the table that Cockpit publishes for its own instruments.

A training step (forward, backward, AdamW, batch 128) with a measurement after it over the step alone is measured; a measurement
every n steps adds an n-th of that. The Monitor has one evaluation batch of 128. An epoch is one of CIFAR-10: 390 steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.harness import Row, interleaved, ratio
from creditscope import Monitor
from creditscope.credit import DFA
from creditscope.models import ResMLP, SmallCNN, ViTMini
from creditscope.training.build import build_stream

EVERY = {"every step": 1, "every 8 steps": 8, "every 64 steps": 64, "every 256 steps": 256, "once an epoch": 390}
GOALS = {"every 64 steps": 1.03, "once an epoch": 1.005}
BATCH, CLASSES = 128, 10


def run(rounds: int) -> list[Row]:
    images = torch.randn(BATCH, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return [
        *table("ResMLP", ResMLP(3072, CLASSES, width=256, depth=4), images.flatten(1), rounds),
        *table("SmallCNN", SmallCNN(CLASSES), images, rounds),
        *table("ViT-Mini", ViTMini(CLASSES), images, rounds),
    ]


def table(name: str, model: Any, x: torch.Tensor, rounds: int) -> list[Row]:
    y = torch.randint(CLASSES, (BATCH,), generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rule = DFA()
    rule.setup(build_stream(model, x[:3]), CLASSES, torch.Generator().manual_seed(0))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    def watched(credit: Any) -> Callable[[], None]:
        monitor, count = Monitor(model, [(x, y)], credit=credit), itertools.count()

        def call() -> None:
            step()
            monitor.step(next(count))

        return call

    cases: dict[str, Callable[[], object]] = {"step": step, "no credit": watched(None), "credit dfa": watched(rule)}
    times = interleaved(cases, rounds)
    rows = []
    for credit in ("no credit", "credit dfa"):
        each = ratio("", times, credit, "step")
        for how, steps in EVERY.items():
            best, median = (1 + (value - 1) / steps for value in (each.best, each.median))
            rows.append(
                Row(f"Monitor, {name}", f"{how}, {credit}", "training without it", best, median, GOALS.get(how))
            )
    return rows
