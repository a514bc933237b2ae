"""An entry of the board: a claim, and what the facts of its reports say, judged again.

    board/entries/NAME/claim.json     what is claimed, and the evidence by hash
    board/entries/NAME/*.json         the reports

Reading is checking: schema, seal, hashes, that the numbers of each report follow from each other, and that its verdict follows
from its facts under the protocol that the claim names. What does not hold is one line, and the entry is not read.
"""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from creditscope.board.arithmetic import check_arithmetic, check_certificate
from creditscope.board.claim import FILE, Claim, Evaluation, Evidence, certificate_hash, read_claim, read_small
from creditscope.errors import CreditscopeError
from creditscope.measure.depth import UNSTATED
from creditscope.measure.facts import DepthMargin, Paired
from creditscope.protocol import accuracy_interval, get_policy
from creditscope.protocol.checks import chosen_margin
from creditscope.protocol.intervals import AccuracyInterval, t_interval
from creditscope.protocol.policies import POLICIES
from creditscope.protocol.report import DiagnosticReport, make_report
from creditscope.runs.groups import AuditRow, network_and_seed
from creditscope.training.spec import RunSpec, recorded_spec

MAX_REPORT = 2 * 2**20
MOST_ENTRIES = 100_000
ROUNDING = 0.0005 + 1e-12
"""Published numbers have three digits."""


@dataclass(frozen=True)
class Comparison:
    """A claimed number next to the audited ones."""

    claimed: float
    audited: tuple[float, ...]
    """One per network."""
    interval: AccuracyInterval
    """Of their mean, 95 %."""

    @property
    def over(self) -> float:
        """Claimed minus the audited mean."""
        return self.claimed - self.interval.mean

    @property
    def reach(self) -> str:
        """`above` or `below` the interval; inside of it `undecided` above the mean, else `within`."""
        if self.claimed > self.interval.high + ROUNDING:
            return "above"
        if self.claimed < self.interval.low - ROUNDING:
            return "below"
        return "undecided" if self.over > ROUNDING else "within"

    @property
    def above_all(self) -> bool:
        """Above every one of several audited networks."""
        return len(self.audited) > 1 and self.claimed > max(self.audited) + ROUNDING


@dataclass(frozen=True)
class Audit:
    """One evaluation with its reports, each judged again."""

    stated: Evaluation
    reports: tuple[DiagnosticReport, ...]

    @cached_property
    def row(self) -> AuditRow:
        return AuditRow(label=self.reports[0].method_name, reports=self.reports)

    @property
    def status(self) -> str:
        """Of all networks, or `mixed`."""
        return self.row.status

    @property
    def line(self) -> str:
        """The verdict in words."""
        return self.row.found.summary("networks")

    @property
    def accuracies(self) -> tuple[float, ...]:
        return self.row.accuracies

    @cached_property
    def accuracy(self) -> AccuracyInterval | None:
        first = self.reports[0]
        return accuracy_interval(first.headline_acc, first.n_test) if first.headline_acc else None

    @property
    def gamma(self) -> float | None:
        """Γ over the layers that count, mean over the networks that have it."""
        found = self.row.gammas
        return sum(found) / len(found) if found else None

    @property
    def gammas(self) -> dict[str, tuple[float, ...]]:
        """Γ of every network that has it, under each of the two conventions that a claim may mean."""
        whole = (r.facts.aggregate.gamma_all_layers for r in self.reports if r.facts.aggregate is not None)
        found = {"over the layers that count": self.row.gammas, "over all layers": [v for v in whole if v is not None]}
        return {convention: tuple(values) for convention, values in found.items() if values}

    @property
    def margin(self) -> DepthMargin | None:
        """The depth margin that D3 judges."""
        return chosen_margin(self.reports[0].facts)

    @property
    def profile_margins(self) -> tuple[Paired, ...]:
        """Of every network that has a profile."""
        profiles = (r.facts.profile for r in self.reports)
        return tuple(p.margin for p in profiles if p is not None and p.margin is not None)

    @property
    def locality(self) -> str:
        """Label of the certificates; "" where there is none, `mixed` where they differ."""
        labels = {r.certificate.label for r in self.reports if r.certificate is not None}
        return labels.pop() if len(labels) == 1 else "mixed" if labels else ""

    def under(self, policy: str) -> str:
        """The status of the same facts under another policy."""
        found = {_judged(report, self.stated, policy).status for report in self.reports}
        return found.pop() if len(found) == 1 else "mixed"


