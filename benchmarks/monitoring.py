"""What a `Monitor` adds to training, by how often it measures: the table that Cockpit publishes for its own instruments.

A training step (forward, backward, AdamW, batch 128) with a measurement after it over the step alone is measured; a measurement
every n steps adds an n-th of that. The Monitor has one evaluation batch of 128. An epoch is one of CIFAR-10: 390 steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

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


def stages() -> nn.Sequential:
    """Cockpit's 3c3d: three stages of convolution, ReLU and pooling, then three linear layers."""

    def stage(channels: int, out: int, size: int, padding: int = 0) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(channels, out, size, padding=padding), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)
        )

    head = [nn.Flatten(), nn.Linear(1152, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, CLASSES)]
    return nn.Sequential(stage(3, 64, 5), stage(64, 96, 3), stage(96, 128, 3, 1), nn.Sequential(*head))


def cockpit(rounds: int) -> list[Row]:
    """Cockpit's own instruments on its own network, beside a Monitor. `full` is left out: minutes for a step."""
    try:
        tools, pack = import_module("cockpit"), import_module("backpack")
        configuration = import_module("cockpit.utils.configuration").configuration
    except ImportError as missing:
        print(f"Cockpit is left out: {missing}")
        return []
    x = torch.randn(BATCH, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    y = torch.randint(CLASSES, (BATCH,), generator=torch.Generator().manual_seed(1))

    def watched(label: str) -> Callable[[], None]:
        torch.manual_seed(0)
        model, loss = pack.extend(stages()), pack.extend(nn.CrossEntropyLoss())
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        instruments, count = tools.Cockpit(model.parameters(), quantities=configuration(label)), itertools.count()

        def call() -> None:
            k = next(count)
            optimizer.zero_grad(set_to_none=True)
            logits = model(x)
            mean, each = loss(logits, y), F.cross_entropy(logits, y, reduction="none")
            info = {"batch_size": BATCH, "individual_losses": each, "loss": mean, "optimizer": optimizer}
            with instruments(k, info=info):
                mean.backward(create_graph=instruments.create_graph(k))
            optimizer.step()

        return call

    torch.manual_seed(0)
    model = stages()
    optimizer, count = torch.optim.SGD(model.parameters(), lr=1e-3), itertools.count()
    monitor = Monitor(model, [(x, y)], blocks=["1", "2"])

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    def ours() -> None:
        step()
        monitor.step(next(count))

    cases: dict[str, Callable[[], object]] = {"step": step, "Monitor": ours}
    cases |= {f"Cockpit {label}": watched(label) for label in ("economy", "business")}
    times = interleaved(cases, rounds)
    found = [(name, ratio("", times, name, "step")) for name in list(cases)[1:]]
    return [
        Row(
            "Monitor and Cockpit, 3c3d",
            f"{how}, {name}",
            "training without it",
            1 + (each.best - 1) / EVERY[how],
            1 + (each.median - 1) / EVERY[how],
            None,
        )
        for name, each in found
        for how in ("every step", "every 64 steps")
    ]
