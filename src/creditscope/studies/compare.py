"""A paper's published numbers and decisions held against records. The paper is a folder of data, and no module of its own:

    audit.json      what the settings of the paper are as fields of a run, and the readings of what it leaves open
    published.csv   its numbers, one per line, each under the name of a quantity (`creditscope.quantities`)
    verdicts.csv    its decisions: pass or fail, by the whole protocol, by one check or by a reporting strategy (may be missing)

A number agrees where the mean of ours lies in the published interval, which is at least as wide as the tolerance of the
quantity. It differs where our whole interval lies outside of it; otherwise our seeds do not decide. So a wide spread of ours
never makes a number easier to meet.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from creditscope.credit.registry import make_rule
from creditscope.errors import CreditscopeError, complaint, unknown
from creditscope.files import read_json
from creditscope.measure.facts import GROUP
from creditscope.measure.student import t_975
from creditscope.protocol.intervals import t_interval
from creditscope.protocol.strategies import STRATEGIES, V1_COLUMNS
from creditscope.quantities import Compare, Quantity, get_quantity
from creditscope.runs.groups import Group, audit
from creditscope.runs.record import Record
from creditscope.studies.ablation import case_of
from creditscope.tables import Cell, Column, Row, Table, geometric_mean, mean
from creditscope.training.spec import RunSpec

FACTOR = 3.0
"""Orders of magnitude agree within this factor."""
TOLERANCE = {"": 0.02, "pp": 2.0, "epochs": 2.0}
"""By unit. Accuracies: 2 pp, the threshold of D3; cosines: .02, from which the protocol tells two readings of Γ apart."""
DECIDED = {**V1_COLUMNS, **STRATEGIES}
MODE_1 = "D1 + D2"
CHECKS = ("verdict", "D1", "D2", "D3", "C", MODE_1, *DECIDED)


class Outcome(Enum):
    AGREES = "agrees"
    DEPENDS = "depends on the reading"
    """Of a whole claim: some readings of what the paper leaves open agree and others do not."""
    UNDECIDED = "undecided"
    DIFFERS = "differs"
    NOT_COMPARABLE = "not comparable"
    NOT_RUN = "not run"


class Reason(Enum):
    """Why a claim is not compared, or what is special in how it was."""

    NONE = ""
    LENGTH = "ours trained for another number of epochs"
    UNMEASURED = "not measurable in our runs"
    NEVER = "it does not happen in our runs"
    PUBLISHED = "the published value is of another kind"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Paper(Strict):
    """audit.json. A mapping names fields of a RunSpec; a list means any of these."""

    paper: str
    preset: str = "paper"
    """Of the studies whose grids the audit needs."""
    common: dict[str, Any] = {}
    settings: dict[str, dict[str, Any]] = {}
    nulls: dict[str, dict[str, Any]] = {}
    """Runs that a number is a margin to: changes to the bp null of the claim's own run."""
    readings: dict[str, dict[str, Any]] = {"as written": {}}
    """What the paper leaves open, the wording of its text first; `method` limits a reading to some methods."""
    partly_stated: tuple[str, ...] = ()
    """Methods whose settings the paper gives in part."""


class Claim(Strict):
    table: str
    method: str
    setting: str = ""
    """Names of settings, with "; " between."""
    source: str = ""
    contested: str = ""
    incomparable: str = ""
    """Why ours cannot stand beside it, though it may be there."""
    note: str = ""

    @property
    def about(self) -> str:
        """The quantity or check."""
        raise NotImplementedError


