"""Ray: the same grid on a cluster (`--address`) or on a local Ray. A killed worker fails only its own task."""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import Any

from creditscope.runs.executors import needs


class RayExecutor:
    """`accelerated`: each run asks for a GPU, or for its share of one where `per_device` run on it at the same time."""

    def __init__(
        self,
        workers: int | None = None,
        address: str | None = None,
        accelerated: bool = False,
        per_device: int = 1,
        **_: Any,
    ) -> None:
        self._ray = needs("ray")
        if not self._ray.is_initialized():
            cpus = None if address else workers or os.cpu_count()
            self._ray.init(
                address=address,
                num_cpus=cpus,
                include_dashboard=False if not address else None,
                log_to_driver=False,
                runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}},
            )
        # max_calls=1: a fresh process per run, as everywhere else; max_retries=0: a failure is recorded, not hidden
        gpus = {"num_gpus": 1 / per_device} if accelerated else {}
        self._task = self._ray.remote(num_cpus=1, max_calls=1, max_retries=0, **gpus)(_call)
        self._refs: list[Any] = []

    def submit(self, fn: Any, *args: Any) -> Future[Any]:
        ref = self._task.remote(fn, args)
        self._refs.append(ref)
        future: Future[Any] = ref.future()
        return future

    def shutdown(self, cancel: bool = False) -> None:
        if cancel:
            for ref in self._refs:
                self._ray.cancel(ref, force=True)
        self._ray.shutdown()


def _call(fn: Any, args: tuple[Any, ...]) -> Any:
    return fn(*args)
