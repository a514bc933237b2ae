"""What a study reads (finished runs) and what it leaves (one table, one figure's data, one sentence)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.credit.base import trained_layers
from creditscope.errors import CreditscopeError
from creditscope.files import plain
from creditscope.measure.facts import Facts
from creditscope.measure.recount import recounted
from creditscope.protocol.report import DiagnosticReport
from creditscope.render.numbers import num, signed
from creditscope.studies.published import Published
from creditscope.training.spec import RunSpec

if TYPE_CHECKING:
    from creditscope.runs.store import Store
    from creditscope.training.bundle import Bundle


class NotMeasured(CreditscopeError):
    """The facts of level full are not there, and nobody asked to measure them."""


def counting_layers(spec: RunSpec, depth: int, kind: str) -> tuple[int, ...]:
    """Layers whose credit trains something in a network of this spec."""
    return trained_layers(depth, kind, spec.credit_site, spec.first_trained)


def counted(facts: Facts, spec: RunSpec) -> Facts:
    """Facts of a run of this spec over the layers that count, also where they were measured before three-check/1.1."""
    return recounted(facts, counting_layers(spec, facts.stream.depth, facts.stream.kind))


def _no_full(epoch: int | None) -> Facts:
    raise LookupError("no facts of level full were given")


@dataclass(frozen=True)
class Run:
    """One finished run as a study sees it; `full(epoch)` measures level full (None: the final network) once and keeps it."""

    spec: RunSpec
    trajectory: list[dict[str, Any]]
    report: dict[str, Any]
    path: Path = Path()
    full: Callable[[int | None], Facts] = _no_full
    versions: dict[str, str] = field(default_factory=dict)
    """Libraries that trained it."""

    @property
    def accuracy(self) -> float:
        return float(self.trajectory[-1]["accuracy"])

    @property
    def n_test(self) -> int | None:
        n: int | None = self.report.get("n_test")
        return n

    @cached_property
    def facts(self) -> Facts:
        return counted(DiagnosticReport.from_dict(self.report, str(self.path)).facts, self.spec)

    @property
    def loss_decrease(self) -> float:
        """train_loss of the last epoch minus that of the first (negative: it fell)."""
        losses = [float(line["train_loss"]) for line in self.trajectory if line["epoch"] >= 1]
        return losses[-1] - losses[0]

    @property
    def last_h(self) -> float:
        """mean ‖h_L‖."""
        return float(self.trajectory[-1]["h"][-1])


@dataclass(frozen=True)
class StudyResult:
    """One table, the plain numbers of one figure, and the sentence that follows from the numbers."""

    name: str
    question: str
    header: list[str]
    rows: list[list[str]]
    figure: dict[str, Any]
    conclusion: str
    convention: str
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        content: dict[str, Any] = plain(asdict(self))
        return content


def runs_of(store: Store, specs: Iterable[RunSpec], data_dir: str | Path | None = None) -> tuple[list[Run], list[str]]:
    """The finished runs among the specs, and one line for each directory that cannot be used."""
    runs: list[Run] = []
    problems: list[str] = []
    for spec in specs:
        if store.has(spec):
            try:
                bundle = store.bundle(spec)
                full = _measurer(store, spec, data_dir)
                runs.append(Run(spec, bundle.trajectory, bundle.report, bundle.path, full, bundle.versions))
            except CreditscopeError as error:
                problems.append(str(error))
    return runs, problems


def _measurer(store: Store, spec: RunSpec, data_dir: str | Path | None) -> Callable[[int | None], Facts]:
    def full(epoch: int | None) -> Facts:
        name = spec.hash if epoch is None else f"{spec.hash}-epoch-{epoch:03d}"
        measured = store.cached(name, lambda: measure_full(store.bundle(spec), epoch, data_dir))
        return counted(DiagnosticReport.from_dict(measured, name).facts, spec)

    return full


def measure_full(bundle: Bundle, epoch: int | None, data_dir: str | Path | None) -> dict[str, Any]:
    """The report of level full of a finished run, at its end or after a kept epoch, from its weights."""
    from creditscope.data import load_dataset
    from creditscope.data.dataset import eval_batches
    from creditscope.protocol.diagnosis import diagnose

    spec, dataset = bundle.spec, load_dataset(bundle.spec.dataset, data_dir)
    return diagnose(
        bundle.model(dataset, epoch),
        eval_batches(dataset),
        method_name=spec.label,
        credit=bundle.rule(epoch),
        level="full",
        run=spec.hash,
        checkpoint="final" if epoch is None else f"epoch {epoch}",
    ).to_dict()


# ---- small arithmetic that every study shares -------------------------------------------------------------------------


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def shared_seeds(seeds: Mapping[Any, Iterable[int]]) -> list[int]:
    """The seeds that all have."""
    return sorted(set.intersection(*map(set, seeds.values())))


def geometric(values: Sequence[float]) -> float:
    """Mean of the exponents, for orders of magnitude."""
    return math.prod(values) ** (1 / len(values))


def over(
    shared: Sequence[int],
    seeds: Sequence[int],
    values: Sequence[float],
    average: Callable[[Sequence[float]], float] = mean,
) -> float:
    return average([value for seed, value in zip(seeds, values, strict=True) if seed in shared])


def named(shared: Sequence[int]) -> str:
    return f"the seed{'s' if len(shared) > 1 else ''} that all have ({', '.join(map(str, shared))})"


def means_over(counts: Iterable[int]) -> str:
    """How many seeds stand behind the numbers of a sentence."""
    found = sorted(set(counts))
    if not found or found[-1] == 1:
        return "one seed each"
    return f"means over {found[0]} to {found[-1]} seeds" if len(found) > 1 else f"means over {found[0]} seeds"


def pm(values: Sequence[float], digits: int = 3) -> str:
    """Mean ± sample standard deviation; one value: the value."""
    if not values:
        return "–"
    if len(values) == 1:
        return num(values[0], digits)
    centre = mean(values)
    std = math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))
    return f"{num(centre, digits)} ± {num(std, 2)}"


def span(values: Sequence[float]) -> str:
    """Smallest to largest."""
    if not values:
        return "–"
    low, high = num(min(values), 2), num(max(values), 2)
    return low if low == high else f"{low} to {high}"


def deep_cosine(facts: Facts) -> float | None:
    """Mean cosine over the layers of 1..L that count, without exact ones where others are left."""
    c = facts.concentration
    if c is None:
        return None
    return c.deep_mean if c.deep_mean_without_exact is None else c.deep_mean_without_exact


def deep_cosine_of_all(facts: Facts) -> float | None:
    """Mean cosine over all layers 1..L: what the papers quote."""
    return facts.concentration.deep_mean_all_layers if facts.concentration else None


def deep_rho(facts: Facts) -> float | None:
    """ρ of the audited credit over the layers of 1..L that count, without exact ones where others are left."""
    means = facts.perturbation.credit if facts.perturbation else None
    if means is None:
        return None
    return means.deep_mean if means.deep_mean_without_exact is None else means.deep_mean_without_exact


def deep_nudge(facts: Facts) -> float | None:
    means = facts.nudging.credit if facts.nudging else None
    if means is None:
        return None
    return means.deep_mean if means.deep_mean_without_exact is None else means.deep_mean_without_exact


def deep_rho_of_all(facts: Facts) -> float | None:
    """ρ over all layers 1..L: what the papers quote."""
    means = facts.perturbation.credit if facts.perturbation else None
    return None if means is None else means.deep_mean_all_layers


def deep_nudge_of_all(facts: Facts) -> float | None:
    """Nudging over all layers 1..L: what the papers quote."""
    means = facts.nudging.credit if facts.nudging else None
    return None if means is None else means.deep_mean_all_layers


def known(values: Iterable[float | None]) -> list[float]:
    return [v for v in values if v is not None and math.isfinite(v)]


def beside(published: Published | None, ours: float | None) -> list[str]:
    """Two cells: published value (with a mark where it is contested), and ours minus published."""
    if published is None:
        return ["–", "–"]
    return [published.text, "–" if ours is None else signed(ours - published.value)]


def names(labels: Iterable[str]) -> str:
    """ "a, b and c", "none"."""
    found = list(dict.fromkeys(labels))
    if len(found) < 2:
        return found[0] if found else "none"
    return f"{', '.join(found[:-1])} and {found[-1]}"
