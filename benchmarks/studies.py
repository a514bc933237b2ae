"""Many runs: throughput of two workers against one, and what scheduling adds to a run."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Row
from creditscope.runs.execute import run_store, train_one
from creditscope.runs.executors.local import LocalExecutor
from creditscope.runs.store import Store
from creditscope.training.spec import make_spec

TINY: dict[str, Any] = {"dataset": "quadratic", "width": 8, "depth": 1, "epochs": 1, "batch_size": 4000}
SMALL: dict[str, Any] = {"dataset": "quadratic", "width": 128, "depth": 4, "epochs": 2}


def timed(log: str, *args: Any) -> Any:
    start = time.perf_counter()
    answer = train_one(*args)
    with open(log, "a") as file:
        file.write(f"{time.perf_counter() - start}\n")
    return answer


class Timed(LocalExecutor):
    log = ""

    def submit(self, fn: Any, *args: Any) -> Any:
        return super().submit(timed, self.log, *args)


def wall(recipe: dict[str, Any], n: int, workers: int) -> tuple[float, list[float]]:
    """(seconds for n runs, seconds of the work of each inside its worker)."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        executor = Timed(workers)
        executor.log = str(root / "log")
        for future in [executor.submit(*_warm(root, k)) for k in range(workers)]:
            future.result()  # workers are up
        (root / "log").unlink()
        start = time.perf_counter()
        specs = [make_spec({**recipe, "seed": seed}) for seed in range(n)]
        failures = run_store(specs, Store(root / "store", create=True), executor)
        taken = time.perf_counter() - start
        executor.shutdown()
        assert not failures, failures[0].message
        return taken, [float(line) for line in (root / "log").read_text().split()]


def _warm(root: Path, k: int) -> tuple[Any, ...]:
    return train_one, make_spec({**TINY, "seed": 1000 + k}).model_dump(), str(root / f"warm{k}"), None


def run(rounds: int) -> list[Row]:
    runs = 500 if rounds >= 3 else 50
    taken, work = wall(TINY, runs, 1)
    overhead = (taken - sum(work)) / runs
    pairs = [(wall(SMALL, 12, 1)[0], wall(SMALL, 12, 2)[0]) for _ in range(rounds)]
    faster = sorted(one / two for one, two in pairs)
    best = min(one for one, _ in pairs) / min(two for _, two in pairs)
    group = "Studies"
    return [
        Row(group, f"scheduling per run, seconds ({runs} tiny runs)", "the work itself", overhead, overhead, 0.05),
        Row(group, "2 workers, times as many runs per hour", "1 worker", best, statistics.median(faster), 1.9, True),
    ]
