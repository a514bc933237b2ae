"""Tables as data: numbers stay numbers, with their spread and their reason, until `creditscope.render` prints them.

Table   a name, a question, columns, rows, the statements that follow from the rows, and what can be drawn of it
Row     cells by the name of their column, and the runs behind them
Cell    one value; `value` None means not measured, and `note` says why
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from creditscope.display import Shown
from creditscope.errors import CreditscopeError, unknown
from creditscope.files import plain

if TYPE_CHECKING:
    from creditscope.quantities import Quantity

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Value = Any
"""float, int, str, bool, an Enum, an outcome with fields (a frozen dataclass), a tuple of these, or None."""


class Spread(Enum):
    """What a renderer prints behind a value."""

    NONE = "none"
    STD = "mean ± sample standard deviation"
    RANGE = "smallest to largest"
    INTERVAL = "95 % interval"


@dataclass(frozen=True)
class Cell:
    """One value of a table."""

    value: Value = None
    low: float | None = None
    high: float | None = None
    """95 % interval of the value, where there is one."""
    n: int | None = None
    """Networks behind the value."""
    note: str = ""
    """Why nothing was measured, or what the value holds for."""
    values: tuple[float, ...] = ()
    """The networks' own values, where `value` is their mean."""

    @property
    def known(self) -> bool:
        return self.value is not None

    @property
    def number(self) -> float | None:
        """The value where it is a finite number."""
        ok = isinstance(self.value, int | float) and not isinstance(self.value, bool) and math.isfinite(self.value)
        return float(self.value) if ok else None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Of the interval, where there is one."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def std(self) -> float | None:
        return sample_std(self.values)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; what is empty is left out."""
        made = {f.name: jsonable(getattr(self, f.name)) for f in fields(self)}
        return {k: v for k, v in made.items() if k == "value" or v not in (None, "", [])}


@dataclass(frozen=True)
class Column:
    """`name` is the key in rows, JSON, CSV and data frames; `title` is what a person reads."""

    name: str
    title: str = ""
    quantity: Quantity | None = None
    spread: Spread = Spread.NONE
    about: str = ""
    """What the column holds, in one line; of a quantity its own convention."""

    @property
    def heading(self) -> str:
        return self.title or self.name

    @property
    def holds(self) -> str:
        return self.about or (self.quantity.convention if self.quantity else "")


@dataclass(frozen=True)
class Row:
    cells: Mapping[str, Cell]
    runs: tuple[str, ...] = ()
    """Hashes of the specs behind it."""

    def __getitem__(self, name: str) -> Cell:
        return self.cells.get(name, EMPTY)

    def value(self, name: str) -> Value:
        return self[name].value


EMPTY = Cell()


@dataclass(frozen=True)
class Statement:
    """A sentence as data: the name of a template (see `creditscope.render.words`, or the template itself) and its fields.

    A field may hold further statements; a tuple of them is printed one after the other.
    """

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **{k: jsonable(v) for k, v in self.fields.items()}}


def state(name: str, /, **given: Any) -> Statement:
    return Statement(name, given)


@dataclass(frozen=True)
class Plot:
    """A drawing of a table: columns along x and y, one line or colour for each value of `by`.

    x of numbers makes lines, x of names makes one row of marks per name; y of outcomes makes a matrix.
    """

    x: str
    y: str
    by: str = ""
    table: Table | None = None
    """Another table than the one that the plot belongs to, for example the course of training."""
    title: str = ""


@dataclass(frozen=True)
class Table(Shown):
    name: str
    title: str
    """The question, or what the table shows."""
    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = ()
    conclusion: tuple[Statement, ...] = ()
    convention: tuple[Statement, ...] = ()
    notes: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Column]:
        return {c.name: c for c in self.columns}

    def column(self, name: str) -> tuple[Cell, ...]:
        if name not in self.by_name:
            raise CreditscopeError(unknown("column", name, self.by_name))
        return tuple(row[name] for row in self.rows)

    def values(self, name: str) -> tuple[Value, ...]:
        return tuple(cell.value for cell in self.column(name))

    def where(self, condition: Callable[[Row], bool] | None = None, /, **wanted: Value) -> Table:
        """The rows that meet the condition and have these values."""
        for name in wanted:
            self.column(name)
        kept = [
            row
            for row in self.rows
            if all(row.value(k) == v for k, v in wanted.items()) and (condition is None or condition(row))
        ]
        return replace(self, rows=tuple(kept))

    def row(self, **wanted: Value) -> Row:
        """The one row with these values."""
        found = self.where(**wanted).rows
        if len(found) != 1:
            raise CreditscopeError(f"{len(found)} rows of table {self.name} have {wanted}; expected one")
        return found[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data: numbers, not their print."""
        return {
            "name": self.name,
            "title": self.title,
            "columns": [_described(c) for c in self.columns],
            "rows": [
                {**{c.name: row[c.name].to_dict() for c in self.columns}, "runs": list(row.runs)} for row in self.rows
            ],
            "conclusion": [s.to_dict() for s in self.conclusion],
            "convention": [s.to_dict() for s in self.convention],
            "notes": list(self.notes),
            "plots": [
                {"x": p.x, "y": p.y, "by": p.by} | ({"table": p.table.to_dict()} if p.table else {}) for p in self.plots
            ],
        }

    def records(self) -> list[dict[str, Any]]:
        """One flat mapping per row: the value under the column's name, and `name.low`, `.high`, `.std`, `.n` where known."""
        parts = ("low", "high", "std", "n")
        used = {
            c.name: [p for p in parts if any(getattr(row[c.name], p) is not None for row in self.rows)]
            for c in self.columns
        }
        made = []
        for row in self.rows:
            flat: dict[str, Any] = {}
            for name, extra in used.items():
                flat[name] = simple(row[name].value)
                flat |= {f"{name}.{p}": getattr(row[name], p) for p in extra}
            made.append(flat)
        return made

    def to_frame(self) -> Any:
        """A data frame of pandas, or of polars where pandas is not installed."""
        try:
            import pandas
        except ImportError:
            try:
                import polars
            except ImportError:
                raise CreditscopeError("a data frame needs pandas or polars; install one: pip install pandas") from None
            return polars.DataFrame(self.records(), infer_schema_length=None)
        return pandas.DataFrame(self.records())


