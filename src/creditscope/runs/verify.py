"""Is a recorded run what its spec gives? Train it again, whole or its first epochs, and compare every number of the trajectory.

The same creditscope and torch on the same kind of processor give the same bits. Others round differently, and training
amplifies it; then every epoch is compared by the tolerance below: that of the epochs between the first and the last is wider,
for the learning rate is high there. What rounding has parted never meets again: a number that differs before an epoch of equal
bits was not computed by this training.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from creditscope.errors import CreditscopeError
from creditscope.files import plain
from creditscope.measure.facts import Fact, Facts
from creditscope.protocol.report import stored_facts
from creditscope.runs.archive import Archive
from creditscope.runs.record import Record
from creditscope.runs.store import Store
from creditscope.stream.devices import find_device
from creditscope.training.loop import Progress, train
from creditscope.training.spec import RunSpec

ROUNDING = 1e-5


@dataclass(frozen=True)
class Limits:
    """How far two trainings may differ that round differently."""

    accuracy: float
    factor: float
    """Of norms, growth and train loss."""
    cosine: float

    def __str__(self) -> str:
        return (
            f"accuracy within {100 * self.accuracy:g} pp, norms, growth and train loss within a factor of {self.factor:g}, "
            f"cosines and Γ within {self.cosine:.2f}"
        )


LAST, BETWEEN = Limits(0.02, 2.0, 0.10), Limits(0.05, 4.0, 0.20)
TOLERANCE = (
    f"every epoch is compared: at epoch 0, and wherever a later epoch is equal to the bit, every number within 1e-5; after the "
    f"last one {LAST}, the same checks fired; in between {BETWEEN}"
)
REPORTED = ("facts", "headline_acc", "n_test")
"""Entries of a report that are compared."""
NAMES = {"h": "‖h‖", "g_per_sample": "‖g‖", "train_loss": "train loss", "gamma": "Γ", "fired": "checks fired"} | {
    name: f"{name} of the report" for name in REPORTED
}


@dataclass(frozen=True)
class Difference:
    epoch: int
    name: str
    """Of an entry of the trajectory, or of the report."""
    recorded: Any
    here: Any
    layer: int | None = None

    @property
    def what(self) -> str:
        """As a person reads it."""
        return NAMES.get(self.name, self.name.replace("_", " ")) + (
            "" if self.layer is None else f" at layer {self.layer}"
        )


@dataclass(frozen=True)
class Verification:
    run: Record
    epochs: int
    versions: dict[str, str]
    """Libraries here."""
    differences: tuple[Difference, ...]
    """Every number that is not equal to the bit, in the order of the epochs."""
    beyond: tuple[Difference, ...]
    """What is outside the tolerance, or of another shape or kind."""
    device: dict[str, Any] = field(default_factory=dict)
    """That of here."""

    @property
    def same_device(self) -> bool:
        """Of one class, and of one name as far as names are recorded: the numbers are then to be equal to the bit."""
        then, now = self.run.device, self.device
        same_type = then.get("type", "cpu") == now.get("type", "cpu")
        return same_type and then.get("name", now.get("name")) == now.get("name")

    @property
    def status(self) -> str:
        return "exact" if not self.differences else "not reproduced" if self.beyond else "within tolerance"


def pick(source: Store | Archive, prefix: str | None) -> Record:
    """The run whose hash starts with `prefix`; any, by chance, where None is given."""
    if prefix is not None:
        return source.read(source.find(prefix))
    # a damaged record of an archive is a finding
    rows = source.rows() if isinstance(source, Store) else [{"hash": key, "problem": ""} for key in source.hashes()]
    if not (found := [str(row["hash"]) for row in rows if not row["problem"]]):
        raise CreditscopeError(
            f"{source.root} has no finished run that can be read; `creditscope runs list --store {source.root}` says why"
        )
    return source.read(random.SystemRandom().choice(found))


def shortened(spec: RunSpec, epochs: int | None) -> RunSpec:
    """The first epochs of a run: the same schedule, stopped early."""
    whole = spec.epochs or 0
    if epochs is None or epochs == whole:
        return spec
    if not 1 <= epochs < whole:
        raise CreditscopeError(f"--epochs {epochs}: the run has {whole} epochs; give 1 to {whole}")
    kept = tuple(e for e in spec.checkpoint_epochs if e <= epochs)
    return spec.changed(epochs=epochs, schedule_epochs=spec.schedule_epochs or whole, checkpoint_epochs=kept)


def kind_of(run: Record) -> str:
    """The kind of device that trained a run, where there is one here; else the CPU."""
    try:
        return find_device(run.device.get("type", "cpu")).type
    except CreditscopeError:
        return "cpu"


def verify(
    run: Record,
    epochs: int | None = None,
    data_dir: str | Path | None = None,
    progress: Progress | None = None,
    device: str | torch.device = "cpu",
) -> Verification:
    """Train again in a directory of its own, which is removed, and compare."""
    spec = shortened(run.spec, epochs)
    if len(run.trajectory) <= (spec.epochs or 0):
        raise CreditscopeError(f"{run.path} has {len(run.trajectory)} lines of trajectory for {run.spec.epochs} epochs")
    try:
        made = TemporaryDirectory(prefix="creditscope-verify-")
    except OSError as error:
        raise CreditscopeError(f"no directory to train in ({error.strerror or error}); set TMPDIR to one") from None
    with made as directory:
        bundle = train(spec, Path(directory) / "again", data_dir=data_dir, progress=progress, device=device)
        lines, report = plain(bundle.trajectory), bundle.report
    recorded = plain(run.trajectory[: len(lines)])
    if not any("gamma_all_layers" in line for line in recorded):  # from before three-check/1.1: Γ was over all layers
        for line in lines:
            line["gamma"] = line.pop("gamma_all_layers")
    differences = [d for a, b in zip(recorded, lines, strict=True) for d in _unequal(a, b)]
    last = len(lines) - 1
    parted = max((k for k in range(last + 1) if recorded[k] == lines[k]), default=0)
    beyond = [d for d in differences if not _comparable(d) or not _tolerated(d, parted, last)]
    if spec == run.spec:
        found = _of_report(run.report, report, len(lines) - 1)
        if not differences:  # trained to the same bits, and another report: not by rounding
            beyond += found
        differences += found
    return Verification(run, len(lines) - 1, bundle.versions, tuple(differences), tuple(beyond), bundle.device)


def _of_report(recorded: dict[str, Any], here: dict[str, Any], epoch: int) -> list[Difference]:
    """What differs between the facts and accuracies of the final network; the verdict follows from them."""
    then = stored_facts(recorded)
    now: Facts = _as_held(then, stored_facts(here))
    if then.profile is None:  # records from before profiles may hold a null
        now = now.model_copy(update={"profile": None})
    if recorded.get("schema_version") != here.get("schema_version"):
        facts = [_of_both(then), _of_both(now)]
    else:
        facts = [f.model_dump(mode="json") for f in (then, now)]
    for each in facts:
        each["convention"].pop("device")  # it is compared by itself
        each.get("stream", {}).pop("notes", None)  # words
    pairs: dict[str, list[Any]] = {name: [recorded.get(name), here.get(name)] for name in REPORTED} | {"facts": facts}
    return [Difference(epoch, name, "as it is", "another") for name, (a, b) in pairs.items() if plain(a) != plain(b)]


def _as_held(then: Any, now: Any) -> Any:
    """`now`, with the fields that the stored facts do not hold as they are there: the record is from before them."""
    if isinstance(then, Fact) and type(then) is type(now):
        names = type(then).model_fields
        pairs = {name: (getattr(then, name), getattr(now, name)) for name in names}
        held = {name: _as_held(*pair) if name in then.model_fields_set else pair[0] for name, pair in pairs.items()}
        return now.model_copy(update=held)
    if isinstance(then, tuple) and isinstance(now, tuple) and len(then) == len(now):
        return tuple(map(_as_held, then, now))
    return now


def _of_both(facts: Facts) -> dict[str, Any]:
    """What facts of schema 1 and of schema 2 say alike: all that does not depend on which layers count."""
    kept = facts.model_dump(include={"convention", "accuracy", "loss", "scale", "reference", "stability", "non_finite"})
    kept["alignment"] = facts.alignment.model_dump(exclude={"counting", "counting_note"}) if facts.alignment else None
    kept["gamma_all_layers"] = facts.aggregate.gamma_all_layers if facts.aggregate else None
    kept["deep_mean_all_layers"] = facts.concentration.deep_mean_all_layers if facts.concentration else None
    return kept


@dataclass(frozen=True)
class Compared:
    """Two measurements of one final network."""

    differences: tuple[Difference, ...]
    beyond: tuple[Difference, ...]
    """What is outside the tolerance of the last epoch."""


def compare_final(recorded: Facts, here: Facts, epoch: int) -> Compared:
    """The facts of a final network against those of the same spec trained here, where no trajectory is at hand."""
    differences = tuple(_unequal(_final(recorded, epoch), _final(here, epoch)))
    return Compared(differences, tuple(d for d in differences if not _comparable(d) or not _within(d, LAST)))


def _final(facts: Facts, epoch: int) -> dict[str, Any]:
    """What a line of a trajectory holds of the network."""
    line: dict[str, Any] = {
        "epoch": epoch,
        "h": list(facts.scale.mean),
        "g_per_sample": list(facts.reference.per_sample),
        "growth": facts.scale.growth,
        "cosine": list(facts.alignment.mean) if facts.alignment else None,
        "gamma": facts.aggregate.headline if facts.aggregate else None,
    }
    values: dict[str, Any] = plain(line)
    return values


def _unequal(recorded: dict[str, Any], here: dict[str, Any]) -> Iterator[Difference]:
    epoch = int(recorded["epoch"])
    for name in dict.fromkeys([*recorded, *here]):
        a, b = recorded.get(name), here.get(name)
        if name != "fired" and isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            pairs = enumerate(zip(a, b, strict=True))
            yield from (Difference(epoch, name, x, y, k) for k, (x, y) in pairs if x != y)
        elif a != b:
            yield Difference(epoch, name, a, b)


def _comparable(d: Difference) -> bool:
    """Two numbers, or things of the same kind (what is not finite is text; lists come here when their lengths differ)."""
    a, b = d.recorded, d.here
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys()
    return d.name == "fired" if isinstance(a, list) and isinstance(b, list) else _number(a) and _number(b)


def _number(a: Any) -> bool:
    return isinstance(a, int | float) and not isinstance(a, bool)


def _rounded(d: Difference) -> bool:
    """Nothing has been trained yet: what differs is rounding, or it is another network, another rule or other data."""
    if not (_number(d.recorded) and _number(d.here)):
        return isinstance(d.recorded, dict) and isinstance(d.here, dict)
    return math.isclose(d.recorded, d.here, rel_tol=ROUNDING, abs_tol=ROUNDING)


def _tolerated(d: Difference, parted: int, last: int) -> bool:
    """`parted`: the last epoch of equal bits; rounding cannot have parted the two trainings before it."""
    if d.epoch <= parted:
        return _rounded(d)
    if d.epoch == last:
        return _within(d, LAST)
    return d.name == "fired" or _within(d, BETWEEN)  # when a check first fires may shift by an epoch


def _within(d: Difference, limits: Limits) -> bool:
    a, b = d.recorded, d.here
    if not (_number(a) and _number(b)):
        return isinstance(a, dict) and isinstance(b, dict)
    if d.name == "accuracy":
        return bool(abs(a - b) <= limits.accuracy)
    if d.name in ("cosine", "gamma"):
        return bool(abs(a - b) <= limits.cosine)
    if d.name in ("h", "g_per_sample", "growth", "train_loss"):
        return a > 0 and b > 0 and abs(math.log(a / b)) <= math.log(limits.factor)
    return True  # stability: a mean over pairs of batches near zero
