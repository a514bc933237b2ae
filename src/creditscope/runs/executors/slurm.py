"""SLURM through submitit: the runs as an array job; `cluster="local"` runs the same jobs as processes of this machine."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError
from creditscope.runs.executors import needs

POLL = 0.5


class SlurmExecutor:
    """`workers`: runs at the same time (SLURM: 256; local: one per core). What is submitted together is one array.
    `accelerated`: each job asks for a GPU (`--gres gpu:1`), unless `slurm` says it otherwise."""

    def __init__(
        self,
        workers: int | None = None,
        cluster: str | None = None,
        folder: str = "slurm",
        slurm: Any = None,
        accelerated: bool = False,
        per_device: int = 1,
        **_: Any,
    ) -> None:
        if per_device != 1:
            raise CreditscopeError("SLURM gives a GPU to one job; leave --per-device out")
        slurm = {**({"gres": "gpu:1"} if accelerated else {}), **(slurm or {})}
        self._engine = needs("slurm").AutoExecutor(folder=Path(folder), cluster=cluster)
        self._local = self._engine.cluster == "local"
        self._cap = workers or ((os.cpu_count() or 1) if self._local else 256)
        array = {} if self._local else {"slurm_array_parallelism": self._cap}
        given = {"cpus_per_task": 1, "timeout_min": 24 * 60, **{f"slurm_{k}": v for k, v in slurm.items()}}
        self._engine.update_parameters(name="creditscope", **array, **given)
        self._waiting: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []
        self._running: list[tuple[Future[Any], Any]] = []
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def submit(self, fn: Any, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self._waiting.append((future, fn, args))
        return future

    def _loop(self) -> None:
        while not self._stop.wait(POLL):
            with self._lock:  # submitit is not made for threads: all calls are made here
                done = [pair for pair in self._running if pair[1].done()]
                self._running = [pair for pair in self._running if pair not in done]
                self._send()
            for future, job in done:
                try:
                    future.set_result(job.result())
                except BaseException as error:  # the job's own, or the engine's
                    future.set_exception(error)

    def _send(self) -> None:
        room = max(0, self._cap - len(self._running)) if self._local else len(self._waiting)
        now, self._waiting = self._waiting[:room], self._waiting[room:]
        if now:
            try:
                with self._engine.batch():
                    jobs = [self._engine.submit(fn, *args) for _, fn, args in now]
            except Exception as error:  # the queue refuses: these runs fail, the next command tries again
                for future, _, _ in now:
                    future.set_exception(error)
                return
            self._running += [(task[0], job) for task, job in zip(now, jobs, strict=True)]

    def shutdown(self, cancel: bool = False) -> None:
        while not cancel and (self._waiting or self._running):
            self._stop.wait(POLL)
        self._stop.set()
        self._thread.join()
        for _, job in self._running:
            job.cancel()