def _described(column: Column) -> dict[str, Any]:
    quantity = column.quantity
    entry: dict[str, Any] = {"name": column.name, "title": column.heading, "holds": column.holds}
    if quantity is not None:
        entry |= {"symbol": quantity.symbol, "unit": quantity.unit, "scale": quantity.scale.value}
    return entry


def jsonable(value: Value) -> Any:
    """Plain JSON data; numbers that are not finite become strings, outcomes their fields."""
    if isinstance(value, Statement):
        return value.to_dict()
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: jsonable(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(jsonable(k)): jsonable(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [jsonable(v) for v in value]
    return plain(value)


def simple(value: Value) -> Any:
    """One number or text: an outcome by its name, several values with spaces between."""
    value = jsonable(value)
    if isinstance(value, dict):
        return value.get("outcome")
    return " ".join(map(str, value)) if isinstance(value, list) else value


def grouped_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items with one key together, in the order in which the keys come."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


# ---- arithmetic over networks, each once ------------------------------------------------------------------------------


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm; 0 where one of them is 0. Values must not be negative."""
    if any(math.isnan(v) for v in values):
        return math.nan
    return math.exp(mean([math.log(v) for v in values])) if all(v > 0 for v in values) else 0.0


def sample_std(values: Sequence[float]) -> float | None:
    """With n - 1; None below two values."""
    if len(values) < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


def span(values: Sequence[float]) -> tuple[float, float] | None:
    """Smallest and largest."""
    return (min(values), max(values)) if values else None
