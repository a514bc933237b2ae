"""Many runs into one directory: planned as specs, executed by whatever executor is handed in, shown with progress."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from creditscope.errors import CreditscopeError
from creditscope.training.bundle import TRAJECTORY, Bundle, is_bundle, load_bundle
from creditscope.training.spec import RunSpec

POLL = 0.5
FROZEN_COST = 0.5
"""A frozen-blocks run costs about half of a full one; only the progress bar uses it."""


class Executor(Protocol):
    """One `submit -> Future` shape for every engine."""

    def submit(self, fn: Any, *args: Any) -> Future[Any]: ...

    def shutdown(self, cancel: bool = False) -> None: ...


def train_one(spec: dict[str, Any], out: str, data_dir: str | None) -> str:
    """What a worker does: train one run into its own directory; the directory."""
    from creditscope.training.loop import train
    from creditscope.training.spec import make_spec

    return str(train(make_spec(spec), out, data_dir=data_dir).path)


def run_specs(
    specs: Sequence[RunSpec],
    root: Path,
    executor: Executor,
    *,
    data_dir: str | Path | None = None,
    console: Console | None = None,
) -> list[Bundle]:
    """Train every spec that is not done yet; the bundles in the order of the specs. Ctrl-C stops cleanly."""
    console = console or Console(stderr=True)
    root.mkdir(parents=True, exist_ok=True)
    outs = {spec.hash: root / spec.slug for spec in specs}
    unique = {spec.hash: spec for spec in specs}
    todo = [spec for key, spec in unique.items() if not is_bundle(outs[key])]
    # long runs first: the last ones to finish are then short
    todo.sort(key=_cost, reverse=True)
    futures = {
        spec.hash: executor.submit(
            train_one, spec.model_dump(), str(outs[spec.hash]), str(data_dir) if data_dir else None
        )
        for spec in todo
    }
    try:
        if futures:
            _watch(todo, futures, outs, console)
    except KeyboardInterrupt:
        executor.shutdown(cancel=True)
        raise CreditscopeError(
            f"stopped; what was trained is kept in {root}: run the same command again to go on"
        ) from None
    failed = [(unique[key].slug, f.exception()) for key, f in futures.items() if f.exception() is not None]
    if failed:
        name, error = failed[0]
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise CreditscopeError(f"run {name} failed{more}: {error}; the others are kept, run again to retry")
    return [load_bundle(outs[spec.hash]) for spec in specs]


def _cost(spec: RunSpec) -> float:
    return (spec.epochs or 0) * (FROZEN_COST if spec.frozen else 1.0)


def _epochs_done(out: Path) -> int:
    """Epochs that an unfinished run has recorded (its first line is the initialisation)."""
    try:
        return max(0, (out.with_name(f".{out.name}.partial") / TRAJECTORY).read_bytes().count(b"\n") - 1)
    except OSError:
        return 0


def _watch(todo: list[RunSpec], futures: dict[str, Future[Any]], outs: dict[str, Path], console: Console) -> None:
    total = sum(_cost(spec) for spec in todo)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("·"),
        TimeElapsedColumn(),
        TextColumn("elapsed ·"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        speed_estimate_period=60,
    ) as bar:
        task: TaskID = bar.add_task("training (runs × epochs)", total=round(total))
        started = time.monotonic()
        told = console.is_terminal
        while True:
            done = sum(
                _cost(spec)
                if futures[spec.hash].done()
                else _epochs_done(outs[spec.hash]) * (FROZEN_COST if spec.frozen else 1.0)
                for spec in todo
            )
            bar.update(task, completed=round(done))
            elapsed = time.monotonic() - started
            if not told and done > 0 and elapsed > 10:  # a log file gets one line instead of a moving bar
                console.print(f"{len(todo)} runs, about {elapsed * (total - done) / done / 60:.1f} minutes left")
                told = True
            if all(f.done() for f in futures.values()):
                return
            time.sleep(POLL)
