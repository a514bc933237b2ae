"""Faults while runs are trained into a store: afterwards nothing is lost, nothing is there twice, and every bit is right.

By hand: python tests/trust/faults.py 100 [SEED]. First every write of a store's life in turn, from the first: the process is
killed before it, killed after it, or finds the disk full there. Then 100 faults by chance, in rounds: a new store, five faults
one after the other. Each time one undisturbed run of the same grid follows; its files must equal those of a store that nobody
disturbed. A fault by chance is one of

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
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.runs.driver import Inline, tiny_specs
from tests.runs.kills import result_hashes

from creditscope.runs.execute import Failure, run_store
from creditscope.runs.store import Store

PER_ROUND = 5
LIMIT = 120
WRITES = ("open", "fsync", "replace", "link", "mkdir", "rmdir", "unlink")
Hook = Callable[[str, int, bool], None]
"""hook(operation, its number, before or after)."""


def watch_writes(hook: Hook) -> None:
    """Call the hook around everything by which this process changes a directory or puts a file on the disk."""
    count = 0

    def around(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            if name == "open" and not args[1] & os.O_CREAT:
                return real(*args, **kwargs)
            count += 1
            mine = count
            hook(name, mine, True)
            result = real(*args, **kwargs)
            hook(name, mine, False)
            return result

        return call

    for name in WRITES:
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


def train_grid(root: Path) -> list[Failure]:
    """What a process does to the store, unless told otherwise. It trains itself: killing it kills trainer and driver at once."""
    return run_store(tiny_specs(1), Store(root / "store", create=True), Inline())


def work(
    root: Path, prepare: Callable[[], object] = lambda: None, job: Callable[[Path], list[Failure]] = train_grid
) -> int:
    """Fork a process that does the job, which says what failed; its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 9
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        publish(root / "published.log")
        prepare()
        code = min(8, len(job(root)))
    except Exception as error:
        (root / "errors.log").open("a").write(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(code)


def errors_of(root: Path) -> str:
    """The end of what its processes have said."""
    return (root / "errors.log").read_text()[-300:] if (root / "errors.log").exists() else ""


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
    number, before = rng.randint(1, 120), rng.random() < 0.5
    end(work(root, partial(watch_writes, killing(number, before))))


def killing(number: int, before: bool) -> Hook:
    def hook(name: str, k: int, early: bool) -> None:
        if k == number and early == before:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def refusing(code: int, is_refused: Callable[[str, int], bool]) -> Hook:
    """Some writes (operation, number) end with this error."""

    def hook(name: str, k: int, early: bool) -> None:
        if early and is_refused(name, k):
            raise OSError(code, os.strerror(code))

    return hook


def filling(number: int) -> Hook:
    """The disk is full at this write, and has room again after it."""
    return refusing(errno.ENOSPC, lambda name, k: k == number and name not in ("rmdir", "unlink"))


def kill_at_time(root: Path, rng: random.Random) -> None:
    pid = work(root)
    time.sleep(rng.uniform(0.0, 1.5))
    kill(pid)


def by_disk(
    ill: Callable[[random.Random], str], healed: str, code: int, names: tuple[str, ...]
) -> Callable[[Path, random.Random], None]:
    """A file system that is mounted ill and healed after it; without one of its own, these operations refuse for a while."""

    def fault(root: Path, rng: random.Random) -> None:
        if rng.random() < 0.5 and remounted(root, ill(rng)):
            end(work(root))
            remounted(root, healed)
        else:
            first, last = rng.randint(1, 80), rng.choice((1, 5, 10**9))
            hook = refusing(code, lambda name, k: name in names and first <= k < first + last)
            end(work(root, partial(watch_writes, hook)))

    return fault


def two_writers(root: Path, rng: random.Random) -> None:
    pids = [work(root) for _ in range(2)]
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
    stopped = work(root)
    time.sleep(rng.uniform(0.0, 1.0))
    os.kill(stopped, signal.SIGSTOP)
    other = work(root)
    time.sleep(0.5)
    kill(stopped)
    end(other)


FAULTS: dict[str, Callable[[Path, random.Random], None]] = {
    "kill at write": kill_at_write,
    "kill at time": kill_at_time,
    "no space": by_disk(lambda rng: f"size={rng.randint(4, 60)}k", "size=64m", errno.ENOSPC, ("fsync",)),
    "no writing": by_disk(lambda rng: "ro", "rw", errno.EROFS, ("replace", "mkdir")),
    "two writers": two_writers,
    "clock": clock,
    "hang": hang,
}
WEIGHTS = (30, 15, 20, 10, 10, 5, 10)


def mounted(root: Path) -> bool:
    """A file system of its own for the store, where root is allowed to; it can then be made full or read-only."""
    (root / "store").mkdir()
    return called("mount", "-t", "tmpfs", "-o", "size=64m", "creditscope", root / "store")


def remounted(root: Path, option: str) -> bool:
    return os.path.ismount(root / "store") and called("mount", "-o", f"remount,{option}", root / "store")


def called(*command: str | Path) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@dataclass
class Outcome:
    tried: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    runs: int = 0
    real_disk: int = 0
    """Rounds on a file system of their own."""


def settle(root: Path, told: str, quiet: dict[str, str], outcome: Outcome) -> None:
    """One undisturbed run, and what is wrong after it."""
    code = end(work(root))
    if code != 0:
        outcome.lost.append(f"{told}: the undisturbed run at the end fails ({code}) {errors_of(root)}")
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


def one_round(root: Path, names: list[str], quiet: dict[str, str], rng: random.Random, outcome: Outcome) -> None:
    root.mkdir()
    own = mounted(root)
    outcome.real_disk += own
    try:
        for name in names:
            FAULTS[name](root, rng)
            outcome.tried[name] += 1
        settle(root, f"round {root.name} ({', '.join(names)})", quiet, outcome)
    finally:
        if own:
            called("umount", "-l", root / "store")


def preload() -> None:
    """Everything that training needs, before the forks: they then cost nothing, and all run the same code."""
    import torch

    from creditscope.data import load_dataset
    from creditscope.training import loop  # noqa: F401

    torch.set_num_threads(1)
    for spec in tiny_specs(1):
        load_dataset(spec.dataset)


def undisturbed(root: Path) -> tuple[dict[str, str], list[str]]:
    """The files of a store that nobody disturbed, and the writes of its life."""
    preload()
    root.mkdir()

    def note(name: str, k: int, early: bool) -> None:
        if early:
            with (root / "writes.log").open("a") as file:
                file.write(f"{name}\n")

    if end(work(root, partial(watch_writes, note))) != 0:
        raise SystemExit("the undisturbed run fails")
    return result_hashes(root / "store"), (root / "writes.log").read_text().split()


AT_A_WRITE: dict[str, Callable[[int], Hook]] = {
    "killed before": lambda k: killing(k, before=True),
    "killed after": lambda k: killing(k, before=False),
    "disk full": filling,
}


def enumerate_faults(root: Path, quiet: dict[str, str], writes: list[str], numbers: Iterable[int]) -> Outcome:
    """Every kind of fault at each of the named writes (1 is the first of a store's life), each on a store of its own."""
    outcome = Outcome()
    for k in numbers:
        for kind, hook in AT_A_WRITE.items():
            own = root / f"{k}-{kind.replace(' ', '-')}"
            own.mkdir(parents=True)
            end(work(own, partial(watch_writes, hook(k))))
            outcome.tried[kind] += 1
            settle(own, f"{kind} at write {k} ({writes[k - 1]})", quiet, outcome)
            shutil.rmtree(own)
    return outcome


def disturb(n: int, root: Path, quiet: dict[str, str], seed: int = 0, names: list[str] | None = None) -> Outcome:
    """n random faults (or the named ones) in rounds of five."""
    rng, outcome = random.Random(seed), Outcome()
    todo = names or rng.choices([*FAULTS], WEIGHTS, k=n)
    for k in range(0, len(todo), PER_ROUND):
        one_round(root / f"{k // PER_ROUND}", todo[k : k + PER_ROUND], quiet, rng, outcome)
    return outcome


def main(args: list[str]) -> int:
    from tests.trust.record import put_row

    numbers = [int(a) for a in args if a.isdigit()]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="creditscope-faults-") as directory:
        root = Path(directory)
        quiet, writes = undisturbed(root / "quiet")
        each = Outcome() if "--by-chance" in args else enumerate_faults(root, quiet, writes, range(1, len(writes) + 1))
        done = disturb(numbers[0], root, quiet, sum(numbers[1:]))
    lost = each.lost + done.lost
    for name, n in (*each.tried.items(), *done.tried.items()):
        print(f"{name:<14} {n:>4}")
    for text in lost:
        print(f"  LOST: {text}")
    ordered, drawn = sum(each.tried.values()), sum(done.tried.values())
    disks = f"{done.real_disk} rounds on a file system of their own"
    runs, seconds = each.runs + done.runs, time.monotonic() - started
    print(
        f"{ordered} faults at {len(writes)} writes in turn, {drawn} at random, {runs} runs at the end, {len(lost)} losses; "
        f"{disks}; {seconds:.0f} s"
    )
    if "--record" in args:
        tried = f"{ordered} (three kinds at each of {len(writes)} writes), {drawn} at random"
        put_row("`make faults`", [tried, f"{runs:,} runs whole at the end, equal to the bit", f"{len(lost)} losses"])
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
