"""The local executor: one-thread worker processes from a fork server that has torch loaded already."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from creditscope.errors import CreditscopeError
from creditscope.runs.executors import TaskFailed, WorkerDied

PRELOAD = ["torch", "torch._dynamo", "torch.profiler", "torch.profiler._cupti_monitor", "creditscope.training.loop"]
"""Imported once in the fork server; what a torch version lacks is skipped. The profiler alone costs 0.4 s per process."""

# Windows has only the latter
_START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
_device: str | None = None
"""Of this worker process."""


def own_device() -> str:
    """The device that this worker was given; the CPU where it was given none."""
    return _device or "cpu"


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


class Worker:
    """One worker process: task after task, one answer each."""

    def __init__(self, device: str | None = None) -> None:
        context: Any = multiprocessing.get_context(_START)
        if _START == "forkserver":
            context.set_forkserver_preload(PRELOAD)
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, device), daemon=True)
        self.process.start()
        theirs.close()

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], timeout: float | None) -> Any:
        try:
            self._pipe.send((fn, args))
            if not self._pipe.poll(timeout):
                self.process.kill()
                self.process.join()
                raise WorkerDied(f"no answer within {timeout:g} seconds; the worker was stopped")
            answer, trace = self._pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            raise WorkerDied(f"the worker ended with exit code {self.process.exitcode} and no answer") from None
        if trace:
            raise TaskFailed(answer, trace)
        return answer

    def close(self) -> None:
        self._pipe.close()  # the worker reads the end of its work
        self.process.join()


def _work(pipe: Connection, device: str | None) -> None:
    """Until the driver closes the pipe, or is gone."""
    global _device  # noqa: PLW0603  (a process of its own)
    _device = device
    threading.Thread(target=_end_with_driver, daemon=True).start()
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            fn, args = pipe.recv()
            try:
                answer = fn(*args), ""
            except Exception as error:
                answer = f"{type(error).__name__}: {error}", traceback.format_exc()
            pipe.send(answer)


def _end_with_driver() -> None:
    """A driver that is killed cannot stop its workers: they would train on for hours. The run resumes at its last epoch."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)
