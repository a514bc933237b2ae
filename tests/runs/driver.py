"""A driver as its own process: python driver.py STORE LOG. Every training that starts is one line in LOG."""

from __future__ import annotations

import os
import sys
from concurrent.futures import Future
from typing import Any
from unittest import mock

from creditscope.runs.execute import run_store, train_one
from creditscope.runs.executors.local import LocalExecutor
from creditscope.runs.store import Store
from creditscope.studies.grid import with_nulls
from creditscope.training.spec import RunSpec, make_spec

TINY: dict[str, Any] = {"dataset": "quadratic", "width": 8, "depth": 1, "epochs": 2, "batch_size": 2000}


def tiny_specs(n: int = 2) -> list[RunSpec]:
    return with_nulls(make_spec({**TINY, "method": "dfa", "credit_norm": "rms", "seed": seed}) for seed in range(n))


def counted(log: str, *args: Any) -> Any:
    """train_one, with a line in the log for every training that really starts."""
    from creditscope.training import loop

    go = loop._Run.go

    def noted(run: Any, progress: Any) -> None:
        with open(log, "a") as file:
            file.write(f"{run.spec.hash}\n")
        go(run, progress)

    with mock.patch.object(loop._Run, "go", noted):  # a worker runs many tasks
        return train_one(*args)


class Inline:
    """Runs every task at once, in this process."""

    def submit(self, fn: Any, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, cancel: bool = False) -> None: ...


class Counting(LocalExecutor):
    log = ""

    def submit(self, fn: Any, *args: Any) -> Any:
        return super().submit(counted, self.log, *args)


def main() -> int:
    executor = Counting(2)
    executor.log = sys.argv[2]
    failures = run_store(tiny_specs(), Store(sys.argv[1], create=True), executor)
    executor.shutdown()
    for f in failures:
        print(f.message, file=sys.stderr)
    return len(failures)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.exit(main())
