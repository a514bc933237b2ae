"""Tables drawn: numbers over numbers make lines, numbers over names rows of marks, outcomes a matrix of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from creditscope.errors import CreditscopeError
from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.render.charts import Cell, Chart, Dots, Level, Matrix, Panel, Row, Series
from creditscope.render.numbers import num
from creditscope.render.plots import Drawing, figure
from creditscope.render.svg import svg
from creditscope.tables import simple

if TYPE_CHECKING:
    from creditscope import tables
    from creditscope.quantities import Quantity

__all__ = ["Drawing", "draw", "figure", "panel", "svg", "table_panels"]

KINDS = {
    "accept": "good", "pass": "good", "reject": "bad", "fail": "bad",
    "not decidable": "open", "inconsistent": "open", "inconclusive": "open", "incomplete": "open", "mixed": "open",
}  # fmt: skip
MARKS = {"good": "✓ ", "bad": "✗ ", "open": "? ", "plain": ""}
PLACES = 12
"""Values of a setting that are not whole numbers stand side by side, up to so many."""
RULES = {
    "h_norm_explosion_ratio": "D1 {}",
    "g_norm_floor": "floor of D2 {}",
    "frozen_acc_margin_pp": "D3 threshold {} pp",
    "stability_drift_ceiling": "C {}",
    "concentration_share": "Mode 2 above {}",
}


def draw(
    table: tables.Table, x: str, y: str, by: str = "", *, title: str = "", words: Callable[[Any], str] | None = None
) -> Drawing:
    """The column `y` over the column `x`, one line or mark for each value of `by`. `words` prints outcomes and names."""
    return figure([panel(table, x, y, by, title=title, words=words)])


def table_panels(table: tables.Table, words: Callable[[Any], str] | None = None) -> list[Panel]:
    """Every plot that a table asks for and has numbers for."""
    made = [panel(p.table or table, p.x, p.y, p.by, title=p.title, words=words) for p in table.plots]
    return [p for p in made if _drawable(p)]


def panel(
    table: tables.Table, x: str, y: str, by: str = "", *, title: str = "", words: Callable[[Any], str] | None = None
) -> Panel:
    say = words or (lambda value: str(simple(value)))
    across, up = table.column(x), table.column(y)
    by_cells: Sequence[Any] = table.column(by) if by else [None] * len(up)
    column = table.by_name[y]
    key, title = f"{table.name}-{y}", title or column.heading
    log = column.quantity is not None and column.quantity.scale.value == "log"
    groups = ["" if c is None else say(c.value) for c in by_cells]
    names = list(dict.fromkeys(groups))
    if not any(c.number is not None for c in up) and any(c.known for c in up):
        return _matrix(table, key, title, column.holds, across, up, groups, names, say)
    shared: dict[str, Any] = {"levels": rules(column.quantity), "log": log}
    if all(c.number is not None for c in across) and across:
        return _chart(table, key, title, column, table.by_name[x], across, up, groups, names, shared)
    rows = []
    for cell, name, group in zip(up, across, groups, strict=True):
        marks = [(f"run {k}", v) for k, v in enumerate(cell.values, 1)] if len(cell.values) > 1 else []
        marks = marks or ([("", cell.number)] if cell.number is not None else [])
        interval = (cell.low, cell.high) if cell.low is not None and cell.high is not None else None
        rows.append(Row(" ".join(filter(None, [say(name.value), group])), marks, interval))
    zero = column.quantity is None or column.quantity.scale.value == "linear"
    return Dots(key, title, column.holds, column.heading, rows, zero=zero, **shared)


def _chart(
    table: tables.Table, key: str, title: str, column: Any, base: Any, across: Sequence[Any], up: Sequence[Any],
    groups: Sequence[str], names: Sequence[str], shared: dict[str, Any],
) -> Chart:  # fmt: skip
    xs = sorted({c.number for c in across})
    measured = base.quantity is not None and base.quantity.unit != "epochs"
    places = [] if measured or all(v == int(v) for v in xs) else [num(v) for v in xs]
    if len(places) > PLACES:
        raise CreditscopeError(f"{base.name} of table {table.name} has {len(places)} values; a figure holds {PLACES}")
    series = []
    for name in names:
        points = sorted(
            (a.number, k) for k, (a, g) in enumerate(zip(across, groups, strict=True)) if g == name
        )  # fmt: skip
        cells = [up[k] for _, k in points]
        at = [float(xs.index(v)) if places else v for v, _ in points]
        spread = [(c.low, c.high) if c.low is not None and c.high is not None else c.std for c in cells]
        series.append(Series(name or column.heading, [c.number for c in cells], spread, at, line=not measured))
    zero = column.quantity is not None and column.quantity.form.value == "signed"
    every = list(map(float, range(len(xs)))) if places else xs
    return Chart(
        key, title, column.holds, column.heading, every, series, base.heading, zero=zero, places=places,
        whole=not measured, **shared,
    )  # fmt: skip


def _matrix(
    table: tables.Table, key: str, title: str, convention: str, across: Sequence[Any], up: Sequence[Any],
    groups: Sequence[str], names: Sequence[str], say: Callable[[Any], str],
) -> Matrix:  # fmt: skip
    found: dict[str, dict[str, Cell]] = {}
    for cell, place, group in zip(up, across, groups, strict=True):
        kind = KINDS.get(str(simple(cell.value)), "plain")
        found.setdefault(say(place.value), {})[group] = Cell(
            MARKS[kind] + (say(cell.value) if cell.known else "–"), kind
        )
    columns = [name or title for name in names]
    return Matrix(
        key, title, convention, columns, [(r, [c.get(n, Cell("–")) for n in names]) for r, c in found.items()]
    )


def rules(quantity: Quantity | None, limits: DiagnosticThresholds | None = None) -> tuple[Level, ...]:
    """The threshold that a quantity is judged by."""
    if quantity is None or not quantity.threshold:
        return ()
    value = float(getattr(limits or DiagnosticThresholds(), quantity.threshold))
    return (Level(value, RULES[quantity.threshold].format(f"{value:g}".replace("e-0", "e-"))),)


def _drawable(panel: Panel) -> bool:
    if isinstance(panel, Chart):
        return any(v is not None for s in panel.series for v in s.values)
    return any(row.marks or row.hollow for row in panel.rows) if isinstance(panel, Dots) else bool(panel.rows)
