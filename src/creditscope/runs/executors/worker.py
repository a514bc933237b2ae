"""One worker process of the local executor: task after task, one answer each."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

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


class Worker:
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