@dataclass(frozen=True)
class Entry:
    claim: Claim
    path: Path
    audits: tuple[Audit, ...]
    """In the order of the claim."""

    @cached_property
    def current(self) -> Audit:
        """The newest audit; the newest external evaluation where there is no audit."""
        own = [a for a in self.audits if a.stated.kind == "audit"] or list(self.audits)
        return max(reversed(own), key=lambda a: a.stated.date)

    @property
    def externals(self) -> list[Audit]:
        return [a for a in self.audits if a.stated.kind == "external" and a is not self.current]

    @property
    def by_others(self) -> Audit | None:
        """The external evaluation with the smallest margin: the strongest objection that is known."""
        return min(self.externals, key=lambda a: math.inf if a.margin is None else a.margin.margin_pp, default=None)

    @property
    def contested(self) -> bool:
        """An external evaluation comes to another verdict."""
        return any(a.status != self.current.status for a in self.externals)

    @property
    def published(self) -> bool:
        return self.claim.claimed.published

    @cached_property
    def accuracy(self) -> Comparison | None:
        """The claimed accuracy next to the audited ones; None where one of them is missing."""
        claimed, found = self.claim.claimed.accuracy, self.current.accuracy
        return None if claimed is None or found is None else Comparison(claimed, self.current.accuracies, found)

    @cached_property
    def gamma(self) -> Comparison | None:
        """The claimed Γ next to the audited, under the convention that comes nearest to it."""
        claimed = self.claim.claimed.gamma
        if claimed is None or not self.current.gammas:
            return None
        found = []
        for convention, values in self.current.gammas.items():
            mean = math.fsum(values) / len(values)
            low, high = t_interval(values) or (mean, mean)
            found.append(Comparison(claimed, values, AccuracyInterval(mean, low, high, convention)))
        return min(found, key=lambda c: abs(c.over))

    @property
    def over(self) -> float | None:
        """Claimed minus audited accuracy, in percentage points."""
        return None if self.accuracy is None else 100 * self.accuracy.over

    @property
    def reach(self) -> str:
        """Of the claimed accuracy (`Comparison.reach`); "" where one of the two is missing."""
        return "" if self.accuracy is None else self.accuracy.reach

    def history(self) -> list[tuple[Audit, dict[str, str]]]:
        """Every evaluation by date, with its status under every version of the protocol."""
        versions = [p.version for p in POLICIES.values()]
        ordered = sorted(self.audits, key=lambda a: a.stated.date)
        return [(a, {version: a.under(version) for version in versions}) for a in ordered]