class Number(Claim):
    quantity: str
    epoch: int | None = None
    minus: str = ""
    """The null that is subtracted, in percentage points."""
    value: str = ""
    """One number, or one per seed with "; " between."""
    std: float | None = None
    n: int | None = None
    low: float | None = None
    high: float | None = None
    kind: Literal["value", "range", "at most", "at least"] = "value"
    batch_size: int | None = None
    """Of a gradient norm: the batch over which the loss was averaged (128 where nothing is said)."""

    @property
    def about(self) -> str:
        return self.quantity

    @cached_property
    def measured(self) -> Quantity:
        return get_quantity(self.quantity)

    @property
    def unit(self) -> str:
        return "pp" if self.minus else self.measured.unit

    @property
    def log(self) -> bool:
        return self.measured.compare is Compare.LOG_RATIO and not self.minus

    @cached_property
    def published(self) -> Cell:
        """The value with its 95 % interval, or with the ends of a published range."""
        if self.kind == "range":
            ends = (float(self.low or 0.0), float(self.high or 0.0))
            return Cell(centre(ends, self.log and ends[1] > 1.5 * ends[0]), *ends, note=self.note)
        values = tuple(map(float, self.value.split(";")))
        low, high = spread_of(values, self.log)
        if self.std is not None and self.n is not None and self.n > 1:
            half = t_975(self.n - 1) * self.std / math.sqrt(self.n)
            low, high = values[0] - half, values[0] + half
        n = len(values) if len(values) > 1 else self.n
        return Cell(centre(values, self.log), low, high, n, self.note, values if len(values) > 1 else ())

    def interval(self) -> tuple[float, float]:
        """Where ours must lie to agree; on a logarithmic scale the logarithms of the sizes."""
        p = self.published
        low, high, value = (self.scaled(v) for v in (p.low, p.high, p.value))
        if self.kind == "at most":
            return -math.inf, value
        if self.kind == "at least":
            return value, math.inf
        tolerance = math.log(FACTOR) if self.log else TOLERANCE[self.unit]
        low, high = (value if v is None else v for v in (low, high))
        if self.kind == "range":
            return min(low, high) - tolerance, max(low, high) + tolerance
        return min(low, high, value - tolerance), max(low, high, value + tolerance)

    def scaled(self, value: float | None) -> Any:
        if value is None or not self.log:
            return value
        return math.log(abs(value)) if value else -math.inf


class Decision(Claim):
    check: Literal[CHECKS]  # type: ignore[valid-type]
    passes: Literal["pass", "fail"]

    @property
    def about(self) -> str:
        return str(self.check)


@dataclass(frozen=True)
class Line:
    """One claim under one reading."""

    claim: Claim
    reading: str
    published: Cell
    ours: Cell
    outcome: Outcome
    within: Outcome | None = None
    """What the numbers alone say, comparable or not."""
    reason: Reason = Reason.NONE
    epochs: int | None = None
    """For which ours trained (of their schedule, for a number of the course of training)."""
    runs: tuple[str, ...] = ()


C = TypeVar("C", bound=Claim)


@dataclass(frozen=True)
class Audit:
    paper: Paper
    numbers: tuple[Number, ...]
    decisions: tuple[Decision, ...]

    def wanted(self, claim: Claim, reading: Mapping[str, Any]) -> dict[str, Any] | None:
        """The fields of the runs that a claim is about; None where the reading is of other methods."""
        if not matches(claim.method, reading.get("method", claim.method)):
            return None
        parts = [self.paper.settings[name] for name in claim.setting.split("; ") if name]
        made: dict[str, Any] = dict(self.paper.common)
        for part in (*parts, reading, {"method": claim.method}):
            made |= part
        return made | {"options": make_rule(claim.method, made.get("options")).options.recorded()}

    def compare(self, records: Sequence[Record]) -> list[Line]:
        """Every claim under every reading that was run; a claim that no run is about has one line."""
        by_hash, groups = {r.spec.hash: r for r in records}, audit(records)
        lines: list[Line] = []
        for claim in (*self.numbers, *self.decisions):
            mine, used = [], set[str]()
            for name, reading in self.paper.readings.items():
                wanted = self.wanted(claim, reading)
                if wanted is None:
                    continue
                length = wanted.pop("epochs", None)
                if isinstance(claim, Number):
                    line = _number(claim, name, wanted, length, records, used, self.paper.nulls, by_hash)
                else:
                    line = _decision(claim, name, wanted, length, groups, used)  # type: ignore[arg-type]
                if line is not None:
                    mine.append(line)
                    used |= set(line.runs)
            lines += mine or [Line(claim, "", published_cell(claim), Cell(), Outcome.NOT_RUN)]
        return lines


# ---- reading the folder -----------------------------------------------------------------------------------------------


