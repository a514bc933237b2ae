"""Finished runs grouped over seeds, each judged with its frozen-blocks nulls and with its other seeds."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from creditscope.measure.facts import DepthMargin
from creditscope.protocol import DiagnosticThresholds
from creditscope.protocol.checks import chosen_margin
from creditscope.protocol.consistency import evaluation_of
from creditscope.protocol.report import DiagnosticReport, make_report
from creditscope.protocol.strategies import STRATEGIES, Case, Decision
from creditscope.runs.record import Finished, Record, record_of
from creditscope.training.spec import RunSpec, norm_remark

if TYPE_CHECKING:
    from creditscope.training.bundle import Bundle

NULL_KINDS: tuple[Literal["matched"], Literal["bp"]] = ("matched", "bp")
ORDER = ("bp", "ep", "fa", "dfa", "cb", "sb")

F = TypeVar("F", bound="Record | Bundle")


class Outcome(Enum):
    """What the protocol says of the networks of a group."""

    PASS = "pass"
    FAIL = "fail"
    INCONSISTENT = "inconsistent"
    INCONCLUSIVE = "inconclusive"
    INCOMPLETE = "incomplete"
    MIXED = "mixed"
    """The seeds disagree."""


@dataclass(frozen=True)
class Finding:
    """The verdicts of a group, one per network."""

    outcome: Outcome
    statuses: tuple[str, ...]
    lines: tuple[str, ...]
    """The verdict lines of the protocol."""
    null: str = ""
    """The null that D3 was judged by, where it is not the matched one."""

    def summary(self, networks: str) -> str:
        """The verdict line that all have; else how many of the `networks` have which status."""
        if len(set(self.lines)) == 1:
            return self.lines[0]
        counts, n = Counter(self.statuses), len(self.statuses)
        return "; ".join(f"{k} of {n} {networks} {status}" for status, k in counts.items())


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """One row of the audit table: a report that was given by itself, or (`Group`) the networks of one method over seeds."""

    label: str
    reports: tuple[DiagnosticReport, ...]

    @property
    def task(self) -> str:
        """What the network is, in a few words."""
        return self.reports[0].notes

    @property
    def count(self) -> int:
        """Networks behind the accuracy."""
        return len(self.accuracies)

    @property
    def names(self) -> list[str]:
        """Each of the networks that have a report, as a link names it."""
        return ["report"] if len(self.reports) == 1 else [f"report {k + 1}" for k in range(len(self.reports))]

    @property
    def accuracies(self) -> tuple[float, ...]:
        return self.reports[0].headline_acc

    @property
    def marked_accuracies(self) -> list[tuple[str, float]]:
        """(what a mark in a figure is called, accuracy)."""
        return [(f"claimed, {k + 1} of {self.count}", acc) for k, acc in enumerate(self.accuracies)]

    @property
    def margins(self) -> tuple[DepthMargin, ...]:
        """To each null."""
        depth = self.reports[0].facts.depth
        return depth.margins if depth else ()

    def margin(self, null: str) -> DepthMargin | None:
        """To this null; None where it is not there (never another null's)."""
        depth = self.reports[0].facts.depth
        return next((m for m in (depth.margins if depth else ()) if m.null == null), None)

    @property
    def gammas(self) -> list[float]:
        """Γ over the layers that count, of every network that has it."""
        found = (r.facts.aggregate.headline for r in self.reports if r.facts.aggregate)
        return [v for v in found if v is not None]

    @property
    def outcome(self) -> Outcome:
        """What all seeds say, else MIXED."""
        statuses = {r.status for r in self.reports}
        return Outcome(statuses.pop()) if len(statuses) == 1 else Outcome.MIXED

    @property
    def status(self) -> str:
        return str(self.outcome.value)

    @property
    def chance(self) -> float | None:
        """Accuracy of a guess; None where the classes of the labels are not known."""
        seen = self.reports[0].facts.evaluation
        return seen.chance if seen else None

    @property
    def n_test(self) -> int | None:
        """Samples behind each accuracy."""
        return self.reports[0].n_test or self.reports[0].facts.convention.n_samples

    @property
    def case(self) -> Case:
        """What a reader of accuracy and Γ alone sees."""
        gamma = statistics.mean(self.gammas) if self.gammas else None
        return Case(accuracy=self.accuracies or None, chance=self.chance, gamma=gamma, n_test=self.n_test)

    @property
    def s1(self) -> Decision:
        """What strategy S1 decides: accuracy above chance, and Γ > 0."""
        return STRATEGIES["S1"](self.case)

    @property
    def judged_by(self) -> str:
        """The null that D3 was judged by, where it is not the matched one."""
        return ""

    @property
    def found(self) -> Finding:
        lines = tuple(r.verdict.conclusion for r in self.reports)
        return Finding(self.outcome, tuple(r.status for r in self.reports), lines, self.judged_by)

    def answer(self, check: str, otherwise: str = Outcome.MIXED.value) -> str:
        """What all seeds answer to a check; `otherwise` where they disagree."""
        answers = {r.checks[check].answer for r in self.reports}
        return answers.pop() if len(answers) == 1 else otherwise


@dataclass(frozen=True, kw_only=True)
class Group(AuditRow):
    """The networks of one method and recipe, one per seed, with the reports that judge each of them."""

    spec: RunSpec
    """Spec of the first seed."""
    seeds: tuple[int, ...]
    records: tuple[Record, ...]

    @property
    def task(self) -> str:
        return f"{self.spec.dataset}, {self.spec.arch} d={self.spec.width} L={self.spec.depth}"

    @property
    def names(self) -> list[str]:
        return [f"seed {seed}" for seed in self.seeds]

    @property
    def hashes(self) -> tuple[str, ...]:
        return tuple(r.spec.hash for r in self.records)

    @property
    def accuracies(self) -> tuple[float, ...]:
        return tuple(r.accuracy for r in self.records)

    @property
    def marked_accuracies(self) -> list[tuple[str, float]]:
        return list(zip(self.names, self.accuracies, strict=True))

    @property
    def margins(self) -> tuple[DepthMargin, ...]:
        # BP's matched null is its bp null
        return tuple(m for m in super().margins if self.spec.method != "bp" or m.null == "bp")

    @property
    def chance(self) -> float:
        # that of the reports, which know the largest class
        return super().chance or 1 / n_classes(self.spec)

    @property
    def n_test(self) -> int | None:
        return self.records[0].n_test

    @property
    def judged_by(self) -> str:
        used = {m.null for m in (chosen_margin(r.facts) for r in self.reports) if m is not None}
        return "bp" if used == {"bp"} and self.spec.null("bp") != self.spec.null("matched") else ""


def reported(reports: Iterable[tuple[str, DiagnosticReport]], known: Iterable[str] = ()) -> list[AuditRow]:
    """A row for every report (name of its file, report) that is of none of the `known` runs.

    Reports that share a method and its accuracies over seeds are one row, in one file or several: they are the seeds.
    """
    rows: dict[tuple[object, ...], list[DiagnosticReport]] = {}
    left = set(known)
    for k, (name, r) in enumerate(reports):
        if not r.run or r.run not in left:
            several = len(r.headline_acc) > 1
            rows.setdefault((r.method_name or name, r.headline_acc) if several else (name, k), []).append(r)
    return [AuditRow(label=r[0].method_name or str(key[0]), reports=tuple(r)) for key, r in rows.items()]


def n_classes(spec: RunSpec) -> int:
    """Classes of the data set of a run."""
    return 100 if spec.dataset == "cifar100" else 10


def recipe(spec: RunSpec) -> str:
    """What two runs share that differ only by their seed (or by the checkpoints that they keep, which change nothing)."""
    return spec.changed(seed=0, checkpoint_epochs=()).hash


def _shared(s: RunSpec) -> tuple[Any, ...]:
    """What a network has in common with its nulls."""
    return s.seed, s.dataset, s.arch, s.width, s.depth, s.epochs


def nulls_for(run: Finished, pool: Sequence[F]) -> dict[str, F]:
    """The frozen-blocks nulls of this run (same seed) and backpropagation itself, as far as they are in the pool."""
    by_hash = {b.spec.hash: b for b in pool if _shared(b.spec) == _shared(run.spec)}  # a hash costs more than a look
    return {kind: by_hash[key] for kind, key in relatives(run.spec).items() if key in by_hash}


def relatives(spec: RunSpec) -> dict[str, str]:
    """Hashes of the runs that judge this one: its nulls, and backpropagation itself."""
    wanted: dict[str, RunSpec] = {kind: spec.null(kind) for kind in NULL_KINDS}
    wanted["bp_trained"] = wanted["bp"].changed(train_last=None, targets=spec.targets)
    return {kind: found.hash for kind, found in wanted.items()}


def audit(
    pool: Sequence[Finished],
    *,
    n_test: int | None = None,
    protocol: str = "three-check",
    thresholds: DiagnosticThresholds | None = None,
) -> list[Group]:
    """Group the trained networks over seeds and judge each; the depth margin is paired over the seeds of the group.

    A null counts only where every seed of the group has it, so that no seed is dropped silently.
    """
    by_recipe: dict[str, dict[int, Finished]] = {}
    for run in pool:
        if not run.spec.frozen:
            by_recipe.setdefault(recipe(run.spec), {}).setdefault(run.spec.seed, run)
    groups = []
    for by_seed in by_recipe.values():
        members = [record_of(by_seed[seed]) for seed in sorted(by_seed)]
        found = [nulls_for(r, pool) for r in members]
        accs: dict[str, list[float]] = {
            kind: [f[kind].accuracy for f in found]
            for kind in (*NULL_KINDS, "bp_trained")
            if all(kind in f for f in found)
        }
        nulls: dict[str, Any] = {kind: accs[kind] for kind in NULL_KINDS if kind in accs}
        reports = tuple(
            _judged(
                r,
                headline_acc=[m.accuracy for m in members],
                network_acc=r.accuracy,
                frozen_baseline_acc=nulls or None,
                bp_acc=accs.get("bp_trained"),
                n_test=n_test or r.n_test,
                thresholds=thresholds,
                protocol=protocol,
            )
            for r in members
        )
        spec, seeds = members[0].spec, tuple(r.spec.seed for r in members)
        groups.append(Group(label=spec.label, spec=spec, seeds=seeds, records=tuple(members), reports=reports))
    longest = max((g.spec.epochs or 0 for g in groups), default=0)
    return [
        g
        if g.spec.epochs == longest
        else dataclasses.replace(g, label=f"{g.label} [{g.spec.epochs} epoch{'s' * (g.spec.epochs != 1)}]")
        for g in groups  # one that trained for fewer epochs than the others says so in its name
    ]


def _judged(record: Record, **claims: Any) -> DiagnosticReport:
    """The report of a network by the facts under three-check/1.1, as far as the record holds them."""
    spec, facts = record.spec, record.facts
    facts = facts.model_copy(update={"evaluation": evaluation_of(facts, n_classes(spec))})
    return make_report(facts, method_name=spec.label, notes=network_and_seed(spec), run=spec.hash, **claims)


def alone(run: Finished) -> DiagnosticReport:
    """The report of one run by itself, without a null."""
    record = record_of(run)
    return _judged(record, headline_acc=record.accuracy, n_test=record.n_test)


# ---- names of networks ------------------------------------------------------------------------------------------------


def differing(specs: Sequence[RunSpec], besides: Collection[str]) -> list[str]:
    """Names of the settings in which some of these runs differ, `besides` those that nobody asks for."""
    names = (name for name in RunSpec.model_fields if name not in besides)
    return [name for name in names if len({str(getattr(s, name)) for s in specs}) > 1]


def network(s: RunSpec) -> str:
    """Dataset, shape and length of training, as a table names it."""
    return f"{shape(s)}, {length(s)}"


def shape(s: RunSpec) -> str:
    return f"{s.dataset}, {s.arch} d={s.width} L={s.depth}{norm_remark(s.arch, s.terminal_norm)}"


def length(s: RunSpec) -> str:
    schedule = "" if s.schedule_epochs == s.epochs else f" of a schedule of {s.schedule_epochs}"
    return f"{s.epochs} epoch{'s' * (s.epochs != 1)}{schedule}"


def network_and_seed(s: RunSpec) -> str:
    return f"{network(s)}, seed {s.seed}"


def place(s: RunSpec) -> tuple[Any, ...]:
    """Where a method stands: the networks of the primary audit first, in its order; the longer training before the shorter."""
    method = ORDER.index(s.method) if s.method in ORDER else len(ORDER)
    task = (s.dataset != "cifar10", s.dataset, s.arch != "resmlp", s.arch, not s.terminal_norm, s.width, s.depth)
    rule = (method, s.method, str(s.credit_norm), str(s.credit_site), s.clip, s.penalty)
    return (*task, -(s.epochs or 0), *rule)