def read_entry(directory: Path, today: datetime.date | None = None) -> Entry:
    """The entry of a directory; whatever does not hold is one line."""
    if not directory.is_dir():
        raise CreditscopeError(f"{directory} is not a directory; an entry is a directory with {FILE} and its reports")
    claim = read_claim(directory)
    if claim.claimed.published and not (claim.paper or claim.claimed.source):
        raise CreditscopeError(
            f"{directory / FILE}: the claim is marked as published, but neither paper nor source says where"
        )
    last = (today or datetime.datetime.now(datetime.timezone.utc).date()) + datetime.timedelta(days=1)
    audits = []
    for k, stated in enumerate(claim.evaluations):
        where = f"{directory / FILE}: evaluation {k + 1}"
        if stated.date > last:
            raise CreditscopeError(f"{where} has the date {stated.date}, which lies in the future")
        if len(set(stated.seeds)) != len(stated.seeds):
            raise CreditscopeError(f"{where} names a seed twice: {', '.join(map(str, stated.seeds))[:80]}")
        if get_policy(stated.protocol).version != stated.protocol:
            raise CreditscopeError(f"{where} names the protocol {stated.protocol!r} without its version")
        if len({e.file for e in stated.reports}) != len(stated.reports):
            raise CreditscopeError(f"{where} names a report twice")
        reports = tuple(_report(directory, evidence, stated) for evidence in stated.reports)
        if len({(r.headline_acc, r.n_test) for r in reports}) > 1:
            raise CreditscopeError(
                f"{where}: its reports state different accuracies; one evaluation is of one set of seeds"
            )
        if len(reports) > len(stated.seeds):
            raise CreditscopeError(f"{where} has {len(reports)} reports for {len(stated.seeds)} seeds")
        _check_spec(stated, reports, where)
        audits.append(Audit(stated, reports))
    return Entry(claim, directory, tuple(audits))


def find_entries(root: Path) -> list[Path]:
    """The directories of entries: the directory itself, or those in it (or in its `entries`) that hold a claim."""
    if (root / FILE).is_file():
        return [root]
    below = root / "entries" if (root / "entries").is_dir() else root
    try:
        found = sorted(p for p in below.iterdir() if p.is_dir() and not p.name.startswith("."))
    except OSError as error:
        raise CreditscopeError(
            f"cannot read {below}: {error.strerror or error}; give the directory of a board (it holds entries/)"
        ) from None
    if not found:
        raise CreditscopeError(f"{root} holds no entry; `creditscope claim new` makes one")
    if len(found) > MOST_ENTRIES:
        raise CreditscopeError(f"{root} holds {len(found):,} directories; a board has at most {MOST_ENTRIES:,} entries")
    return found


def read_entries(roots: Iterable[Path]) -> tuple[list[Entry], list[tuple[Path, str]]]:
    """(entries that hold, (directory, why not) of the others). A report serves one entry: the one that it audits."""
    read: dict[Path, Entry | str] = {}
    for directory in dict.fromkeys(path for root in roots for path in find_entries(root)):
        try:
            read[directory] = read_entry(directory)
        except CreditscopeError as error:
            read[directory] = str(error)
    entries = [entry for entry in read.values() if isinstance(entry, Entry)]
    owner: dict[str, Path] = {}
    for kind in ("audit", "external"):  # nobody loses a report because somebody else adds it to an entry
        for entry in entries:
            for evidence in (e for a in entry.audits if a.stated.kind == kind for e in a.stated.reports):
                owner.setdefault(evidence.sha256, entry.path)
    for entry in entries:
        for evidence in (e for audit in entry.audits for e in audit.stated.reports):
            if (other := owner[evidence.sha256]) != entry.path:
                read[entry.path] = f"{entry.path / evidence.file} is the report of {other.name}: one report, one entry"
    return (
        [entry for entry in read.values() if isinstance(entry, Entry)],
        [(directory, why) for directory, why in read.items() if isinstance(why, str)],
    )


def _report(directory: Path, evidence: Evidence, stated: Evaluation) -> DiagnosticReport:
    """A report as it was hashed, whose numbers and verdict follow from each other."""
    path = directory / evidence.file
    content = read_small(path, MAX_REPORT, "a report")
    if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != evidence.sha256:
        raise CreditscopeError(
            f"{path} has SHA-256 {found[:12]}… and the claim names {evidence.sha256[:12]}…: it is another file"
        )
    report = DiagnosticReport.from_dict(content, str(path))
    certificate = content.get("certificate")
    if (certificate and certificate_hash(certificate)) != evidence.certificate:
        raise CreditscopeError(f"{path} does not hold the certificate whose SHA-256 the claim names")
    if len(report.headline_acc) != len(stated.seeds):
        raise CreditscopeError(
            f"{path} states {len(report.headline_acc)} accuracies and the claim {len(stated.seeds)} seeds"
        )
    check_arithmetic(report.facts, str(path))
    check_certificate(report.certificate, str(path))
    again = _judged(report, stated, stated.protocol)
    if name := next((n for n in ("depth", "claim", "evaluation") if _differ(again.facts, report.facts, n)), None):
        seeds = (
            "; state the nulls seed by seed, unrounded, as they were given to diagnose (--null, --null-kind)"
            if name == "depth" and len(stated.seeds) > 1
            else ""
        )
        raise CreditscopeError(
            f"{path}: facts.{name} does not follow from the accuracies and nulls that are stated{seeds}"
        )
    if _judgement(again) != _judgement(report):
        raise CreditscopeError(
            f"{path}: the verdict does not follow from the facts: it states {_one_line(report)!r}, the facts give "
            f"{_one_line(again)!r}"
        )
    return again.model_copy(update={"certificate": report.certificate})


