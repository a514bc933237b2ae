"""Many drivers that start at once on a new store: all succeed, and the run is trained once.

By hand: python tests/trust/starts.py 200 [DRIVERS ...]. For 2, 4 and 8 drivers each, 200 times, with both cores kept busy by
other processes: a new directory, and drivers that wait at a gate until all are there. Each makes the store, writes a plan,
trains what is missing and ends with 0. One process loads torch and forks for every driver.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.runs.driver import Inline, tiny_specs
from tests.trust.faults import end, errors_of, kill, preload, work

from creditscope.runs.execute import Failure, run_store
from creditscope.runs.store import Store

CORES = 2


@contextlib.contextmanager
def busy_cores(n: int) -> Iterator[None]:
    """n processes that only compute."""
    pids = []
    try:
        for _ in range(n):
            pid = os.fork()
            if pid == 0:
                while os.getppid() != 1:  # an end of its own, should the measurement be killed
                    sum(range(10**6))
                os._exit(0)
            pids.append(pid)
        yield
    finally:
        for pid in pids:
            kill(pid)


def driver(root: Path, gate: int) -> int:
    """Fork a driver that starts when the gate (the reading end of a pipe) closes; its pid."""
    specs = tiny_specs(1)[:1]

    def plan_and_train(root: Path) -> list[Failure]:
        store = Store(root / "store", create=True)
        store.write_plan("starts", "tiny", [spec.hash for spec in specs])
        return run_store(specs, store, Inline())

    return work(root, lambda: os.read(gate, 1), plan_and_train)


def start_together(root: Path, drivers: int) -> str:
    """Start the drivers at once on one new store; what went wrong, or nothing."""
    root.mkdir()
    gate, open_gate = os.pipe()
    pids = [driver(root, gate) for _ in range(drivers)]
    os.write(open_gate, b"x" * drivers)
    codes = [end(pid) for pid in pids]
    os.close(gate)
    os.close(open_gate)
    if any(codes):
        return f"exit codes {codes} {errors_of(root)}"
    spec = tiny_specs(1)[0]
    trained = (root / "published.log").read_text().split()
    rows = [row["hash"] for row in Store(root / "store").rows() if not row["problem"]]
    return "" if trained == rows == [spec.hash] else f"published {trained}, index {rows}, expected {spec.hash} once"


def main(args: list[str]) -> int:
    from tests.trust.record import put_row

    numbers = [int(a) for a in args if a.isdigit()]
    times, sizes = numbers[0], numbers[1:] or [2, 4, 8]
    preload()
    failed = 0
    for drivers in sizes:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="creditscope-starts-") as directory, busy_cores(CORES):
            for k in range(times):
                if wrong := start_together(Path(directory) / f"{k}", drivers):
                    failed += 1
                    print(f"  FAILED: start {k} of {drivers} drivers: {wrong}")
                shutil.rmtree(Path(directory) / f"{k}")
        print(f"{drivers} drivers: {times} starts, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{times * len(sizes)} starts, {failed} failures")
    if "--record" in args:
        tried = f"{times} starts each of {', '.join(map(str, sizes))} drivers at once on a new store, both cores busy"
        put_row("`make starts`", [tried, "every driver ends with 0, the run is trained once", f"{failed} failures"])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
