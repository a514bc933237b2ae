"""The audit table: what accuracy and Γ would have claimed, next to what the protocol finds, over seeds."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from creditscope.errors import CreditscopeError
from creditscope.measure.facts import DepthMargin, Facts
from creditscope.protocol import DiagnosticThresholds, accuracy_interval
from creditscope.protocol.checks import chosen_margin
from creditscope.protocol.consistency import evaluation_of
from creditscope.protocol.report import DiagnosticReport, make_report
from creditscope.protocol.wording import over_all_layers
from creditscope.render.numbers import signed
from creditscope.studies.grid import SIX, make, seeds_of, with_nulls
from creditscope.studies.published import audit_accuracy
from creditscope.studies.result import Run, StudyResult, beside, counted, mean, names, pm, span
from creditscope.training.bundle import Bundle, is_bundle, load_bundle
from creditscope.training.spec import RunSpec, bare

QUESTION = "what accuracy and Γ would have claimed, next to what the protocol finds"


class Audited(Protocol):
    """A finished run: a `Bundle`, or a `Run` of a study."""

    @property
    def spec(self) -> RunSpec: ...
    @property
    def path(self) -> Path: ...
    @property
    def accuracy(self) -> float: ...
    @property
    def n_test(self) -> int | None: ...
    @property
    def report(self) -> dict[str, Any]: ...
    @property
    def trajectory(self) -> list[dict[str, Any]]: ...
    @property
    def versions(self) -> dict[str, str]: ...


A = TypeVar("A", bound=Audited)

NULL_KINDS = ("matched", "bp")
ORDER = ("bp", "ep", "fa", "dfa", "cb", "sb")


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

    def values(self, name: str) -> list[float]:
        """growth, reference, gamma or gamma_all_layers of every network."""
        facts = [r.facts for r in self.reports]
        if name == "growth":
            return [f.scale.growth for f in facts]
        if name == "reference":
            return [f.reference.batch_mean_128[-1] for f in facts]
        reading = "headline" if name == "gamma" else name
        return [v for f in facts if f.aggregate and (v := getattr(f.aggregate, reading)) is not None]

    @property
    def gamma(self) -> str:
        """Γ over the layers that count, mean ± standard deviation; beside it that over all layers where it differs."""
        values, others = self.values("gamma"), self.values("gamma_all_layers")
        return pm(values, 2) + (over_all_layers(mean(values), mean(others), 2) if values and others else "")

    @property
    def status(self) -> str:
        """What all seeds say, else `mixed`."""
        statuses = {r.status for r in self.reports}
        return statuses.pop() if len(statuses) == 1 else "mixed"

    @property
    def aligned(self) -> bool:
        """Would accuracy and Γ alone be taken for credit that works (S1)? A report does not say what chance is."""
        gammas = self.values("gamma")
        return bool(gammas) and statistics.mean(gammas) > 0

    @property
    def claim(self) -> str:
        """What a reader of accuracy and Γ alone would conclude."""
        return "credit aligned" if self.aligned else "no claim on credit"

    @property
    def finding(self) -> str:
        """The verdict over seeds, in one cell."""
        lines = self._lines()
        if len(set(lines)) == 1:
            return lines[0]
        statuses = [r.status for r in self.reports]
        return "; ".join(f"{statuses.count(s)} of {len(statuses)} seeds {s}" for s in dict.fromkeys(statuses))

    def _lines(self) -> list[str]:
        return [r.verdict.line.removeprefix("VERDICT: ") for r in self.reports]


@dataclass(frozen=True, kw_only=True)
class Group(AuditRow):
    """The networks of one method and recipe, one per seed, with the reports that judge each of them."""

    spec: RunSpec
    """Spec of the first seed."""
    seeds: tuple[int, ...]
    bundles: tuple[Any, ...]
    """Bundles or runs, whatever was given."""

    @property
    def task(self) -> str:
        return f"{self.spec.dataset}, {self.spec.arch} d={self.spec.width} L={self.spec.depth}"

    @property
    def names(self) -> list[str]:
        return [f"seed {seed}" for seed in self.seeds]

    @property
    def accuracies(self) -> tuple[float, ...]:
        return tuple(b.accuracy for b in self.bundles)

    @property
    def marked_accuracies(self) -> list[tuple[str, float]]:
        return list(zip(self.names, self.accuracies, strict=True))

    @property
    def margins(self) -> tuple[DepthMargin, ...]:
        found = super().margins
        return tuple(m for m in found if self.spec.method != "bp" or m.null == "bp")  # BP's matched null is the bp null

    @property
    def learns(self) -> bool:
        chance = 1 / n_classes(self.spec)
        n_test = self.bundles[0].n_test if len(self.bundles) == 1 else None
        return accuracy_interval(self.accuracies, n_test).low > chance

    @property
    def aligned(self) -> bool:
        return self.learns and super().aligned

    @property
    def claim(self) -> str:
        if self.aligned:
            return "learns, credit aligned"
        return "learns" if self.learns else "does not learn"

    def _lines(self) -> list[str]:
        """D3 against the bp null is named as such where the matched one is missing."""
        return [_with_null(self.spec, r) for r in self.reports]


def reported(reports: Iterable[tuple[str, DiagnosticReport]], known: Iterable[str] = ()) -> list[AuditRow]:
    """A row for every report (name of its file, report) that is of none of the `known` runs.

    The reports of one file that share a method and its accuracies over seeds are one row: they are the seeds.
    """
    rows: dict[tuple[object, ...], list[DiagnosticReport]] = {}
    left = set(known)
    for k, (name, r) in enumerate(reports):
        if not r.run or r.run not in left:
            several = len(r.headline_acc) > 1
            rows.setdefault((name, r.method_name, r.headline_acc) if several else (name, k), []).append(r)
    return [AuditRow(label=r[0].method_name or str(key[0]), reports=tuple(r)) for key, r in rows.items()]


def n_classes(spec: RunSpec) -> int:
    """Classes of the data set of a run."""
    return 100 if spec.dataset == "cifar100" else 10


def _with_null(spec: RunSpec, report: DiagnosticReport) -> str:
    line = report.verdict.line.removeprefix("VERDICT: ")
    margin = chosen_margin(report.facts)
    if margin is None or margin.null != "bp" or spec.null("bp") == spec.null("matched"):
        return line
    for words in ("D3 depth utility", "(d) depth"):
        line = line.replace(words, f"{words} (bp null)")
    return line


def find_bundles(paths: Iterable[str | Path], on_error: Callable[[str], None] | None = None) -> list[Bundle]:
    """Bundles at the given directories, or directly inside them; in order, each once.

    A damaged bundle inside a directory is an error, or is told to `on_error` and left out.
    """
    found: dict[Path, Bundle] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise CreditscopeError(f"{path} is not a directory; give bundles or directories that hold bundles")
        inside = (
            [path]
            if is_bundle(path)
            else sorted(p for p in path.iterdir() if not p.name.startswith(".") and is_bundle(p))
        )
        if not inside:
            raise CreditscopeError(f"{path} holds no bundle; `creditscope train --out {path}/NAME` makes one")
        for p in inside:
            try:
                found.setdefault(p.resolve(), load_bundle(p))
            except CreditscopeError as error:
                if on_error is None or p == path:
                    raise
                on_error(str(error))
    return list(found.values())


def recipe(spec: RunSpec) -> str:
    """What two runs share that differ only by their seed (or by the checkpoints that they keep, which change nothing)."""
    return spec.changed(seed=0, checkpoint_epochs=()).hash


def _kin(s: RunSpec) -> tuple[Any, ...]:
    """What a network has in common with its nulls."""
    return s.seed, s.dataset, s.arch, s.width, s.depth, s.epochs


def nulls_for(bundle: Audited, pool: Sequence[A]) -> dict[str, A]:
    """The frozen-blocks nulls of this run (same seed) and backpropagation itself, as far as they are in the pool."""
    by_hash = {b.spec.hash: b for b in pool if _kin(b.spec) == _kin(bundle.spec)}  # a hash costs more than a look
    return {kind: by_hash[key] for kind, key in relatives(bundle.spec).items() if key in by_hash}


def relatives(spec: RunSpec) -> dict[str, str]:
    """Hashes of the runs that judge this one: its nulls, and backpropagation itself."""
    wanted: dict[str, RunSpec] = {kind: spec.null(kind) for kind in NULL_KINDS}  # type: ignore[arg-type]
    wanted["bp_trained"] = wanted["bp"].changed(train_last=None, targets=spec.targets)
    return {kind: found.hash for kind, found in wanted.items()}


def audit(
    pool: Sequence[Audited],
    *,
    n_test: int | None = None,
    protocol: str = "three-check",
    thresholds: DiagnosticThresholds | None = None,
) -> list[Group]:
    """Group the trained networks over seeds and judge each; the depth margin is paired over the seeds of the group.

    A null counts only where every seed of the group has it, so that no seed is dropped silently.
    """
    groups: dict[str, dict[int, Audited]] = {}
    for bundle in pool:
        if not bundle.spec.frozen:
            groups.setdefault(recipe(bundle.spec), {}).setdefault(bundle.spec.seed, bundle)
    result = []
    for by_seed in groups.values():
        members = sorted(by_seed.values(), key=lambda b: b.spec.seed)
        found = [nulls_for(b, pool) for b in members]
        accs: dict[str, list[float]] = {
            kind: [f[kind].accuracy for f in found]
            for kind in (*NULL_KINDS, "bp_trained")
            if all(kind in f for f in found)
        }
        nulls: dict[str, Any] = {kind: accs[kind] for kind in NULL_KINDS if kind in accs}
        reports = tuple(
            make_report(
                _facts(b),
                headline_acc=[m.accuracy for m in members],
                network_acc=b.accuracy,
                frozen_baseline_acc=nulls or None,
                bp_acc=accs.get("bp_trained"),
                n_test=n_test or b.n_test,
                method_name=b.spec.label,
                notes=network_and_seed(b.spec),
                run=b.spec.hash,
                thresholds=thresholds,
                protocol=protocol,
            )
            for b in members
        )
        spec = members[0].spec
        result.append(
            Group(
                label=spec.label,
                spec=spec,
                seeds=tuple(b.spec.seed for b in members),
                bundles=tuple(members),
                reports=reports,
            )
        )
    longest = max((g.spec.epochs or 0 for g in result), default=0)
    return [_with_epochs(g) if g.spec.epochs != longest else g for g in result]


def _facts(run: Audited) -> Facts:
    """The facts of a finished run under three-check/1.1, as far as it holds them."""
    facts = counted(DiagnosticReport.from_dict(run.report, str(run.path / "report.json")).facts, run.spec)
    return facts.model_copy(update={"evaluation": evaluation_of(facts, n_classes(run.spec))})


def _with_epochs(group: Group) -> Group:
    """A group that trained for fewer epochs than the others says so in its name."""
    return dataclasses.replace(group, label=f"{group.label} [{group.spec.epochs} epochs]")


# ---- the study ----------------------------------------------------------------------------------------------------------


def specs(preset: str) -> list[RunSpec]:
    return with_nulls(make(preset, method, seed) for seed in seeds_of(preset) for method in SIX)


def _margin(group: Group, null: str) -> DepthMargin | None:
    depth = group.reports[0].facts.depth
    return next((m for m in (depth.margins if depth else ()) if m.null == null), None)


def margin_text(group: Group, null: str) -> str:
    """Depth margin to one null in percentage points, with its interval."""
    found = _margin(group, null)
    if found is None:
        return "–"
    interval = f" [{signed(found.low_pp, 1)}, {signed(found.high_pp, 1)}]" if found.low_pp is not None else ""
    return signed(found.margin_pp, 1) + interval


def margin_pp(group: Group) -> float | None:
    """Depth margin to the matched null; None where it is not there (never another null's)."""
    found = _margin(group, "matched")
    return found.margin_pp if found else None


def margin_interval(group: Group) -> list[float] | None:
    """95 % interval of `margin_pp`."""
    found = _margin(group, "matched")
    return None if found is None or found.low_pp is None or found.high_pp is None else [found.low_pp, found.high_pp]


HEADER = [
    "method",
    "accuracy",
    "published",
    "difference",
    "Γ",
    "growth",
    "‖g_L‖/128",
    "margin to matched null (pp)",
    "to bp null (pp)",
    "the protocol finds",
]


def audit_rows(groups: Sequence[Group]) -> list[list[str]]:
    return [
        [
            g.label,
            pm(g.accuracies),
            *beside(audit_accuracy(g.spec), mean(g.accuracies)),
            g.gamma,
            span(g.values("growth")),
            span(g.values("reference")),
            margin_text(g, "matched"),
            margin_text(g, "bp"),
            g.finding,
        ]
        for g in groups
    ]


def audit_figure(groups: Sequence[Group]) -> dict[str, Any]:
    return {
        "kind": "points",
        "x": "accuracy",
        "y": "margin_pp",
        "points": [
            {
                "label": g.label,
                "accuracy": list(g.accuracies),
                "margin_pp": margin_pp(g),
                "margin_interval_pp": margin_interval(g),
                "gamma": g.values("gamma"),
                "growth": g.values("growth"),
                "reference": g.values("reference"),
                "status": [r.status for r in g.reports],
            }
            for g in groups
        ],
    }


def convention(groups: Sequence[Group]) -> str:
    if not groups:
        return "no finished runs"
    networks = "; ".join(f"{name}, {told}" for name, told in _seeds_by_network(groups).items())
    return (
        f"protocol {groups[0].reports[0].protocol}; {networks}; final checkpoint; mean ± sample standard deviation over seeds; "
        "growth and ‖g_L‖ smallest to largest, ‖g_L‖ = mean per-sample norm / 128; margins with 95 % interval (paired t over "
        "seeds; of one seed binomial, this network only); published: arXiv 2606.21126 (! another version "
        "or place has another value), credit norm not stated there" + _open_d3(groups)
    )


def _open_d3(groups: Sequence[Group]) -> str:
    """Why a margin stands beside a D3 that is not measurable."""
    open_ = any(r.checks["D3"].answer == "not measurable" and r.facts.depth for g in groups for r in g.reports)
    return "; D3 not measurable: there BP itself does not beat its null by the threshold" if open_ else ""


def _seeds_by_network(groups: Sequence[Group]) -> dict[str, str]:
    """Network -> "seeds 42, 123, 456 (cb(rms): 42)": those of most methods, and the methods that have others."""
    by: dict[str, list[Group]] = {}
    for g in groups:
        by.setdefault(network(g.spec), []).append(g)
    told = {}
    for name, same in by.items():
        usual = Counter(g.seeds for g in same).most_common(1)[0][0]
        others = "; ".join(f"{g.label}: {', '.join(map(str, g.seeds))}" for g in same if g.seeds != usual)
        seeds = ", ".join(map(str, usual))
        told[name] = f"seed{'s' if len(usual) > 1 else ''} {seeds}" + (f" ({others})" if others else "")
    return told


def network(s: RunSpec) -> str:
    """Dataset, shape and length of training, as a table names it."""
    return f"{shape(s)}, {length(s)}"


def shape(s: RunSpec) -> str:
    return f"{s.dataset}, {s.arch} d={s.width} L={s.depth}{bare(s.arch, s.terminal_norm)}"


def length(s: RunSpec) -> str:
    schedule = "" if s.schedule_epochs == s.epochs else f" of a schedule of {s.schedule_epochs}"
    return f"{s.epochs} epochs{schedule}"


def network_and_seed(s: RunSpec) -> str:
    return f"{network(s)}, seed {s.seed}"


def place(s: RunSpec) -> tuple[Any, ...]:
    """Where a method stands: the networks of the primary audit first, in its order; the longer training before the shorter."""
    method = ORDER.index(s.method) if s.method in ORDER else len(ORDER)
    shape = (s.arch != "resmlp", s.arch, not s.terminal_norm, s.width, s.depth)
    return (
        s.dataset != "cifar10",
        s.dataset,
        *shape,
        -(s.epochs or 0),
        method,
        s.method,
        str(s.credit_norm),
        str(s.credit_site),
        s.clip,
        s.penalty,
    )


def failing(groups: Sequence[Group]) -> list[Group]:
    """Groups of which every seed fails."""
    return [g for g in groups if g.status == "fail"]


def partly(groups: Sequence[Group]) -> str:
    """Groups of which some seeds fail and others do not, in words; empty where there are none."""
    counts = [
        (g.label, sum(r.status == "fail" for r in g.reports), len(g.reports)) for g in groups if g.status == "mixed"
    ]
    told = names(f"{label}: {k} of {n}" for label, k, n in counts if k)
    return f"; in some seeds only: {told}" if any(k for _, k, _ in counts) else ""


def analyse(runs: Sequence[Run]) -> StudyResult:
    groups = audit(runs)
    failed = failing(groups)
    praised = [g.label for g in failed if g.claim == "learns, credit aligned"]
    conclusion = (
        f"{len(failed)} of {len(groups)} methods fail the protocol ({names(g.label for g in failed)}{partly(groups)}); accuracy "
        f"and Γ alone would have praised {len(praised)} of them ({names(praised)})."
    )
    return StudyResult(
        "audit", QUESTION, HEADER, audit_rows(groups), audit_figure(groups), conclusion, convention(groups)
    )
