"""A paper's published numbers and decisions (see `published`) held against records, under every reading that was run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from creditscope.credit.registry import make_rule
from creditscope.quantities import Quantity
from creditscope.runs.groups import Group, audit
from creditscope.runs.record import Record
from creditscope.studies.ablation import case_of
from creditscope.studies.published import (
    DECIDED,
    MODE_1,
    TOLERANCE,
    Claim,
    Decision,
    Number,
    Outcome,
    Paper,
    over_seeds,
    read_paper,
)
from creditscope.tables import EMPTY, Cell, Column, Row, Table, grouped_by, mean
from creditscope.training.spec import RunSpec

APART = (Outcome.NOT_COMPARABLE, Outcome.NOT_RUN)


class Reason(Enum):
    """Why a claim is not compared, or how it differs."""

    NONE = ""
    LENGTH = "ours trained for another number of epochs"
    UNMEASURED = "not measurable in our runs"
    NEVER = "it does not happen in our runs"
    PUBLISHED = "the published value is of another kind"


@dataclass(frozen=True)
class Line:
    """One claim under one reading."""

    claim: Number | Decision
    reading: str = ""
    ours: Cell = EMPTY
    outcome: Outcome = Outcome.NOT_RUN
    reason: Reason = Reason.NONE
    within: Outcome | None = None
    """What the numbers alone say, comparable or not."""
    epochs: int | None = None
    """For which ours trained (of their schedule, for a number of the course of training)."""
    runs: tuple[str, ...] = ()

    @property
    def published(self) -> Cell:
        return self.claim.published if isinstance(self.claim, Number) else Cell(self.claim.passes)

    @property
    def compared(self) -> bool:
        return self.outcome not in APART


@dataclass(frozen=True)
class Audit:
    paper: Paper
    claims: tuple[Number | Decision, ...]

    def wanted(self, claim: Claim, reading: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the runs that a claim is about."""
        made = dict(self.paper.common)
        for part in (*(self.paper.settings[name] for name in claim.settings), reading, {"method": claim.method}):
            made |= part
        return made | {"options": make_rule(claim.method, made.get("options")).options.recorded()}

    def compare(self, records: Sequence[Record]) -> list[Line]:
        """Every claim under every reading that was run; a claim that no run is about has one line."""
        by_hash = {r.spec.hash: r for r in records}
        groups = audit(records) if any(isinstance(c, Decision) for c in self.claims) else []
        lines: list[Line] = []
        for claim in self.claims:
            mine: list[Line] = []
            for name, reading in self.paper.readings.items():
                if not matches(claim.method, reading.get("method", claim.method)):
                    continue
                wanted, used = self.wanted(claim, reading), {key for line in mine for key in line.runs}
                length = wanted.pop("epochs", None)
                if isinstance(claim, Number):
                    pool = [r for r in records if about(r.spec, wanted) and r.spec.hash not in used]
                    found = self._number(claim, length, pool, by_hash) if pool else None
                else:
                    judged = [g for g in groups if about(g.spec, wanted) and not used & set(g.hashes)]
                    found = _decision(claim, length, judged) if judged else None
                if found is not None:
                    mine.append(_line(claim, name, length, *found))
            lines += mine or [Line(claim)]
        return lines

    def _number(
        self, claim: Number, length: int | None, pool: Sequence[Record], by_hash: Mapping[str, Record]
    ) -> Found:
        course = claim.epoch is not None or claim.measured.unit == "epochs"  # comparable wherever the schedule is
        by_length = grouped_by(pool, lambda r: (r.spec.schedule_epochs if course else r.spec.epochs) or 0)
        trained = min(by_length, key=lambda k: abs(k - (length or k)))
        # one run per seed: the longest, where a schedule was run for different numbers of epochs or kept other checkpoints
        longest = {r.spec.seed: r for r in sorted(by_length[trained], key=lambda r: r.spec.epochs or 0)}
        read: list[tuple[tuple[Record, ...], float | None]] = []
        for _, r in sorted(longest.items()):
            change = self.paper.nulls.get(claim.minus, {})
            null = by_hash.get(r.spec.null("bp").changed(**change).hash) if claim.minus else None
            read.append(((r, null) if null else (r,), claim.read(r, null)))
        known = [(behind, float(v)) for behind, v in read if v is not None]
        runs = tuple(dict.fromkeys(r.spec.hash for behind, _ in (known or read) for r in behind))
        ours = over_seeds([v for _, v in known], claim.log)
        return ours, claim.judge(ours, len(known) == len(read)) if known else None, trained, runs


