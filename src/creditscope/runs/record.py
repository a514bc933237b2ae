"""A record: what one finished run left, and nothing that follows from it. Verdicts are computed when they are read.

spec         the settings, and by their hash the name of the run
trajectory   one line per epoch (0: before training): accuracy, train loss, norms, cosines, the checks that fired then
report       the facts of the final network as they were stored; a verdict that stands beside them is not read
full         the facts of level full, of the final network or of a kept epoch
certificate  what the updates of the final network depend on, where it was measured
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from creditscope.credit.layers import trained_layers
from creditscope.errors import CreditscopeError
from creditscope.files import read_json
from creditscope.measure.certificate import Certificate
from creditscope.measure.facts import DepthProfile, Facts
from creditscope.measure.recount import recounted
from creditscope.protocol.report import stored_certificate, stored_facts
from creditscope.training.spec import RunSpec

if TYPE_CHECKING:
    import torch

    from creditscope.runs.archive import Archive
    from creditscope.runs.store import Store
    from creditscope.training.bundle import Bundle

Line = dict[str, Any]
"""One epoch of a trajectory."""


Finished: TypeAlias = "Record | Bundle"
"""A finished run: a record, or the bundle that it is read from."""


class NotMeasured(CreditscopeError):
    """The facts of level full are not there, and nobody asked to measure them."""


def no_full(epoch: int | None) -> Facts:
    raise NotMeasured("no facts of level full were given")


@dataclass(frozen=True)
class Record:
    spec: RunSpec
    trajectory: list[Line]
    report: dict[str, Any]
    path: Path = Path()
    full: Callable[[int | None], Facts] = no_full
    """Level full at an epoch (None: the final network)."""
    versions: dict[str, str] = field(default_factory=dict)
    """Libraries that trained it."""
    device: dict[str, Any] = field(default_factory=dict)
    """What trained it; empty: a CPU, from before it was recorded."""
    certified: Callable[[], Certificate | None] = lambda: None

    @property
    def accuracy(self) -> float:
        return float(self.trajectory[-1]["accuracy"])

    @property
    def n_test(self) -> int | None:
        n = self.report.get("n_test")
        return n if isinstance(n, int) and n > 0 else None

    @cached_property
    def facts(self) -> Facts:
        """Of the final network, basic level."""
        return facts_of(self.report, self.spec, str(self.path))

    @cached_property
    def profile(self) -> DepthProfile | None:
        """The depth profile, from training or measured later; None of a null, and where nobody has measured it."""
        if self.spec.frozen or self.facts.profile is not None:
            return self.facts.profile
        try:
            return self.full(None).profile
        except NotMeasured:
            return None

    @cached_property
    def certificate(self) -> Certificate | None:
        """Of the final network; None where nobody has measured it."""
        return self.certified()

    @cached_property
    def counting(self) -> tuple[int, ...]:
        """Layers whose credit trains something."""
        stream = self.facts.stream
        return counting_layers(self.spec, stream.depth, stream.kind)

    def line(self, epoch: int | None = None) -> Line | None:
        """The line of an epoch (None: the last); None where the run has no such epoch."""
        if epoch is None:
            return self.trajectory[-1]
        return self.trajectory[epoch] if 0 <= epoch < len(self.trajectory) else None


def record_of(run: Finished) -> Record:
    """A bundle as a record; a record as it is."""
    if isinstance(run, Record):
        return run
    return Record(run.spec, run.trajectory, run.report, run.path, versions=run.versions, device=run.device)


def mixed_devices(runs: Iterable[Finished]) -> str:
    """What to say under a table whose runs were trained on different devices; "" where all are of one kind.

    A CPU from before its name was recorded is taken for any CPU.
    """
    counts = Counter((str(run.device.get("type", "cpu")), str(run.device.get("name", ""))) for run in runs)
    if len({kind for kind, _ in counts}) < 2 and len({name for _, name in counts if name}) < 2:
        return ""
    parts = (f"{n} on {kind}" + (f" ({name})" if name else "") for (kind, name), n in sorted(counts.items()))
    return f"the runs were trained on different devices, which round differently: {', '.join(parts)}"


def counting_layers(spec: RunSpec, depth: int, kind: str) -> tuple[int, ...]:
    """Layers whose credit trains something in a network of this spec."""
    return trained_layers(depth, kind, spec.credit_site, spec.first_trained)


def facts_of(report: dict[str, Any], spec: RunSpec, source: str) -> Facts:
    """The facts of a stored report over the layers that count, also where they were measured before three-check/1.1."""
    facts = stored_facts(report, source)
    return recounted(facts, counting_layers(spec, facts.stream.depth, facts.stream.kind))


def records_of(
    source: Store | Archive, specs: Iterable[RunSpec], data_dir: str | Path | None = None
) -> tuple[list[Record], list[str]]:
    """The finished runs among the specs, and one line for each directory or file that cannot be used."""
    found: list[Record] = []
    problems: list[str] = []
    for spec in specs:
        if source.has(spec):
            try:
                found.append(source.read(spec.hash, data_dir))
            except CreditscopeError as error:
                problems.append(str(error))
    return found, problems


def stored_record(store: Store, key: str, data_dir: str | Path | None) -> Record:
    """The record of a bundle of a store; what was measured of it is read, or measured, when it is asked for."""
    bundle = store.bundle(key)
    if bundle.spec.hash != key:
        raise CreditscopeError(f"{bundle.path} holds another run ({bundle.spec.hash[:10]})")
    path = store.root / "full" / f"{key}.json"

    def full(epoch: int | None) -> Facts:
        name = key if epoch is None else f"{key}-epoch-{epoch:03d}"
        return facts_of(store.cached(name, lambda: measure_full(store.bundle(key), epoch, data_dir)), bundle.spec, name)

    def certified() -> Certificate | None:
        return stored_certificate(read_json(path, "measured facts"), str(path)) if path.is_file() else None

    return replace(record_of(bundle), full=full, certified=certified)


def measure_full(
    bundle: Bundle, epoch: int | None, data_dir: str | Path | None, device: torch.device | None = None
) -> dict[str, Any]:
    """The report of level full of a finished run, at its end or after a kept epoch, from its weights; of a network at its end
    also the training facts, and of a trained one the depth profile, where training has not measured it. `device`: where it is
    measured; None: on the CPU."""
    from creditscope.data.dataset import eval_batches, profile_batches
    from creditscope.measure.weight_growth import training_facts
    from creditscope.protocol.diagnosis import diagnose
    from creditscope.training.build import build_model

    spec, dataset = bundle.spec, bundle.dataset(data_dir, device)
    known = spec.frozen or epoch is not None or bundle.report.get("facts", {}).get("profile")
    model, training = bundle.model(dataset, epoch), None
    if epoch is None:  # the seed of the spec gives the weights before the first step
        initial = build_model(spec, dataset.input_shape, dataset.n_classes).to(dataset.test_y.device)
        training = training_facts(bundle.trajectory, model.state_dict(), initial.state_dict())
    return diagnose(
        model,
        eval_batches(dataset),
        method_name=spec.label,
        credit=bundle.rule(epoch, dataset.test_y.device),
        level="full",
        run=spec.hash,
        checkpoint="final" if epoch is None else f"epoch {epoch}",
        training=training,
        **({} if known else profile_batches(dataset)),
    ).to_dict()