def read_audit(folder: str | Path) -> Audit:
    root = Path(folder)
    try:
        paper = Paper.model_validate(read_json(root / "audit.json", "the settings of an audit"))
    except ValidationError as error:
        raise CreditscopeError(f"{root / 'audit.json'}: {_first(error)}") from None
    named = {"common": paper.common, **paper.settings, **paper.nulls, **paper.readings}
    for name, fields in named.items():
        for field in fields:
            if field not in RunSpec.model_fields:
                raise CreditscopeError(
                    f"{root / 'audit.json'}, {name!r}: {unknown('field', field, RunSpec.model_fields)}"
                )
    numbers = _rows(root / "published.csv", Number)
    decisions = _rows(root / "verdicts.csv", Decision) if (root / "verdicts.csv").exists() else []
    for where, claim in (*numbers, *decisions):
        _check(claim, paper, where)
    return Audit(paper, tuple(c for _, c in numbers), tuple(c for _, c in decisions))


def _rows(path: Path, kind: type[C]) -> list[tuple[str, C]]:
    """(file and line, claim); an empty cell is as a column that is not there."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, restkey="more", restval=""))
    except OSError as error:
        raise CreditscopeError(f"{path} cannot be read: {error.strerror}") from None
    found = []
    for number, row in enumerate(rows, 2):
        try:
            found.append((f"{path}:{number}", kind.model_validate({k: v for k, v in row.items() if v != ""})))
        except ValidationError as error:
            raise CreditscopeError(f"{path}:{number}: {_first(error)}") from None
    return found


def _first(error: ValidationError) -> str:
    item = error.errors()[0]
    return f"{'.'.join(map(str, item['loc']))} {complaint(item)}"


def _check(claim: Claim, paper: Paper, where: str) -> None:
    """Names that are not known, and numbers that are none."""
    for name in filter(None, claim.setting.split("; ")):
        if name not in paper.settings:
            raise CreditscopeError(f"{where}: {unknown('setting', name, paper.settings)}")
    if isinstance(claim, Number):
        try:
            quantity, _ = claim.measured, claim.published
        except ValueError as error:
            raise CreditscopeError(f"{where}: {error}") from None
        if claim.minus and claim.minus not in paper.nulls:
            raise CreditscopeError(f"{where}: {unknown('null', claim.minus, paper.nulls)}")
        if claim.batch_size and not quantity.name.startswith("reference_norm_128"):
            raise CreditscopeError(f"{where}: batch_size belongs to ‖g‖ (reference_norm_128), not to {quantity.name}")


# ---- comparing --------------------------------------------------------------------------------------------------------


def matches(value: Any, wanted: Any) -> bool:
    """Equal, or one of a list."""
    return value in wanted if isinstance(wanted, list | tuple) else bool(value == wanted)


def about(spec: RunSpec, wanted: Mapping[str, Any]) -> bool:
    return all(matches(getattr(spec, name), value) for name, value in wanted.items())


def centre(values: Sequence[float], log: bool) -> float:
    """Mean; of orders of magnitude the geometric one, where all have one sign."""
    signs = {math.copysign(1.0, v) for v in values}
    if not log or len(signs) > 1 or not all(values):
        return mean(values)
    return signs.pop() * geometric_mean([abs(v) for v in values])


def spread_of(values: Sequence[float], log: bool) -> tuple[float | None, float | None]:
    """95 % t-interval of the centre; (None, None) of one value."""
    sign = math.copysign(1.0, values[0]) if values else 1.0
    if log and all(v * sign > 0 for v in values):
        found = t_interval([math.log(abs(v)) for v in values])
        ends = sorted(sign * math.exp(min(x, 700.0)) for x in found) if found else None
        return (ends[0], ends[1]) if ends else (None, None)
    return t_interval(values) or (None, None)


def judged(claim: Number, ours: Cell, complete: bool) -> Outcome:
    """What the numbers alone say."""
    low, high = claim.interval()
    if claim.unit == "epochs":  # an event: in every seed
        inside = [low <= v <= high for v in ours.values]
        return Outcome.AGREES if complete and all(inside) else Outcome.UNDECIDED if any(inside) else Outcome.DIFFERS
    if claim.log and any(v * claim.published.value <= 0 for v in ours.values):
        return Outcome.DIFFERS if ours.value * claim.published.value <= 0 else Outcome.UNDECIDED
    value, *ends = (claim.scaled(v) for v in (ours.value, ours.low, ours.high))
    if low <= value <= high:
        return Outcome.AGREES
    bottom, top = (min(ends), max(ends)) if None not in ends else (value, value)
    return Outcome.DIFFERS if top < low or bottom > high else Outcome.UNDECIDED


def _number(
    claim: Number,
    reading: str,
    wanted: Mapping[str, Any],
    length: int | None,
    records: Sequence[Record],
    used: set[str],
    nulls: Mapping[str, Mapping[str, Any]],
    by_hash: Mapping[str, Record],
) -> Line | None:
    course = claim.epoch is not None or claim.measured.unit == "epochs"  # comparable wherever the schedule is
    by_length: dict[int, list[Record]] = {}
    for r in records:
        if about(r.spec, wanted) and r.spec.hash not in used:
            by_length.setdefault((r.spec.schedule_epochs if course else r.spec.epochs) or 0, []).append(r)
    if not by_length:
        return None
    trained = min(by_length, key=lambda k: abs(k - (length or k)))
    # one run per seed: the longest, where a schedule was run for different numbers of epochs or kept other checkpoints
    longest = {r.spec.seed: r for r in sorted(by_length[trained], key=lambda r: r.spec.epochs or 0)}
    mine = [longest[seed] for seed in sorted(longest)]
    pairs = [(r, by_hash.get(r.spec.null("bp").changed(**nulls[claim.minus]).hash) if claim.minus else r) for r in mine]
    read = [(r, null, _value(claim, r, null)) for r, null in pairs]
    known = [(r, null, v) for r, null, v in read if v is not None]
    values = tuple(v for _, _, v in known)
    runs = tuple(dict.fromkeys(x.spec.hash for r, null, _ in (known or read) for x in (r, null) if x is not None))
    made = (
        Cell(centre(values, claim.log), *spread_of(values, claim.log), len(values), values=values) if values else Cell()
    )
    within = judged(claim, made, len(values) == len(mine)) if values else None
    outcome, reason = within or Outcome.DIFFERS, Reason.NONE
    if claim.incomparable:
        outcome, reason = Outcome.NOT_COMPARABLE, Reason.PUBLISHED
    elif length is not None and trained != length:
        outcome, reason = Outcome.NOT_COMPARABLE, Reason.LENGTH
    elif not values:
        event = claim.measured.unit == "epochs"
        outcome, reason = (Outcome.DIFFERS, Reason.NEVER) if event else (Outcome.NOT_COMPARABLE, Reason.UNMEASURED)
    return Line(claim, reading, claim.published, made, outcome, within, reason, trained, runs)


def _value(claim: Number, record: Record, null: Record | None) -> float | None:
    found = claim.measured.of(record, claim.epoch).number
    if claim.minus:
        other = None if null is None else claim.measured.of(null, claim.epoch).number
        return None if found is None or other is None else 100 * (found - other)
    return found if found is None or not claim.batch_size else found * GROUP / claim.batch_size


def _decision(
    claim: Decision,
    reading: str,
    wanted: Mapping[str, Any],
    length: int | None,
    groups: Sequence[Group],
    used: set[str],
) -> Line | None:
    mine = [g for g in groups if about(g.spec, wanted) and not used & set(g.hashes)]
    if not mine:
        return None
    group = min(mine, key=lambda g: abs((g.spec.epochs or 0) - (length or g.spec.epochs or 0)))
    answers = answered(str(claim.check), group)
    words = {a: answers.count(a) for a in dict.fromkeys(answers)}
    ours = Cell(
        next(iter(words)) if len(words) == 1 else "mixed",
        n=len(answers),
        note=", ".join(f"{k} {a}" for a, k in words.items()),
    )
    other = "fail" if claim.passes == "pass" else "pass"
    within = {claim.passes: Outcome.AGREES, other: Outcome.DIFFERS}.get(str(ours.value), Outcome.UNDECIDED)
    outcome, reason = within, Reason.NONE
    if claim.incomparable:
        outcome, reason = Outcome.NOT_COMPARABLE, Reason.PUBLISHED
    elif length is not None and group.spec.epochs != length:
        outcome, reason = Outcome.NOT_COMPARABLE, Reason.LENGTH
    return Line(claim, reading, published_cell(claim), ours, outcome, within, reason, group.spec.epochs, group.hashes)


def answered(check: str, group: Group) -> tuple[str, ...]:
    """One answer per seed; a strategy decides on all seeds together, as a reader does."""
    if check in DECIDED:
        words = {"accept": "pass", "reject": "fail", "not decidable": "inconclusive"}
        return (words[DECIDED[check](case_of(group))],) * len(group.reports)
    if check == MODE_1:
        pairs = [{r.checks[d].answer for d in ("D1", "D2")} for r in group.reports]
        return tuple("fail" if p == {"fail"} else "pass" if "pass" in p else "inconclusive" for p in pairs)
    return tuple(r.status if check == "verdict" else r.checks[check].answer for r in group.reports)


def published_cell(claim: Claim) -> Cell:
    return claim.published if isinstance(claim, Number) else Cell(getattr(claim, "passes", None), note=claim.note)


# ---- tables -----------------------------------------------------------------------------------------------------------


def whole(lines: Iterable[Line]) -> Outcome:
    """The outcome of a claim over its readings."""
    found = [line.outcome for line in lines]
    compared = {o for o in found if o not in (Outcome.NOT_COMPARABLE, Outcome.NOT_RUN)}
    if not compared:
        return Outcome.NOT_COMPARABLE if Outcome.NOT_COMPARABLE in found else Outcome.NOT_RUN
    if len(compared) == 1:
        return compared.pop()
    return Outcome.DEPENDS if Outcome.AGREES in compared else Outcome.UNDECIDED


def by_claim(lines: Iterable[Line]) -> list[list[Line]]:
    found: dict[int, list[Line]] = {}
    for line in lines:
        found.setdefault(id(line.claim), []).append(line)
    return list(found.values())


LINE_COLUMNS = (
    Column("table"), Column("method"), Column("setting"), Column("quantity"), Column("epoch"), Column("minus"),
    Column("reading", about="of what the paper leaves open"), Column("published"), Column("ours"),
    Column("difference", about="ours minus published"), Column("ratio", about="ours / published, for orders of magnitude"),
    Column("outcome"), Column("reason"), Column("within", about="what the numbers alone say, comparable or not"),
    Column("epochs", about="for which ours trained"), Column("source"), Column("contested"), Column("note"), Column("runs"),
)  # fmt: skip


def lines_table(lines: Iterable[Line], title: str) -> Table:
    """Every claim under every reading, with the runs behind it."""
    return Table("lines", title, LINE_COLUMNS, tuple(map(_row, lines)))


def _row(line: Line) -> Row:
    c, ours, published = line.claim, line.ours.number, line.published.number
    number = isinstance(c, Number)
    both = ours is not None and published is not None
    log = number and c.log
    cells = {
        "table": c.table, "method": c.method, "setting": c.setting, "quantity": c.about, "reading": line.reading,
        "epoch": c.epoch if number else None, "minus": c.minus if number else None,
        "difference": ours - published if both and not log else None,
        "ratio": ours / published if both and log and published else None,
        "outcome": line.outcome, "reason": line.reason.value or None, "within": line.within, "epochs": line.epochs,
        "source": c.source, "contested": c.contested, "note": "; ".join(filter(None, (c.incomparable, c.note))),
        "runs": " ".join(key[:10] for key in line.runs),
    }  # fmt: skip
    made = {name: Cell(value) for name, value in cells.items() if value not in (None, "")}
    return Row(made | {"published": line.published, "ours": line.ours}, line.runs)


def summary_table(lines: Sequence[Line], title: str) -> Table:
    """Published tables: how many values, what came of them, and how many networks of ours stand behind."""
    first = next((line.reading for line in lines if line.reading), "")
    rows = []
    for name in dict.fromkeys(line.claim.table for line in lines):
        claims = by_claim(line for line in lines if line.claim.table == name)
        outcomes = [whole(c) for c in claims]
        written = sum(any(x.reading == first and x.outcome is Outcome.AGREES for x in c) for c in claims)
        compared = {
            key
            for c in claims
            for x in c
            if x.outcome not in (Outcome.NOT_COMPARABLE, Outcome.NOT_RUN)
            for key in x.runs
        }
        cells = {"table": name, "values": len(claims), "written": written} | {
            o.name.lower(): outcomes.count(o) for o in Outcome
        }
        rows.append(
            Row({k: Cell(v) for k, v in (cells | {"networks": len(compared)}).items()}, tuple(sorted(compared)))
        )
    columns = (
        Column("table"), Column("values"), Column("written", f"agree, {first}"),
        Column("agrees", "agree in every reading run"), Column("depends", "in some readings"), Column("undecided"),
        Column("differs", "differ in all"), Column("not_comparable", "not comparable"), Column("not_run", "not run"),
        Column("networks", "networks of ours", about="distinct runs behind the lines that were compared"),
    )  # fmt: skip
    return Table("tables", title, columns, tuple(rows))
