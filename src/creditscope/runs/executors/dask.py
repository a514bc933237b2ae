"""Dask: a scheduler that is there already (`--address`), or a local cluster of one-thread processes."""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import Any

from creditscope.runs.executors import needs


class DaskExecutor:
    """`accelerated`: each run asks for the resource GPU, or for its share of one where `per_device` run on it at the same
    time. Workers of your own offer it: `dask worker ... --resources "GPU=1"`; those of a local cluster share one GPU."""

    def __init__(
        self,
        workers: int | None = None,
        address: str | None = None,
        accelerated: bool = False,
        per_device: int = 1,
        **_: Any,
    ) -> None:
        distributed = needs("dask")
        self._cluster = None
        share = {"resources": {"GPU": 1 / per_device}} if accelerated else {}
        if address is None:
            self._cluster = distributed.LocalCluster(
                n_workers=per_device if accelerated else workers or os.cpu_count() or 1,
                **share,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                host="127.0.0.1",
            )
        self._client = distributed.Client(self._cluster or address)
        # the directory of a run is locked and atomic, so a task that Dask starts again does no harm; retries are ours
        self._executor = self._client.get_executor(pure=False, retries=0, **share)

    def submit(self, fn: Any, *args: Any) -> Future[Any]:
        future: Future[Any] = self._executor.submit(fn, *args)
        return future

    def shutdown(self, cancel: bool = False) -> None:
        self._executor.shutdown(wait=not cancel)  # not waiting cancels what is pending
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()
