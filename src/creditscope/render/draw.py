"""Tables drawn: numbers over numbers make lines, numbers over names rows of marks, outcomes a matrix of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from creditscope.errors import CreditscopeError
from creditscope.quantities import Form, Scale
from creditscope.render.charts import Cell, Chart, Dots, Level, Matrix, Panel, Row, Series, rule
from creditscope.render.numbers import num
from creditscope.render.plots import Drawing, figure
from creditscope.render.svg import svg
from creditscope.tables import grouped_by, simple

if TYPE_CHECKING:
    from creditscope import tables
    from creditscope.quantities import Quantity

__all__ = ["Drawing", "draw", "figure", "panel", "svg", "table_panels"]

About = tuple[str, str, str]
"""Key, title and convention of a panel."""
Points = Sequence[tuple[str, "tables.Cell", "tables.Cell"]]
"""(value of `by` in words, x, y) of every row."""
KINDS = {
    "accept": "good", "pass": "good", "reject": "bad", "fail": "bad",
    "not decidable": "open", "inconsistent": "open", "inconclusive": "open", "incomplete": "open", "mixed": "open",
}  # fmt: skip
MARKS = {"good": "✓ ", "bad": "✗ ", "open": "? ", "plain": ""}
PLACES = 12
"""Values of a setting that are not whole numbers stand side by side, up to so many."""


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
    groups = [say(c.value) for c in table.column(by)] if by else [""] * len(up)
    points = list(zip(groups, across, up, strict=True))
    column, quantity = table.by_name[y], table.by_name[y].quantity
    about = (f"{table.name}-{y}", title or column.heading, column.holds)
    if not any(c.number is not None for c in up) and any(c.known for c in up):
        return _matrix(about, points, say)
    shared: dict[str, Any] = {"levels": rules(quantity), "log": quantity is not None and quantity.scale is Scale.LOG}
    if all(c.number is not None for c in across) and across:
        return _chart(about, points, table, x, column, shared)
    rows = []
    for group, name, cell in points:
        marks = [(f"run {k}", v) for k, v in enumerate(cell.values, 1)] if len(cell.values) > 1 else []
        marks = marks or ([("", cell.number)] if cell.number is not None else [])
        rows.append(Row(" ".join(filter(None, [say(name.value), group])), marks, cell.ends))
    return Dots(*about, column.heading, rows, zero=quantity is None or quantity.scale is Scale.LINEAR, **shared)


def _chart(
    about: About, points: Points, table: tables.Table, x: str, column: tables.Column, shared: dict[str, Any]
) -> Chart:
    base = table.by_name[x]
    xs = sorted({across.number or 0.0 for _, across, _ in points})
    measured = base.quantity is not None and base.quantity.unit != "epochs"
    places = [] if measured or all(v == int(v) for v in xs) else [num(v) for v in xs]
    if len(places) > PLACES:
        raise CreditscopeError(f"{base.name} of table {table.name} has {len(places)} values; a figure holds {PLACES}")
    series = []
    for name, mine in grouped_by(points, lambda point: point[0]).items():
        mine.sort(key=lambda point: point[1].number or 0.0)
        cells = [cell for *_, cell in mine]
        own = [across.number or 0.0 for _, across, _ in mine]
        at = [float(xs.index(v)) for v in own] if places else own
        spread = [c.ends or c.std for c in cells]
        series.append(Series(name or column.heading, [c.number for c in cells], spread, at, line=not measured))
    return Chart(
        *about, column.heading, list(map(float, range(len(xs)))) if places else xs, series, base.heading,
        zero=column.quantity is not None and column.quantity.form is Form.SIGNED, places=places, whole=not measured, **shared,
    )  # fmt: skip


def _matrix(about: About, points: Points, say: Callable[[Any], str]) -> Matrix:
    names = list(dict.fromkeys(group for group, *_ in points))
    found: dict[str, dict[str, Cell]] = {}
    for group, place, cell in points:
        kind = KINDS.get(str(simple(cell.value)), "plain")
        text = MARKS[kind] + (say(cell.value) if cell.known else "–")
        found.setdefault(say(place.value), {})[group] = Cell(text, kind)
    rows = [(place, [cells.get(name, Cell("–")) for name in names]) for place, cells in found.items()]
    return Matrix(*about, [name or about[1] for name in names], rows)


def rules(quantity: Quantity | None) -> tuple[Level, ...]:
    """The threshold that a quantity is judged by."""
    return (rule(quantity.threshold),) if quantity and quantity.threshold else ()


def _drawable(panel: Panel) -> bool:
    if isinstance(panel, Chart):
        return any(v is not None for s in panel.series for v in s.values)
    return any(row.marks or row.hollow for row in panel.rows) if isinstance(panel, Dots) else bool(panel.rows)
