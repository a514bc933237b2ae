"""The published numbers and decisions of one paper, as data: a folder, and no module of its own.

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
from collections.abc import Sequence
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from creditscope.errors import CreditscopeError, complaint, unknown
from creditscope.files import read_json
from creditscope.measure.facts import GROUP
from creditscope.measure.student_t import t_975
from creditscope.protocol.intervals import t_interval
from creditscope.protocol.strategies import STRATEGIES, V1_COLUMNS
from creditscope.quantities import Compare, Quantity, get_quantity
from creditscope.runs.record import Record
from creditscope.tables import Cell, geometric_mean, mean
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


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Paper(Strict):
    """audit.json. A mapping gives fields of a RunSpec; a list means any of these."""

    paper: str
    common: dict[str, Any] = {}
    settings: dict[str, dict[str, Any]] = {}
    nulls: dict[str, dict[str, Any]] = {}
    """Runs that a number is a margin to: changes to the bp null of the claim's own run."""
    readings: dict[str, dict[str, Any]] = {"as written": {}}
    """What the paper leaves open, the wording of its text first; `method` limits a reading to some methods."""

    @model_validator(mode="after")
    def _fields_exist(self) -> Paper:
        for part in (self.common, *self.settings.values(), *self.nulls.values(), *self.readings.values()):
            for name in part.keys() - RunSpec.model_fields.keys():
                raise ValueError(unknown("field", name, RunSpec.model_fields))
        return self


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
    def settings(self) -> list[str]:
        return [name for name in self.setting.split("; ") if name]


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
    chooses: Literal["yes", "no"] = "no"
    """Whether a reading may be chosen by it; the others are held back (`compare.readings_table`)."""

    @model_validator(mode="after")
    def _readable(self) -> Number:
        if self.published.value is not None and self.batch_size and not self.quantity.startswith("reference_norm_128"):
            raise ValueError(f"batch_size belongs to ‖g‖ (reference_norm_128), not to {self.quantity}")
        return self

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
            if self.low is None or self.high is None:
                raise ValueError("a range needs low and high")
            return Cell(centre((self.low, self.high), self.log), self.low, self.high)
        values = tuple(map(float, self.value.split(";")))
        if self.std is not None and self.n is not None and self.n > 1:
            half = t_975(self.n - 1) * self.std / math.sqrt(self.n)
            return Cell(values[0], values[0] - half, values[0] + half, self.n)
        made = over_seeds(values, self.log)
        return made if len(values) > 1 else Cell(made.value, n=self.n)

    @property
    def spread(self) -> float:
        """Standard deviation over the published seeds, or half of a published range; 0 where nothing is said."""
        p = self.published
        half = (p.high - p.low) / 2 if self.kind == "range" and p.low is not None and p.high is not None else 0.0
        return self.std or p.std or half

    def scaled(self, value: float) -> float:
        return value if not self.log else math.log(abs(value)) if value else -math.inf

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Where the mean of ours must lie to agree; on a logarithmic scale the logarithms of the sizes."""
        p, tolerance = self.published, math.log(FACTOR) if self.log else TOLERANCE[self.unit]
        ends = sorted(self.scaled(p.value if v is None else v) for v in (p.low, p.high))
        value = self.scaled(p.value)
        return {
            "at most": (-math.inf, value),
            "at least": (value, math.inf),
            "range": (ends[0] - tolerance, ends[1] + tolerance),
            "value": (min(ends[0], value - tolerance), max(ends[1], value + tolerance)),
        }[self.kind]

    def judge(self, ours: Cell, complete: bool) -> Outcome:
        """What the numbers alone say."""
        low, high = self.interval
        if self.unit == "epochs":  # an event: in every seed
            inside = [low <= v <= high for v in ours.values]
            return Outcome.AGREES if complete and all(inside) else Outcome.UNDECIDED if any(inside) else Outcome.DIFFERS
        if self.log and any(v * self.published.value <= 0 for v in ours.values):
            return Outcome.DIFFERS if ours.value * self.published.value <= 0 else Outcome.UNDECIDED
        if low <= (value := self.scaled(ours.value)) <= high:
            return Outcome.AGREES
        ends = sorted(self.scaled(v) for v in (ours.low, ours.high) if v is not None) or [value]
        return Outcome.DIFFERS if ends[-1] < low or ends[0] > high else Outcome.UNDECIDED

    def read(self, record: Record, null: Record | None) -> float | None:
        found = self.measured.of(record, self.epoch).number
        if self.minus:
            other = None if null is None else self.measured.of(null, self.epoch).number
            return None if found is None or other is None else 100 * (found - other)
        return found if found is None or not self.batch_size else found * GROUP / self.batch_size


class Decision(Claim):
    check: Literal[CHECKS]  # type: ignore[valid-type]
    passes: Literal["pass", "fail"]

    def judge(self, answer: str) -> Outcome:
        contrary = answer in ("pass", "fail")
        return Outcome.AGREES if answer == self.passes else Outcome.DIFFERS if contrary else Outcome.UNDECIDED


def centre(values: Sequence[float], log: bool) -> float:
    """Mean; of orders of magnitude the geometric one, where all have one sign."""
    sign = math.copysign(1.0, values[0])
    one_sign = all(v * sign > 0 for v in values)
    return sign * geometric_mean([abs(v) for v in values]) if log and one_sign and len(values) > 1 else mean(values)


def over_seeds(values: Sequence[float], log: bool) -> Cell:
    """Centre and 95 % t-interval; one value has none."""
    if not values:
        return Cell()
    sign = math.copysign(1.0, values[0])
    if log and all(v * sign > 0 for v in values):
        ends = sorted(sign * math.exp(min(x, 700.0)) for x in t_interval([math.log(abs(v)) for v in values]) or ())
    else:
        ends = list(t_interval(values) or ())
    low, high = ends or (None, None)
    return Cell(centre(values, log), low, high, len(values), values=tuple(values))


# ---- reading the folder -----------------------------------------------------------------------------------------------

M = TypeVar("M", bound=BaseModel)


def read_paper(folder: str | Path) -> tuple[Paper, tuple[Number | Decision, ...]]:
    root = Path(folder)
    paper = _made(Paper, read_json(root / "audit.json", "the settings of an audit"), str(root / "audit.json"))
    claims: list[tuple[str, Number | Decision]] = [*_rows(root / "published.csv", Number)]
    if (root / "verdicts.csv").exists():
        claims += _rows(root / "verdicts.csv", Decision)
    for where, claim in claims:
        named = [("setting", name, paper.settings) for name in claim.settings]
        if isinstance(claim, Number) and claim.minus:
            named.append(("null", claim.minus, paper.nulls))
        for what, name, known in named:
            if name not in known:
                raise CreditscopeError(f"{where}: {unknown(what, name, known)}")
    return paper, tuple(claim for _, claim in claims)


def _rows(path: Path, kind: type[M]) -> list[tuple[str, M]]:
    """(file and line, claim); an empty cell is as a column that is not there."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, restkey="more", restval=""))
    except OSError as error:
        raise CreditscopeError(f"{path} cannot be read: {error.strerror}") from None
    wheres = [f"{path}:{number}" for number in range(2, len(rows) + 2)]
    return [
        (where, _made(kind, {k: v for k, v in row.items() if v}, where))
        for where, row in zip(wheres, rows, strict=True)
    ]


def _made(kind: type[M], data: Any, where: str) -> M:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        item = error.errors()[0]
        name = ".".join(map(str, item["loc"]))
        raise CreditscopeError(f"{where}: {name + ' ' if name else ''}{complaint(item)}") from None
