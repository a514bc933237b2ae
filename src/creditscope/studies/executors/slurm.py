"""SLURM through submitit: one job per run; `cluster="local"` runs the same jobs as processes of this machine."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from creditscope.studies.executors import needs

POLL = 0.5


class SlurmExecutor:
    """`workers`: jobs at the same time (SLURM: 256; local: one per core, for submitit's local executor has no cap)."""

    def __init__(
        self, workers: int | None = None, cluster: str | None = None, folder: str = "slurm", slurm: Any = None, **_: Any
    ) -> None:
        submitit = needs("submitit", "slurm")
        self._engine = submitit.AutoExecutor(folder=Path(folder), cluster=cluster)
        local = self._engine.cluster == "local"
        given = {"cpus_per_task": 1, "timeout_min": 24 * 60, **{f"slurm_{k}": v for k, v in (slurm or {}).items()}}
        self._engine.update_parameters(name="creditscope", **given)
        self._threads = ThreadPoolExecutor(workers or ((os.cpu_count() or 1) if local else 256))
        self._lock = threading.Lock()
        self._jobs: list[Any] = []
        self._closed = False

    def submit(self, fn: Any, *args: Any) -> Future[Any]:
        return self._threads.submit(self._run, fn, args)

    def _run(self, fn: Any, args: tuple[Any, ...]) -> Any:
        with self._lock:  # submitit is not made for threads
            if self._closed:
                raise RuntimeError("stopped before it started")
            job = self._engine.submit(fn, *args)
            self._jobs.append(job)
        while not job.done():
            time.sleep(POLL)
        return job.result()

    def shutdown(self, cancel: bool = False) -> None:
        with self._lock:
            self._closed = cancel
        if cancel:
            for job in self._jobs:
                if not job.done():
                    job.cancel()
        self._threads.shutdown(wait=True, cancel_futures=cancel)
