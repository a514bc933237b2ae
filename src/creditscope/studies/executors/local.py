"""The local executor: a fresh one-thread process for each task, from a fork server that has torch loaded already."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

PRELOAD = ["torch", "torch._dynamo", "torch.profiler", "torch.profiler._cupti_monitor", "creditscope.training.loop"]
"""Imported once in the fork server; what a torch version lacks is skipped. The profiler alone costs 0.4 s per process."""


class WorkerDied(RuntimeError):
    """The process of a task ended without an answer (killed, out of memory)."""


class TaskFailed(RuntimeError):
    """The task raised: `str` is its own one-line message, `.trace` the full traceback of the worker."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace


class LocalExecutor:
    """submit(fn, *args) -> Future. A task that dies takes nothing else with it."""

    def __init__(self, workers: int | None = None, **_: Any) -> None:
        self.workers = workers or os.cpu_count() or 1
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOAD)
        self._threads = ThreadPoolExecutor(self.workers)
        self._processes: set[Any] = set()
        self._closed = False

    def submit(self, fn: Callable[..., Any], *args: Any) -> Future[Any]:
        return self._threads.submit(self._run, fn, args)

    def _run(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if self._closed:
            raise WorkerDied("stopped before it started")
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(sender, fn, args), daemon=True)
        process.start()
        sender.close()
        self._processes.add(process)
        try:
            kind, *rest = receiver.recv()
        except EOFError:
            process.join()
            raise WorkerDied(f"the worker ended with exit code {process.exitcode} and no answer") from None
        finally:
            self._processes.discard(process)
            receiver.close()
        process.join()
        if kind == "error":
            raise TaskFailed(*rest)
        return rest[0]

    def shutdown(self, cancel: bool = False) -> None:
        """Wait for the running tasks, or (cancel) stop them now."""
        self._closed = cancel
        if cancel:
            for process in list(self._processes):
                process.terminate()
        self._threads.shutdown(wait=True, cancel_futures=cancel)


def _work(sender: Connection, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        sender.send(("done", fn(*args)))
    except KeyboardInterrupt:
        os._exit(130)
    except BrokenPipeError:  # the driver is gone; the run is in its directory all the same
        pass
    except BaseException as error:
        with contextlib.suppress(BrokenPipeError):
            sender.send(("error", f"{type(error).__name__}: {error}", traceback.format_exc()))
    finally:
        sender.close()
