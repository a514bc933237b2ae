"""What a study would cost here: runs left, hours from a short calibration, disk."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from creditscope.runs.store import Store
from creditscope.training.spec import RunSpec

STEPS, WARM = 8, 2


@dataclass(frozen=True)
class Plan:
    runs: int
    done: int
    hours: float
    """Wall time of what is left, on `workers` workers."""
    bytes: int
    workers: int
    calibration: str


def plan(specs: Sequence[RunSpec], store: Store | None, workers: int | None, data_dir: str | Path | None) -> Plan:
    """One short calibration for each kind of run (method, shape, frozen or not); the rest is arithmetic."""
    workers = workers or os.cpu_count() or 1
    left = [spec for spec in specs if store is None or not store.has(spec)]
    times: dict[object, tuple[float, int]] = {}
    seconds, size = 0.0, 0
    for spec in left:
        network, recipe = (spec.dataset, spec.arch, spec.shape), (spec.method, spec.frozen, spec.batch_size)
        kind = (network, recipe, tuple(spec.options.items()))
        if kind not in times:
            times[kind] = calibrate(spec, data_dir)
        per_epoch, weights = times[kind]
        seconds += per_epoch * (spec.epochs or 0)
        size += weights * (1 + len(spec.checkpoint_epochs)) + 60_000 + 1_500 * (spec.epochs or 0)
    calibration = (
        f"{WARM} + {STEPS} training steps, one test pass and one measurement for each of {len(times)} kinds of run"
    )
    return Plan(len(specs), len(specs) - len(left), seconds / workers / 3600, size, workers, calibration)


def calibrate(spec: RunSpec, data_dir: str | Path | None) -> tuple[float, int]:
    """(seconds per epoch, bytes of weights and credit state) of one run, from a few steps: processor time, so that other work on
    the machine does not count (a run has one thread)."""
    import torch

    from creditscope.data import load_dataset
    from creditscope.data.dataset import epoch_batches
    from creditscope.stream.devices import CPU
    from creditscope.training.loop import _Run, settled

    dataset = load_dataset(spec.dataset, data_dir)
    with settled(CPU), torch.random.fork_rng(devices=[]):
        run = _Run(spec, dataset, Path())
        run.model.train()
        run.rule.begin_epoch(spec.schedule_epochs or 1, spec.schedule_epochs or 1)
        batches = epoch_batches(dataset, spec.batch_size, spec.seed, 1, bool(spec.augment))
        started, taken = time.process_time(), 0
        for step, (x, y) in enumerate(batches):
            if step == WARM:
                started = time.process_time()
            run.optimizer.zero_grad()
            run.objective.backward(x, y)
            run.optimizer.step()
            taken += step >= WARM
            if taken == STEPS:
                break
        per_step = (time.process_time() - started) / max(1, taken)
        started = time.process_time()
        run.measure()
        per_record = time.process_time() - started
    steps = math.ceil(len(dataset.train_y) / spec.batch_size)
    weights = sum(t.numel() * t.element_size() for t in run._state().values())
    return per_step * steps + per_record, weights
