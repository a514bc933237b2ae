"""Random faults while runs are trained into a store: afterwards nothing is lost, nothing is there twice, and every bit is right.

By hand: python tests/trust/faults.py 100 [SEED]. In rounds: a new store, five faults one after the other, then one undisturbed
run of the same grid; its files must equal those of a store that nobody disturbed. A fault is one of

    kill at write    SIGKILL before or after the k-th rename or flush of the process that trains and writes the store
    kill at time     SIGKILL after a random time
    no space         ENOSPC from the k-th flush on, for a few times or until the process ends; on a small file system if root
    no writing       EROFS from renames and new directories from the k-th on; a read-only file system if root
    two writers      a second process on the same store; one of the two is killed
    clock            every look at the wall clock jumps by up to years, to either side
    hang             the process is stopped, a second one works on, the first is killed

One process loads torch and forks for every fault.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.studies.driver import tiny_specs
from tests.studies.kills import result_hashes

from creditscope.studies.run import run_store
from creditscope.studies.store import Store

PER_ROUND = 5
LIMIT = 120
Hook = Callable[[str, int, bool], None]
"""hook(operation, its number, before or after)."""


class Inline:
    """Trains in this very process: killing it kills trainer, driver and writer of the store at once."""

    def submit(self, fn: Any, *args: Any) -> Any:
        from concurrent.futures import Future

        future: Any = Future()
        try:
            future.set_result(fn(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, cancel: bool = False) -> None: ...


def watch_writes(hook: Hook) -> None:
    """Call the hook around every flush, rename and new directory of this process."""
    count = 0

    def around(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            mine = count
            hook(name, mine, True)
            result = real(*args, **kwargs)
            hook(name, mine, False)
            return result

        return call

    for name in ("fsync", "replace", "mkdir"):
        setattr(os, name, around(name, getattr(os, name)))


def publish(log: Path) -> None:
    """A line in the log for every run that appears under its name."""
    real = os.replace

    def replace(src: Any, dst: Any, **kwargs: Any) -> None:
        real(src, dst, **kwargs)
        if Path(dst).parent.name == "runs" and str(src).endswith(".partial"):
            with open(log, "a") as file:
                file.write(f"{Path(dst).name}\n")

    setattr(os, "replace", replace)  # noqa: B010  (mypy knows no other way to replace a function)


def work(root: Path, prepare: Callable[[], None]) -> int:
    """Fork a process that trains what the store lacks; its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 9
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        publish(root / "published.log")
        prepare()
        code = min(8, len(run_store(tiny_specs(1), Store(root / "store", create=True), Inline())))
    except Exception as error:
        (root / "errors.log").open("a").write(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(code)


def end(pid: int, limit: float = LIMIT) -> int:
    """Exit code; a process that does not end in time is killed: -9."""
    since = time.monotonic()
    while time.monotonic() - since < limit:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    kill(pid)
    return -9


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def kill_at_write(root: Path, rng: random.Random) -> None:
    number, before = rng.randint(1, 60), rng.random() < 0.5

    def hook(name: str, k: int, early: bool) -> None:
        if k == number and early == before:
            os.kill(os.getpid(), signal.SIGKILL)

    end(work(root, lambda: watch_writes(hook)))


def kill_at_time(root: Path, rng: random.Random) -> None:
    pid = work(root, lambda: None)
    time.sleep(rng.uniform(0.0, 1.5))
    kill(pid)


def refusing(code: int, names: tuple[str, ...], rng: random.Random) -> Callable[[], None]:
    first, last = rng.randint(1, 40), rng.choice((1, 5, 10**9))

    def hook(name: str, k: int, early: bool) -> None:
        if early and name in names and first <= k < first + last:
            raise OSError(code, os.strerror(code))

    return lambda: watch_writes(hook)


def no_space(root: Path, rng: random.Random) -> None:
    if rng.random() < 0.5 and remounted(root, f"size={rng.randint(4, 60)}k"):
        end(work(root, lambda: None))
        remounted(root, "size=64m")
    else:
        end(work(root, refusing(errno.ENOSPC, ("fsync",), rng)))


def no_writing(root: Path, rng: random.Random) -> None:
    if rng.random() < 0.5 and remounted(root, "ro"):
        end(work(root, lambda: None))
        remounted(root, "rw")
    else:
        end(work(root, refusing(errno.EROFS, ("replace", "mkdir"), rng)))


def two_writers(root: Path, rng: random.Random) -> None:
    pids = [work(root, lambda: None) for _ in range(2)]
    time.sleep(rng.uniform(0.0, 1.5))
    kill(pids.pop(rng.randrange(2)))
    end(pids[0])


def clock(root: Path, rng: random.Random) -> None:
    seed = rng.random()

    def prepare() -> None:
        real, mine = time.time, random.Random(seed)
        setattr(time, "time", lambda: real() + mine.uniform(-3e8, 3e8))  # noqa: B010

    end(work(root, prepare))


def hang(root: Path, rng: random.Random) -> None:
    stopped = work(root, lambda: None)
    time.sleep(rng.uniform(0.0, 1.0))
    os.kill(stopped, signal.SIGSTOP)
    other = work(root, lambda: None)
    time.sleep(0.5)
    kill(stopped)
    end(other)


FAULTS: dict[str, Callable[[Path, random.Random], None]] = {
    "kill at write": kill_at_write,
    "kill at time": kill_at_time,
    "no space": no_space,
    "no writing": no_writing,
    "two writers": two_writers,
    "clock": clock,
    "hang": hang,
}
WEIGHTS = (30, 15, 20, 10, 10, 5, 10)


def mounted(root: Path) -> bool:
    """A file system of its own for the store, where root is allowed to; it can then be made full or read-only."""
    (root / "store").mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "creditscope", str(root / "store")], capture_output=True, check=False
    )
    return done.returncode == 0