Found = tuple[Cell, "Outcome | None", "int | None", "tuple[str, ...]"]
"""Ours, what the numbers alone say (None: nothing was measured), for how long ours trained, the runs."""


def _line(
    claim: Number | Decision, reading: str, length: int | None, ours: Cell, within: Outcome | None, *behind: Any
) -> Line:
    outcome, reason = within or Outcome.NOT_COMPARABLE, Reason.NONE if within else Reason.UNMEASURED
    if claim.incomparable:
        outcome, reason = Outcome.NOT_COMPARABLE, Reason.PUBLISHED
    elif length is not None and behind[0] != length:
        outcome, reason = Outcome.NOT_COMPARABLE, Reason.LENGTH
    elif within is None and isinstance(claim, Number) and claim.unit == "epochs":
        outcome, reason = Outcome.DIFFERS, Reason.NEVER
    return Line(claim, reading, ours, outcome, reason, within, *behind)


def _decision(claim: Decision, length: int | None, groups: Sequence[Group]) -> Found:
    group = min(groups, key=lambda g: abs((g.spec.epochs or 0) - (length or g.spec.epochs or 0)))
    answers = answered(str(claim.check), group)
    counts = {a: answers.count(a) for a in dict.fromkeys(answers)}
    answer = answers[0] if len(counts) == 1 else "mixed"
    ours = Cell(answer, n=len(answers), note=", ".join(f"{k} {a}" for a, k in counts.items()))
    return ours, claim.judge(answer), group.spec.epochs, group.hashes


def answered(check: str, group: Group) -> tuple[str, ...]:
    """One answer per seed; a strategy decides on all seeds together, as a reader does."""
    if check in DECIDED:
        words = {"accept": "pass", "reject": "fail", "not decidable": "inconclusive"}
        return (words[DECIDED[check](case_of(group))],) * len(group.reports)
    if check == MODE_1:
        pairs = [{r.checks[d].answer for d in ("D1", "D2")} for r in group.reports]
        return tuple("fail" if p == {"fail"} else "pass" if "pass" in p else "inconclusive" for p in pairs)
    return tuple(r.status if check == "verdict" else r.checks[check].answer for r in group.reports)


def matches(value: Any, wanted: Any) -> bool:
    """Equal, or one of a list."""
    return value in wanted if isinstance(wanted, list | tuple) else bool(value == wanted)


def about(spec: RunSpec, wanted: Mapping[str, Any]) -> bool:
    return all(matches(getattr(spec, name), value) for name, value in wanted.items())


def read_audit(folder: str | Path) -> Audit:
    return Audit(*read_paper(folder))


# ---- tables -----------------------------------------------------------------------------------------------------------


def whole(lines: Iterable[Line]) -> Outcome:
    """The outcome of a claim over its readings."""
    lines = list(lines)
    found = {line.outcome for line in lines if line.compared} or {lines[0].outcome}
    return found.pop() if len(found) == 1 else Outcome.DEPENDS if Outcome.AGREES in found else Outcome.UNDECIDED


def by_claim(lines: Iterable[Line]) -> list[list[Line]]:
    return list(grouped_by(lines, lambda line: id(line.claim)).values())


def lines_table(lines: Iterable[Line], title: str) -> Table:
    """Every claim under every reading, with the runs behind it."""
    abouts = {
        "reading": "of what the paper leaves open", "difference": "ours minus published", "epochs": "for which ours trained",
        "ratio": "ours / published, for orders of magnitude", "within": "what the numbers alone say, comparable or not",
    }  # fmt: skip
    rows = tuple(Row(_cells(line), line.runs) for line in lines)
    return Table("lines", title, tuple(Column(name, about=abouts.get(name, "")) for name in LINE), rows)


LINE = (
    "table", "method", "setting", "quantity", "epoch", "minus", "reading", "published", "ours", "difference", "ratio", "outcome",
    "reason", "within", "epochs", "source", "contested", "note", "runs",
)  # fmt: skip


