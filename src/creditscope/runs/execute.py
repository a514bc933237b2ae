"""Many runs: planned as specs, executed by whatever executor is handed in, shown with progress.

One driver loop for everything. Several drivers may work on the same directories: a run that another process trains is
waited for, and taken over if that process dies.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeElapsedColumn, TimeRemainingColumn

from creditscope.errors import CreditscopeError
from creditscope.files import make_directory
from creditscope.runs.executors import Executor
from creditscope.training.bundle import TRAJECTORY, Bundle, is_bundle, load_bundle
from creditscope.training.spec import RunSpec

if TYPE_CHECKING:
    from creditscope.runs.store import Store

POLL = 0.5
FROZEN_COST = 0.5
"""A frozen-blocks run costs about half of a full one. This and the two below give the order of the runs and the progress bar."""
ARCH_COST = {"vit-mini": 50.0, "small-cnn": 40.0}
"""An epoch against one of a ResMLP of the default width and depth, as timed on a CPU."""
METHOD_COST = {"ep": 8.0, "cb": 3.0, "sb": 3.0}
"""An epoch against one of BP."""
LOOKING = 20
"""Looking at the runs of other processes, or how far the own ones are, takes one part in as many of the driver's time at most."""
FIRST_WORD = 15.0
"""Seconds until a log that is no terminal gets its first estimate."""
DONE, BUSY, FAILED = "done", "busy", "error"


@dataclass(frozen=True)
class Failure:
    """A run that did not finish: one line, and the traceback of its worker where there is one."""

    spec: RunSpec
    message: str
    trace: str = ""


@lru_cache(maxsize=2)
def _dataset(name: str, data_dir: str | None) -> Any:
    """A worker trains many runs on the same data; it reads them once."""
    from creditscope.data import load_dataset

    return load_dataset(name, data_dir)


def train_one(spec: dict[str, Any], out: str, data_dir: str | None, device: str | None = "cpu") -> tuple[str, str, str]:
    """What a worker does: train one run into its own directory, on `device` (None: the one that this worker was given).
    (done | busy | error, message, traceback)."""
    import traceback

    from creditscope.runs.executors.local import own_device
    from creditscope.training.loop import RunBusy, train
    from creditscope.training.spec import make_spec

    try:
        train(make_spec(spec), out, dataset=_dataset(spec["dataset"], data_dir), device=device or own_device())
    except RunBusy as error:
        return BUSY, str(error), ""
    except Exception as error:  # as plain text: an exception that cannot be pickled would take its worker down
        message = str(error) if isinstance(error, CreditscopeError) else f"{type(error).__name__}: {error}"
        return FAILED, " ".join(message.split()), traceback.format_exc()
    return DONE, "", ""


def execute(
    jobs: Sequence[tuple[RunSpec, Path]],
    executor: Executor,
    *,
    data_dir: str | Path | None = None,
    console: Console | None = None,
    device: str | None = "cpu",
    finished: Callable[[RunSpec, Failure | None], None] = lambda spec, failure: None,
) -> list[Failure]:
    """Train every job; one that fails does not stop the others. Ctrl-C stops the workers and goes on to the caller."""
    todo = {spec.hash: (spec, out) for spec, out in sorted(jobs, key=lambda job: _cost(job[0]), reverse=True)}
    if not todo:  # long runs first: the last ones to finish are then short
        return []
    answers: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    failures: list[Failure] = []
    waiting: set[str] = set()
    left, pace = set(todo), _Pace()

    def submit(key: str) -> None:
        spec, out = todo[key]
        where = str(data_dir) if data_dir else None
        future = executor.submit(train_one, spec.model_dump(), str(out), where, device)
        future.add_done_callback(lambda f: answers.put((key, f)))

    def settle(key: str, failure: Failure | None) -> None:
        left.discard(key)
        if failure is not None:
            failures.append(failure)
        finished(todo[key][0], failure)

    try:
        with _Bar(todo, console or Console(stderr=True)) as bar:
            for key in todo:
                submit(key)
            while left:
                try:
                    key, future = answers.get(timeout=POLL)
                    state, message, trace = _answer(future)
                    if state == BUSY:
                        waiting.add(key)
                    else:
                        settle(key, Failure(todo[key][0], message, trace) if state == FAILED else None)
                except queue.Empty:
                    pass
                if waiting and pace.due:
                    with pace:
                        free = _free(waiting, todo)
                    for key in free:
                        waiting.discard(key)
                        if is_bundle(todo[key][1]):
                            settle(key, None)
                        else:
                            submit(key)  # its process has died: ours now
                bar.show(left)
    except KeyboardInterrupt:
        executor.shutdown(cancel=True)
        raise
    return failures


def _answer(future: Any) -> tuple[str, str, str]:
    try:
        state, message, trace = future.result()
        return str(state), str(message), str(trace)
    except BaseException as error:  # killed, out of memory, cancelled, an engine's own trouble
        name = "" if isinstance(error, CreditscopeError) else f"{type(error).__name__}: "
        return FAILED, " ".join(f"{name}{error}".split()), str(getattr(error, "trace", ""))


def _free(waiting: set[str], todo: dict[str, tuple[RunSpec, Path]]) -> list[str]:
    """Of the runs that another process had taken: those that it has finished or left."""
    from creditscope.training.loop import is_busy

    return [key for key in waiting if is_bundle(todo[key][1]) or not is_busy(todo[key][1])]


