"""Is a recorded run what its spec gives? Train it again, whole or its first epochs, and compare every number of the trajectory.

The same torch on the same kind of processor gives the same bits. Another one rounds differently, and training amplifies
it; then the last epoch that both have is compared by the tolerance below.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from creditscope.errors import CreditscopeError
from creditscope.files import plain
from creditscope.studies.archive import Archive
from creditscope.studies.result import Run, runs_of
from creditscope.studies.store import Store
from creditscope.training.loop import Progress, train
from creditscope.training.spec import RunSpec, make_spec

ACCURACY, FACTOR, COSINE = 0.02, 2.0, 0.10
TOLERANCE = "accuracy within 2 pp, ‖h‖ and ‖g‖ of every layer within a factor 2, cosines within .10"
NAMES = {"h": "‖h‖", "g_per_sample": "‖g‖"}


@dataclass(frozen=True)
class Difference:
    epoch: int
    what: str
    recorded: Any
    here: Any


@dataclass(frozen=True)
class Verification:
    run: Run
    epochs: int
    versions: dict[str, str]
    """Libraries here."""
    differences: tuple[Difference, ...]
    """Every number that is not equal to the bit, in the order of the epochs."""
    beyond: tuple[Difference, ...]
    """Of the last compared epoch: what is outside the tolerance."""

    @property
    def status(self) -> str:
        return "exact" if not self.differences else "not reproduced" if self.beyond else "within tolerance"


def pick(source: Store | Archive, prefix: str | None) -> Run:
    """The run whose hash starts with `prefix`; any, by chance, where None is given."""
    if isinstance(source, Archive):
        found = sorted(path.stem for path in (source.root / "runs").glob("*.json"))
    else:
        found = sorted(str(row["hash"]) for row in source.rows() if not row["problem"])
    named = [key for key in found if prefix is None or (prefix and key.startswith(prefix))]
    if not named or (prefix is not None and len(named) > 1):
        what = f"{len(named) or 'no'} runs" if len(named) != 1 else "one run"
        raise CreditscopeError(
            f"{what} of {len(found)} in {source.root} with a hash that starts with {prefix!r}; give one of them"
        )
    key = random.SystemRandom().choice(named)
    if isinstance(source, Archive):
        return source.read(key)
    runs, problems = runs_of(source, [source.bundle(key).spec], None)
    if not runs:
        raise CreditscopeError(problems[0])
    return runs[0]


def shortened(spec: RunSpec, epochs: int | None) -> RunSpec:
    """The first epochs of a run: the same schedule, stopped early."""
    whole = spec.epochs or 0
    if epochs is None or epochs == whole:
        return spec
    if not 1 <= epochs < whole:
        raise CreditscopeError(f"--epochs {epochs}: the run has {whole} epochs; give 1 to {whole}")
    kept = tuple(e for e in spec.checkpoint_epochs if e <= epochs)
    return make_spec(
        spec.model_dump()
        | {"epochs": epochs, "schedule_epochs": spec.schedule_epochs or whole, "checkpoint_epochs": kept}
    )


def verify(
    run: Run, epochs: int | None = None, data_dir: str | Path | None = None, progress: Progress | None = None
) -> Verification:
    """Train again in a directory of its own, which is removed, and compare."""
    spec = shortened(run.spec, epochs)
    with TemporaryDirectory(prefix="creditscope-verify-") as directory:
        bundle = train(spec, Path(directory) / "again", data_dir=data_dir, progress=progress)
        lines = plain(bundle.trajectory)
    recorded = plain(run.trajectory[: len(lines)])
    differences = tuple(d for a, b in zip(recorded, lines, strict=True) for d in _unequal(a, b))
    beyond = tuple(_outside(recorded[-1], lines[-1])) if differences else ()
    return Verification(run, len(lines) - 1, bundle.versions, differences, beyond)


def _unequal(recorded: dict[str, Any], here: dict[str, Any]) -> Iterator[Difference]:
    epoch = int(recorded["epoch"])
    for name in dict.fromkeys([*recorded, *here]):
        a, b = recorded.get(name), here.get(name)
        if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            what = NAMES.get(name, name)
            yield from (
                Difference(epoch, f"{what} at layer {k}", x, y)
                for k, (x, y) in enumerate(zip(a, b, strict=True))
                if x != y
            )
        elif a != b:
            yield Difference(epoch, name.replace("_", " "), a, b)


def _outside(recorded: dict[str, Any], here: dict[str, Any]) -> Iterator[Difference]:
    for d in _unequal(recorded, here):
        within = LIMITS.get(d.what.split(" at layer")[0])
        if within is not None and not within(d.recorded, d.here):
            yield d


def _near(limit: float) -> Callable[[Any, Any], bool]:
    return lambda a, b: _numbers(a, b) and abs(a - b) <= limit


def _same_order(a: Any, b: Any) -> bool:
    return _numbers(a, b) and a > 0 and b > 0 and abs(math.log(a / b)) <= math.log(FACTOR)


def _numbers(a: Any, b: Any) -> bool:
    return isinstance(a, int | float) and isinstance(b, int | float)  # what is not finite is text here


LIMITS: dict[str, Callable[[Any, Any], bool]] = {
    "accuracy": _near(ACCURACY),
    "cosine": _near(COSINE),
    "‖h‖": _same_order,
    "‖g‖": _same_order,
    "diverged": lambda a, b: False,
}