def _cells(line: Line) -> dict[str, Cell]:
    c, x, p = line.claim, line.ours.number, line.published.number
    made: dict[str, Any] = {k: getattr(c, k) for k in LINE if k in type(c).model_fields}
    made |= {k: getattr(line, k) for k in ("reading", "outcome", "within", "epochs")}
    if isinstance(c, Decision):
        made["quantity"] = c.check
    elif x is not None and p is not None and (p or not c.log):
        made |= {"ratio": x / p} if c.log else {"difference": x - p}
    made |= {"reason": line.reason.value, "note": "; ".join(filter(None, (c.incomparable, c.note)))}
    made["runs"] = " ".join(key[:10] for key in line.runs)
    known = {k: Cell(v) for k, v in made.items() if v not in (None, "")}
    return known | {"published": line.published, "ours": line.ours}


def summary_table(lines: Sequence[Line], title: str) -> Table:
    """The published tables: how many values, what came of them, and how many networks of ours stand behind."""
    first = next((line.reading for line in lines if line.reading), "")
    rows = []
    for name in dict.fromkeys(line.claim.table for line in lines):
        claims = by_claim(line for line in lines if line.claim.table == name)
        outcomes = [whole(c) for c in claims]
        written = sum(any(x.reading == first and x.outcome is Outcome.AGREES for x in c) for c in claims)
        runs = tuple(dict.fromkeys(key for c in claims for x in c if x.compared for key in x.runs))
        counts = {o.name.lower(): outcomes.count(o) for o in Outcome}
        made = {"table": name, "values": len(claims), "written": written, **counts, "networks": len(runs)}
        rows.append(Row({k: Cell(v) for k, v in made.items()}, runs))
    titles = {
        "agrees": "agree in every reading", "depends": "agree in some", "differs": "differ in all", "written": f"agree {first}",
        "networks": "our networks",
    }  # fmt: skip
    names = ("table", "values", *(o.name.lower() for o in Outcome), "written", "networks")
    return Table("tables", title, tuple(Column(n, titles.get(n, n.replace("_", " "))) for n in names), tuple(rows))


def _distance(line: Line) -> tuple[()] | tuple[str, float] | None:
    """(column, distance); () where the signs differ, None where a line does not count."""
    c, p, x = line.claim, line.published.number, line.ours.number
    if isinstance(c, Decision) or not line.compared or c.minus or c.kind.startswith("at ") or p is None or x is None:
        return None
    kind = "chosen" if c.chooses == "yes" else "held"
    if c.log:
        return (f"{kind}_log", math.log10(x / p)) if x * p > 0 else ()
    return f"{kind}_z", (x - p) / max(math.hypot(c.spread, line.ours.std or 0.0), TOLERANCE[c.unit])


def readings_table(lines: Sequence[Line], title: str) -> Table:
    """How far each reading of a method lies from the published numbers that choose it, and from those held back.

    Root mean squares of log10(ours / published) for orders of magnitude and of the difference for the rest, in units of its
    standard deviation over seeds (published and ours) or of the tolerance, whichever is larger. Bounds and margins are left out.
    """
    rows = []
    weighed = [(line, away) for line in lines if (away := _distance(line)) is not None]
    for method, mine in grouped_by(weighed, lambda pair: pair[0].claim.method).items():
        for reading, these in grouped_by(mine, lambda pair: pair[0].reading).items():
            runs = tuple(dict.fromkeys(key for line, _ in these for key in line.runs))
            cells = {"method": Cell(method), "reading": Cell(reading), "networks": Cell(len(runs))}
            for name, same in grouped_by((away for _, away in these if away), lambda away: away[0]).items():
                cells[name] = Cell(math.sqrt(mean([v * v for _, v in same])), n=len(same))
            rows.append(Row(cells, runs))
    titles = {
        "chosen_log": "norms, used to choose (log10)", "chosen_z": "others, used to choose (z)",
        "held_log": "norms, held back (log10)", "held_z": "others, held back (z)",
    }  # fmt: skip
    distance = Quantity("distance", "", "distance", digits=2)
    distances = (Column(k, v, distance) for k, v in titles.items())
    columns = (Column("method"), Column("reading"), *distances, Column("networks"))
    return Table("readings", title, columns, tuple(rows))
