"""The driver at many runs: python -m benchmarks.driver [--runs N] [--workers 1000] [--failures 0.05] [--store DIR] [--json]

The whole way of `study run` but for the training: the plan, the store, the loop, failures, the command again until nothing is
left, the index, `runs list` and `study status`. The workers are simulated: an executor with a clock of its own finishes the
runs in the order of that clock and writes each as a whole bundle. What it does is counted apart from the driver's time.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import heapq
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from creditscope.files import dump_json
from creditscope.runs.execute import DONE, FAILED, run_store
from creditscope.runs.executors import WorkerDied
from creditscope.runs.store import Store
from creditscope.training.bundle import PARTS, SPEC, TRAJECTORY, versions
from creditscope.training.spec import SCHEMA_VERSION, RunSpec, make_spec

LINE = {"accuracy": 0.5, "growth": 1.5, "g_per_sample": [1e-3, 1e-3], "gamma": None, "fired": []}
DIES, RAISES, SILENT = "dies", "raises", "silent"
"""How a run fails: its worker is gone with half of it written; it answers an error; it is whole, but the answer is lost."""


class Simulated:
    """`workers` workers that train nothing; a share `failures` of the runs fails, drawn by `seed`."""

    def __init__(self, root: Path, workers: int, failures: float, seed: int = 0) -> None:
        self._parts = root
        self._digests = {}
        for name in PARTS:
            content = b"".join(json.dumps(LINE).encode() + b"\n" for _ in range(2)) if name == TRAJECTORY else b"{}"
            (root / name).write_bytes(content)
            self._digests[name] = hashlib.sha256(content).hexdigest()
        self._versions = versions()
        self._workers, self._failures, self._draw = workers, failures, random.Random(seed)
        self._waiting: deque[tuple[Future[Any], dict[str, Any], Path]] = deque()
        self._more, self._closed = threading.Condition(), False
        self.started: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.most_at_once = 0
        self.seconds = 0.0
        """Processor time of the simulation itself."""
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def submit(self, fn: Any, *args: Any) -> Future[Any]:
        spec, out, *_ = args
        future: Future[Any] = Future()
        with self._more:
            self._waiting.append((future, spec, Path(out)))
            self._more.notify()
        return future

    def shutdown(self, cancel: bool = False) -> None:
        with self._more:
            self._closed = True
            self._more.notify()
        self._thread.join()

    def _loop(self) -> None:
        now, order = 0.0, 0
        busy: list[tuple[float, int, Future[Any], dict[str, Any], Path]] = []
        while True:
            with self._more:
                while not busy and not self._waiting and not self._closed:
                    self._more.wait()
                if self._closed and not busy and not self._waiting:
                    return
                while self._waiting and len(busy) < self._workers:
                    future, spec, out = self._waiting.popleft()
                    order += 1
                    heapq.heappush(busy, (now + self._draw.expovariate(1.0), order, future, spec, out))
            self.most_at_once = max(self.most_at_once, len(busy))
            now, _, future, spec, out = heapq.heappop(busy)
            start = time.thread_time()
            answer = self._trained(spec, out)
            self.seconds += time.thread_time() - start
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _trained(self, spec: dict[str, Any], out: Path) -> tuple[str, str, str] | WorkerDied:
        self.started[out.name] += 1
        how = self._draw.choice((DIES, RAISES, SILENT)) if self._draw.random() < self._failures else ""
        if how == RAISES:
            self.failed[how] += 1
            return FAILED, "RuntimeError: simulated", "Traceback"
        partial = out.with_name(f".{out.name}.partial")
        partial.mkdir(exist_ok=True)
        for name in PARTS[:2] if how == DIES else PARTS:
            with contextlib.suppress(FileExistsError):
                os.link(self._parts / name, partial / name)
        if how == DIES:
            self.failed[how] += 1
            return WorkerDied("simulated")
        content = {
            "schema_version": SCHEMA_VERSION,
            "spec": spec,
            "spec_hash": out.name,
            "versions": self._versions,
            "files": self._digests,
        }
        (partial / SPEC).write_bytes(dump_json(content))
        os.rename(partial, out)  # a second run of the same spec would fail here
        self.written[out.name] += 1
        if how == SILENT:
            self.failed[how] += 1
            return WorkerDied("simulated")
        return DONE, "", ""


def specs(n: int) -> list[RunSpec]:
    return [make_spec({"width": 8, "depth": 1 + k % 3, "epochs": 1 + k % 5, "seed": k}) for k in range(n)]


def simulate(root: Path, runs: int, workers: int, failures: float) -> dict[str, Any]:
    """Plan, run until nothing is left, list. Seconds are processor time of the driver."""
    found: dict[str, Any] = {"runs": runs, "workers": workers, "failures": failures}
    specs(1)  # the libraries are loaded
    before = _peak()
    with _timed(found, "plan_s"):
        planned = specs(runs)
        store = Store(root / "store", create=True)
        store.write_plan("simulation", "smoke", [spec.hash for spec in planned])
    parts = root / "parts"
    parts.mkdir()
    executor = Simulated(parts, workers, failures)
    quiet = Console(file=io.StringIO())
    left, commands = runs, 0
    while left:
        commands += 1
        with _timed(found, "first_s" if commands == 1 else "again_s"):
            failed = run_store(planned, store, executor, console=quiet)
        lost = {f.spec.hash for f in failed}
        recorded = store.failures()
        whole = {h for h in lost if (store.out(h) / SPEC).is_file()}
        assert set(recorded) == lost - whole, "the failures of the store are those that were met"
        left = runs - sum(store.has(spec) for spec in planned)
        assert commands < 50, "the failures are drawn anew: a few commands are enough"
    executor.shutdown()
    found |= {
        "commands": commands,
        "workers_at_once": executor.most_at_once,
        "simulation_s": executor.seconds,
        "failed": dict(executor.failed),
        "lost": sum(executor.written[spec.hash] == 0 for spec in planned),
        "twice": sum(count > 1 for count in executor.written.values()),
        "started_again_when_whole": sum(executor.started.values())
        - runs
        - executor.failed[DIES]
        - executor.failed[RAISES],
        "rows": sum(not row["problem"] for row in store.rows()),
        "peak_mb": (_peak() - before) / 2**20,
    }
    for name, command in (("list_s", ("runs", "list")), ("status_s", ("study", "status"))):
        found[name] = _command(*command, "--store", str(store.root))
    return found


@contextmanager
def _timed(found: dict[str, Any], name: str) -> Iterator[None]:
    start = time.thread_time()
    yield
    found[name] = found.get(name, 0.0) + time.thread_time() - start


def _command(*arguments: str) -> float:
    """Processor seconds of a command, the start of Python in them."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "creditscope", *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _peak() -> int:
    """Bytes of this process at its peak so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def apart(runs: int, workers: int, failures: float, store: Path | None) -> dict[str, Any]:
    """`simulate` in a process of its own, so that the peak of its memory is its own."""
    command = [sys.executable, "-m", "benchmarks.driver", "--json", "--runs", str(runs), "--workers", str(workers)]
    command += ["--failures", str(failures), *(["--store", str(store)] if store else [])]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--failures", type=float, default=0.05)
    parser.add_argument("--store", type=Path, help="directory in which the store is made; removed afterwards")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="driver-", dir=options.store))
    try:
        found = simulate(root, options.runs, options.workers, options.failures)
    finally:
        shutil.rmtree(root)
    show: Callable[[Any], str] = json.dumps if options.json else lambda v: "\n".join(f"{k}: {x}" for k, x in v.items())
    print(show(found))


if __name__ == "__main__":
    main()
