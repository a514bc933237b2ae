"""The local executor: one-thread worker processes from a fork server that has torch loaded already."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from creditscope.errors import CreditscopeError
from creditscope.runs.executors import WorkerDied
from creditscope.runs.executors.worker import Worker


class LocalExecutor:
    """A worker that dies, or answers nothing for `timeout` seconds, fails its own task; the next task gets a new one."""

    def __init__(
        self,
        workers: int | None = None,
        timeout: float | None = None,
        devices: Sequence[str] | None = None,
        per_device: int = 1,
        **_: Any,
    ) -> None:
        """devices: one worker for each, or `per_device` of them; a worker keeps its device."""
        if workers is not None and workers < 1:
            raise CreditscopeError(f"workers is {workers}; give 1 or more")
        if devices and workers is not None:
            raise CreditscopeError(
                "--workers and --devices are both given; --per-device says how many runs share a device"
            )
        if per_device < 1 or (per_device > 1 and not devices):
            raise CreditscopeError(f"--per-device {per_device} needs --devices and 1 or more runs on each")
        places = [place for place in devices or () for _ in range(per_device)]
        self.workers, self._timeout = len(places) or workers or os.cpu_count() or 1, timeout
        self._places = queue.SimpleQueue[str]()
        for place in places:
            self._places.put(place)
        self._threads = ThreadPoolExecutor(self.workers)
        self._mine = threading.local()
        self._workers: list[Worker] = []
        self._closed = False

    def submit(self, fn: Callable[..., Any], *args: Any) -> Future[Any]:
        return self._threads.submit(self._run, fn, args)

    def _run(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if self._closed:
            raise WorkerDied("stopped before it started")
        worker: Worker | None = getattr(self._mine, "worker", None)
        if worker is None or not worker.process.is_alive():
            if worker is None and not self._places.empty():  # the first of this thread; a later one takes its place
                self._mine.place = self._places.get_nowait()
            worker = self._mine.worker = Worker(getattr(self._mine, "place", None))
            self._workers.append(worker)
        return worker.call(fn, args, self._timeout)

    def shutdown(self, cancel: bool = False) -> None:
        """Wait for the running tasks, or (cancel) stop them now."""
        self._closed = cancel
        if cancel:
            for worker in self._workers:
                worker.process.terminate()
        self._threads.shutdown(wait=True, cancel_futures=cancel)
        for worker in self._workers:
            worker.close()
