"""A whole epoch of CIFAR-10 (data, augmentation, steps, evaluation, facts) against the sum of its steps."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from benchmarks.harness import Row
from benchmarks.steps import BATCH, random_cifar
from creditscope.data.dataset import epoch_batches
from creditscope.training.loop import _Run
from creditscope.training.spec import make_spec

N_TRAIN, N_TEST = 50_000, 10_000


def run(rounds: int) -> list[Row]:
    """Data of CIFAR-10's size; BP and DFA rms, d=256 L=4. `rounds` epochs each."""
    rows = []
    data = random_cifar(N_TRAIN)
    data = type(data)(**{**vars(data), "test_x": data.train_x[:N_TEST], "test_y": data.train_y[:N_TEST]})
    for name, extra in (("BP", {"method": "bp"}), ("DFA rms", {"method": "dfa", "credit_norm": "rms"})):
        run_ = _Run(make_spec({"dataset": "cifar10", **extra}), data, Path())
        x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
        steps = -(-N_TRAIN // BATCH)
        next(epoch_batches(data, BATCH, 42, 1, True))  # the padded images are made once
        found = []
        for epoch in range(1, rounds + 1):
            start = time.process_time()
            run_._epoch(epoch)
            run_.measure()
            whole = time.process_time() - start
            run_.model.train()
            start = time.process_time()
            for _ in range(steps):
                run_.optimizer.zero_grad()
                run_.objective.backward(x, y)
                run_.optimizer.step()
            found.append(whole / (time.process_time() - start))
        found.sort()
        rows.append(
            Row(
                "Epoch of CIFAR-10",
                f"whole epoch, {name}",
                "its 391 steps alone",
                found[0],
                found[len(found) // 2],
                1.15,
            )
        )
    return rows