def _judgement(report: DiagnosticReport) -> str:
    """What was judged, without the sentences that explain it: they may be reworded, and the page shows them as made anew."""
    checks = {"__all__": {"id", "answer", "value", "threshold", "interval"}}
    return report.verdict.model_dump_json(
        include={"policy": True, "status": True, "line": True, "gamma_withheld": True, "checks": checks}
    )


def _differ(a: BaseModel, b: BaseModel, name: str) -> bool:
    """By what JSON has of them: there NaN is equal to itself."""
    return a.model_dump_json(include={name}) != b.model_dump_json(include={name})


def _one_line(report: DiagnosticReport) -> str:
    return f"{report.protocol} {report.verdict.line}"[:160]


def _judged(report: DiagnosticReport, stated: Evaluation, policy: str) -> DiagnosticReport:
    """The facts of a report judged anew; its own verdict and margins are not read."""
    nulls: Any = dict(stated.nulls) or None
    if nulls and UNSTATED in nulls:
        nulls = nulls[UNSTATED]
    return make_report(
        report.facts,
        headline_acc=report.headline_acc or None,
        network_acc=report.network_acc,
        headline_on=report.headline_on,
        frozen_baseline_acc=nulls,
        bp_acc=stated.bp_accuracy or None,
        n_test=report.n_test,
        method_name=report.method_name,
        notes=report.notes,
        run=report.run,
        protocol=policy,
    )


def spec_of(stated: Evaluation) -> RunSpec | None:
    return None if stated.spec is None else recorded_spec(stated.spec)


def _check_spec(stated: Evaluation, reports: tuple[DiagnosticReport, ...], where: str) -> None:
    try:
        spec = spec_of(stated)
    except (CreditscopeError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CreditscopeError(f"{where}: its spec is not valid: {' '.join(str(error).split())[:200]}") from None
    if spec is None:
        return
    if spec.hash != reports[0].run:
        raise CreditscopeError(
            f"{where}: its spec is that of run {spec.hash[:12]} and the first report is of {reports[0].run[:12]!r}"
        )
    if spec.seed not in stated.seeds:
        raise CreditscopeError(f"{where}: the seed {spec.seed} of its spec is not among its seeds")
    runs = {own.hash: (own, k) for k, seed in enumerate(stated.seeds) for own in [spec.changed(seed=seed)]}
    for evidence, report in zip(stated.reports, reports, strict=True):
        if report.run not in runs:
            raise CreditscopeError(f"{where}: {evidence.file} is of run {report.run[:12]!r}, of no seed of its spec")
        own, k = runs.pop(report.run)
        for name, named, follows in (
            ("method", report.method_name, own.label),
            ("network", report.notes, network_and_seed(own)),
            ("accuracy", report.network_acc, report.headline_acc[k]),
        ):
            named = (
                named.partition("; ")[0] if isinstance(named, str) else named
            )  # a remark on the device stands behind it
            if named is not None and named != follows:
                raise CreditscopeError(
                    f"{where}: {evidence.file} names the {name} {named!r}, and its spec gives {follows!r}"
                )
