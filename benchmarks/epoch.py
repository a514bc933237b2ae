"""A whole epoch of CIFAR-10 (data, augmentation, steps, evaluation, facts) against the sum of its own steps."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from benchmarks.harness import Row
from benchmarks.steps import BATCH, random_cifar
from creditscope.data.dataset import epoch_batches
from creditscope.training.loop import _Run
from creditscope.training.spec import make_spec

N_TRAIN, N_TEST = 50_000, 10_000


class Clocked(_Run):
    """Knows the processor time of its steps: from the learning rate to the end of the optimiser."""

    steps = 0.0

    def _set_lr(self, step: int, steps_per_epoch: int) -> None:
        self.start = time.process_time()
        super()._set_lr(step, steps_per_epoch)

    def clock_steps(self) -> None:
        step = self.optimizer.step

        def clocked() -> None:
            step()
            self.steps += time.process_time() - self.start

        self.optimizer.step = clocked  # type: ignore[method-assign]


def run(rounds: int) -> list[Row]:
    """Data of CIFAR-10's size; BP and DFA rms, d=256 L=4. `rounds` epochs each."""
    rows = []
    data = random_cifar(N_TRAIN)
    data = type(data)(**{**vars(data), "test_x": data.train_x[:N_TEST], "test_y": data.train_y[:N_TEST]})
    for name, extra in (("BP", {"method": "bp"}), ("DFA rms", {"method": "dfa", "credit_norm": "rms"})):
        made = Clocked(make_spec({"dataset": "cifar10", **extra}), data, Path())
        made.clock_steps()
        next(epoch_batches(data, BATCH, 42, 1, True))  # the padded images are made once
        found = []
        for epoch in range(1, rounds + 1):
            made.steps, start = 0.0, time.process_time()
            made._epoch(epoch)
            made.measure()
            found.append((time.process_time() - start) / made.steps)
        median = statistics.median(found)
        rows.append(Row("Epoch of CIFAR-10", f"whole epoch, {name}", "its 391 steps", min(found), median, 1.15))
    return rows
