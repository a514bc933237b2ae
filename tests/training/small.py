"""A data set and runs that take a fraction of a second."""

from __future__ import annotations

import dataclasses
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from creditscope.data import Dataset, eval_batches, load_dataset
from creditscope.training import loop
from creditscope.training.spec import RunSpec, make_spec


@cache
def small_quadratic() -> Dataset:
    """The first 200 train and 256 test samples of the embedded task (a last batch of 8 at batch size 64)."""
    full = load_dataset("quadratic")
    return dataclasses.replace(
        full,
        train_x=full.train_x[:200],
        train_y=full.train_y[:200],
        test_x=full.test_x[:256],
        test_y=full.test_y[:256],
    )


@cache
def small_images() -> Dataset:
    """Random 32 x 32 images with random labels, as CIFAR gives them."""
    gen = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (8, 3, 32, 32), generator=gen, dtype=torch.uint8)
    y = torch.randint(0, 10, (8,), generator=gen)
    return Dataset("cifar10", x[:4], y[:4], x[4:], y[4:], 10, (3, 32, 32), True, (0.5,) * 3, (0.25,) * 3)


def use(monkeypatch: pytest.MonkeyPatch, dataset: Dataset) -> None:
    """Let training read this data set under any name, and measure on two batches of what there is."""
    size = min(128, len(dataset.test_y) // 2)
    monkeypatch.setattr(loop, "load_dataset", lambda name, data_dir=None: dataset)
    monkeypatch.setattr(loop, "eval_batches", lambda ds: eval_batches(ds, 2, size))


def spec(**changes: Any) -> RunSpec:
    return make_spec({"width": 8, "depth": 2, "epochs": 3, "batch_size": 64, **changes})


DFA_RMS = {"method": "dfa", "credit_norm": "rms"}
FA_NONE = {"method": "fa", "credit_norm": "none"}


def hashes(directory: Path) -> dict[str, str]:
    """sha256 of every file below the directory, hidden ones too."""
    return {
        str(p.relative_to(directory)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(directory.rglob("*"))
        if p.is_file()
    }


def stop_after(epoch: int) -> Any:
    """A progress callback that raises once this epoch is done."""

    def progress(done: int, total: int, line: dict[str, Any]) -> None:
        if done == epoch:
            raise KeyboardInterrupt

    return progress