def remounted(root: Path, option: str) -> bool:
    if not os.path.ismount(root / "store"):
        return False
    given = ["mount", "-o", f"remount,{option}", str(root / "store")]
    return subprocess.run(given, capture_output=True, check=False).returncode == 0


@dataclass
class Outcome:
    tried: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    runs: int = 0
    real_disk: int = 0
    """Rounds on a file system of their own."""


def one_round(root: Path, names: list[str], quiet: dict[str, str], rng: random.Random, outcome: Outcome) -> None:
    root.mkdir()
    own = mounted(root)
    outcome.real_disk += own
    try:
        for name in names:
            FAULTS[name](root, rng)
            outcome.tried[name] += 1
        code = end(work(root, lambda: None))
        told = f"round {root.name} ({', '.join(names)})"
        if code != 0:
            errors = (root / "errors.log").read_text() if (root / "errors.log").exists() else ""
            outcome.lost.append(f"{told}: the undisturbed run at the end fails ({code}) {errors[-300:]}")
            return
        store = Store(root / "store")
        found = result_hashes(root / "store")
        if found != quiet:
            wrong = sorted(k for k in found.keys() | quiet.keys() if found.get(k) != quiet.get(k))
            outcome.lost.append(f"{told}: {wrong[:3]} differ from the undisturbed store")
        log = root / "published.log"
        if twice := [k for k, n in Counter(log.read_text().split()).items() if n > 1]:
            outcome.lost.append(f"{told}: {twice} was made twice")
        if store.failures() or store.running():
            outcome.lost.append(f"{told}: failures {list(store.failures())} or running {store.running()} are left")
        if [r["hash"] for r in store.rows() if not r["problem"]] != sorted(s.hash for s in tiny_specs(1)):
            outcome.lost.append(f"{told}: the index does not hold every run once")
        outcome.runs += len(tiny_specs(1))
    finally:
        if own:
            subprocess.run(["umount", "-l", str(root / "store")], capture_output=True, check=False)


def preload() -> None:
    """Everything that training needs, before the forks: they then cost nothing, and all run the same code."""
    import torch

    from creditscope.data import load_dataset
    from creditscope.training import loop  # noqa: F401

    torch.set_num_threads(1)
    for spec in tiny_specs(1):
        load_dataset(spec.dataset)


def disturb(n: int, root: Path, seed: int = 0, names: list[str] | None = None) -> Outcome:
    """n random faults (or the named ones) in rounds of five."""
    preload()
    rng, outcome = random.Random(seed), Outcome()
    (root / "quiet").mkdir()
    if end(work(root / "quiet", lambda: None)) != 0:
        raise SystemExit("the undisturbed run fails")
    quiet = result_hashes(root / "quiet" / "store")
    todo = names or rng.choices([*FAULTS], WEIGHTS, k=n)
    for k in range(0, len(todo), PER_ROUND):
        one_round(root / f"{k // PER_ROUND}", todo[k : k + PER_ROUND], quiet, rng, outcome)
    return outcome


def main(args: list[str]) -> int:
    from tests.trust.record import put_row

    numbers = [int(a) for a in args if a.isdigit()]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="creditscope-faults-") as directory:
        done = disturb(numbers[0], Path(directory), sum(numbers[1:]))
    for name in FAULTS:
        print(f"{name:<14} {done.tried[name]:>4}")
    for text in done.lost:
        print(f"  LOST: {text}")
    n = sum(done.tried.values())
    disks = f"{done.real_disk} rounds on a file system of their own"
    seconds = time.monotonic() - started
    print(f"{n} faults, {done.runs} runs at the end, {len(done.lost)} losses; {disks}; {seconds:.0f} s")
    if "--record" in args:
        put_row(
            "`make faults`",
            [str(n), f"{done.runs} runs whole at the end, equal to the bit", f"{len(done.lost)} losses"],
        )
    return 1 if done.lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