def run_specs(
    specs: Sequence[RunSpec],
    root: Path,
    executor: Executor,
    *,
    data_dir: str | Path | None = None,
    console: Console | None = None,
    device: str | None = "cpu",
) -> list[Bundle]:
    """Train every spec that is not done yet into root/<slug>; the bundles in the order of the specs."""
    make_directory(root, f"cannot create {root}", "; choose another --out")
    outs = {spec.hash: root / spec.slug for spec in specs}
    unique = {spec.hash: spec for spec in specs}
    jobs = [(spec, outs[key]) for key, spec in unique.items() if not is_bundle(outs[key])]
    try:
        failed = execute(jobs, executor, data_dir=data_dir, console=console, device=device)
    except KeyboardInterrupt:
        raise CreditscopeError(
            f"stopped; what was trained is kept in {root}: run the same command again to resume"
        ) from None
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise CreditscopeError(
            f"run {failed[0].spec.slug} failed{more}: {failed[0].message}; the others are kept, run again to retry"
        )
    return [load_bundle(outs[spec.hash]) for spec in specs]


def run_store(
    specs: Sequence[RunSpec],
    store: Store,
    executor: Executor,
    *,
    data_dir: str | Path | None = None,
    console: Console | None = None,
    device: str | None = "cpu",
) -> list[Failure]:
    """Train into the store what it lacks; the runs that failed now or are corrupted. Failures are recorded in the store."""
    from creditscope.training.loop import is_busy

    store.check_writable()
    failures: list[Failure] = []
    jobs: list[tuple[RunSpec, Path]] = []
    for spec in {spec.hash: spec for spec in specs}.values():
        if not store.out(spec).exists():
            jobs.append((spec, store.out(spec)))
            continue
        try:
            store.bundle(spec)
        except CreditscopeError as error:  # never deleted by us: it may be all that is left of days of training
            remedy = f"`creditscope runs rm {spec.hash[:10]} --store {store.root}` lets it be trained again"
            failures.append(Failure(spec, f"{error}; {remedy}"))
        is_busy(store.out(spec))  # to look is to remove the lock of a process that was killed after its last write

    def finished(spec: RunSpec, failure: Failure | None) -> None:
        with contextlib.suppress(OSError, CreditscopeError):  # a full disk: the failure is still in what we return
            if failure is None:
                store.clear_failure(spec)
            else:
                store.record_failure(spec, failure.message, failure.trace)

    try:
        return failures + execute(jobs, executor, data_dir=data_dir, console=console, device=device, finished=finished)
    finally:
        with contextlib.suppress(Exception):  # an index is brought up to date by the next reader
            store.refresh()


def _epoch_cost(spec: RunSpec) -> float:
    frozen = FROZEN_COST if spec.frozen else 1.0
    return frozen * ARCH_COST.get(spec.arch or "", 1.0) * METHOD_COST.get(spec.method, 1.0)


def _cost(spec: RunSpec) -> float:
    return (spec.epochs or 0) * _epoch_cost(spec)


def _epochs_done(out: Path) -> int:
    """Epochs that an unfinished run has recorded (its first line is the initialisation)."""
    try:
        return max(0, (_partial(out) / TRAJECTORY).read_bytes().count(b"\n") - 1)
    except OSError:
        return 0


def _partial(out: Path) -> Path:
    """Where a run is trained until it is whole."""
    return out.with_name(f".{out.name}.partial")


class _Pace:
    """When to look again, where a look takes longer the more runs there are."""

    def __init__(self) -> None:
        self._next = self._start = time.monotonic()

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._next

    def __enter__(self) -> None:
        self._start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        now = time.monotonic()
        self._next = now + max(POLL, LOOKING * (now - self._start))


class _Bar:
    """Progress over all runs in epochs, each weighed by its cost; a log file gets one line instead of a moving bar."""

    def __init__(self, todo: dict[str, tuple[RunSpec, Path]], console: Console) -> None:
        self._todo, self._console = todo, console
        self._total = sum(_cost(spec) for spec, _ in todo.values())
        self._started, self._pace = time.monotonic(), _Pace()
        self._folders = {out.parent for _, out in todo.values()}
        with self._pace:
            self._before = self._done(set(todo))
        self._tell_after = float("inf") if console.is_terminal else FIRST_WORD
        parts = ("{task.description}", BarColumn(), MofNCompleteColumn(), "·", TimeElapsedColumn(), "elapsed ·")
        self._bar = Progress(*parts, TimeRemainingColumn(), "left", console=console, speed_estimate_period=60)
        self._task: TaskID = self._bar.add_task("training (epochs by cost)", total=round(self._total))

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, left: set[str]) -> None:
        if left and not self._pace.due:
            return
        with self._pace:
            done = self._done(left)
        self._bar.update(self._task, completed=round(done))
        elapsed = time.monotonic() - self._started
        # a log gets a line now and then, not a bar
        if left and done >= self._before + 1 and elapsed > self._tell_after:
            minutes = elapsed * (self._total - done) / (done - self._before) / 60
            self._console.print(f"{len(left)} of {len(self._todo)} runs left, {duration_text(minutes)}", soft_wrap=True)
            self._tell_after = 3 * elapsed

    def _done(self, left: set[str]) -> float:
        """Weighed epochs that are trained, of runs that were interrupted too."""
        done = self._total
        begun = {path for folder in self._folders for path in folder.glob("*.partial")}  # one look for all of them
        for key in left:
            spec, out = self._todo[key]
            epochs = _epochs_done(out) if _partial(out) in begun else 0
            done -= _cost(spec) - epochs * _epoch_cost(spec)
        return done


def duration_text(minutes: float) -> str:
    if minutes >= 1.5:
        return f"about {minutes:.0f} minutes"
    return "about a minute" if minutes >= 0.75 else "less than a minute"
