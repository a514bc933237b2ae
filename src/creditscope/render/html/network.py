"""One network of the page: its report and, where it comes from a bundle, its run."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from creditscope.measure.facts import Facts, batch_mean
from creditscope.protocol.checks import chosen_margin
from creditscope.protocol.report import DiagnosticReport
from creditscope.runs.groups import AuditRow, Group, alone, nulls_for
from creditscope.runs.record import Finished

DIGITS = 6
"""Significant digits of the trajectory in the page (the bundle holds all of them)."""
FULL_LEVEL = ("perturbation", "nudging", "fresh_b", "training", "profile")


@dataclass(frozen=True)
class Network:
    """One network of the page: its report and, where it comes from a bundle, its run."""

    report: DiagnosticReport
    spec: Mapping[str, Any] = field(default_factory=dict)
    trajectory: Sequence[Mapping[str, Any]] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    accuracy: float | None = None
    """Of this network (the report's headline may be over seeds)."""
    margin_pp: float | None = None
    """Its accuracy minus that of the null of its own seed, in percentage points (D3 judges the mean over seeds)."""
    null: bool = False
    """A frozen-blocks null: shown, not judged."""

    copy: int = 0
    """Counts networks that are told apart by nothing else, so that each has a page of its own."""

    @property
    def key(self) -> str:
        """Name of its section in the page."""
        content = f"{self.path}\n{self.report.run}\n{self.report.method_name}\n{self.report.notes}"
        content += f"\n{self.copy}" if self.copy else ""
        return "run-" + hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:12]


def networks(
    groups: Sequence[AuditRow], pool: Iterable[Finished] = (), extra: Iterable[DiagnosticReport] = ()
) -> list[Network]:
    """Every network of the groups, then the nulls of the pool, then reports that no bundle of the groups stands behind.

    A report in `extra` with the run hash of a network adds what only it has measured (the full level).
    """
    given, pool = list(extra), list(pool)
    fuller = {r.run: r for r in given if r.run}
    made: list[Network] = []
    for group in groups:
        if not isinstance(group, Group):
            continue  # its reports are among the extra ones
        for record, report in zip(group.records, group.reports, strict=True):
            if (more := fuller.pop(report.run, None)) is not None:
                fuller_facts = _merged(report.facts, more.facts)
                report = report.model_copy(update={"facts": fuller_facts, "certificate": more.certificate})
            made.append(_network(record, report, margin_pp=_own_margin(record, report, pool)))
    for bundle in pool:
        if bundle.spec.frozen:
            made.append(_network(bundle, alone(bundle), null=True))
    made += [Network(report) for report in given if not report.run or report.run in fuller]
    return made


def apart(shown: Iterable[Network]) -> list[Network]:
    """The networks, each with a key of its own."""
    made: list[Network] = []
    seen: Counter[str] = Counter()
    for network in shown:
        copies = seen[network.key]
        seen[network.key] += 1
        made.append(replace(network, copy=copies) if copies else network)
    return made


def _own_margin(bundle: Finished, report: DiagnosticReport, pool: Sequence[Finished]) -> float | None:
    """To the null of this seed, of the kind that D3 uses."""
    chosen = chosen_margin(report.facts)
    null = nulls_for(bundle, pool).get(chosen.null) if chosen else None
    return None if null is None else 100 * (bundle.accuracy - null.accuracy)


def _network(bundle: Finished, report: DiagnosticReport, null: bool = False, margin_pp: float | None = None) -> Network:
    spec, path = bundle.spec.model_dump(), str(bundle.path)
    return Network(report, spec, bundle.trajectory, bundle.versions, path, bundle.accuracy, margin_pp, null)


def _merged(stored: Facts, more: Facts) -> Facts:
    found = {name: getattr(more, name) for name in FULL_LEVEL if getattr(more, name) is not None}
    return stored.model_copy(update=found)


def _round(value: Any) -> float:
    """A number of a trajectory ("NaN" and infinities stand as strings)."""
    return float(f"{float(value):.{DIGITS}g}")


def trajectory_columns(network: Network) -> dict[str, list[Any]]:
    """The trajectory as lists over epochs."""
    lines = network.trajectory
    if not lines:
        return {}
    columns: dict[str, list[Any]] = {"epoch": [int(line["epoch"]) for line in lines]}
    for name in ("accuracy", "train_loss", "gamma", "growth", "stability"):
        values = [line.get(name) for line in lines]
        columns[name] = [None if v is None else _round(v) for v in values]
    columns["reference_norm_128"] = [_round(batch_mean(line["g_per_sample"][-1])) for line in lines]
    columns["fired"] = [list(line.get("fired", ())) for line in lines]
    return columns


def first_fired(network: Network) -> list[tuple[str, int]]:
    """(check, first epoch at which it was raised) in the order in which they were."""
    first: dict[str, int] = {}
    for line in network.trajectory:
        for check in line.get("fired", ()):
            first.setdefault(str(check), int(line["epoch"]))
    return sorted(first.items(), key=lambda item: (item[1], item[0]))


def data_of(network: Network) -> dict[str, Any]:
    """What the page holds of a network as JSON, and what it offers to save."""
    return {
        "key": network.key,
        "path": network.path,
        "null": network.null,
        "accuracy": network.accuracy,
        "spec": dict(network.spec),
        "versions": dict(network.versions),
        "report": network.report.to_dict(),
        "trajectory": trajectory_columns(network),
    }
