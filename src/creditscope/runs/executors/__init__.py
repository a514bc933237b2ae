"""Where runs are executed: one `submit(fn, *args) -> Future` and `shutdown(cancel)` for every engine."""

from __future__ import annotations

from concurrent.futures import Future
from importlib import import_module
from typing import Any, Protocol

from creditscope.errors import CreditscopeError, unknown

LIBRARIES = {"ray": "ray", "slurm": "submitit", "dask": "distributed"}
"""What an engine needs, by the name of its extra."""
ENGINES = {"local": "LocalExecutor", "ray": "RayExecutor", "slurm": "SlurmExecutor", "dask": "DaskExecutor"}


class WorkerDied(RuntimeError):
    """The process of a task ended without an answer (killed, out of memory, timed out)."""


class TaskFailed(RuntimeError):
    """The task raised: `str` is its own one-line message, `.trace` the full traceback of the worker."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace


class Executor(Protocol):
    """One `submit -> Future` shape for every engine."""

    def submit(self, fn: Any, *args: Any) -> Future[Any]: ...

    def shutdown(self, cancel: bool = False) -> None: ...


def make_executor(name: str, workers: int | None = None, **options: Any) -> Executor:
    """An engine by name. Options: `timeout`, `devices` (local), `address` (ray, dask), `slurm` (parameters), `folder` (of its
    logs), `accelerated` (each run asks the engine for a device), `per_device` (runs that share one)."""
    if name not in ENGINES:
        raise CreditscopeError(unknown("executor", name, ENGINES))
    if (per_device := options.get("per_device", 1)) < 1:
        raise CreditscopeError(f"{per_device} runs per device train nothing; give 1 or more")
    executor: Executor = getattr(import_module(f"creditscope.runs.executors.{name}"), ENGINES[name])(workers, **options)
    return executor


def needs(extra: str) -> Any:
    """The optional library of an engine, or one line that says how to get it."""
    module = LIBRARIES[extra]
    try:
        return import_module(module)
    except ImportError as error:
        raise CreditscopeError(
            f"executor {extra} needs {module} ({error}); install it: pip install 'creditscope[{extra}]'"
        ) from None
