"""What changed between two reports, as text."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from creditscope.render.numbers import mark, num, printable
from creditscope.render.section import Section
from creditscope.render.text import sheet, to_text
from creditscope.tables import Cell, Table

HEADER = ["quantity", "layer", "a", "b", "change", "outside the intervals"]
OUTSIDE = {True: "yes", False: "no", None: "no interval"}


def text(table: Table, everything: bool = False) -> str:
    """The rows that changed (or all), what makes the two hard to compare, and how the rows are read."""
    rows = [
        [str(row.value("quantity")), num(row.value("layer")), _cell(row["a"]), _cell(row["b"]), *_change(row.cells)]
        for row in table.rows
        if everything or row.value("change") not in (0, 0.0, False)
    ]
    told = [s.name.format(**s.fields) for s in (*table.conclusion, *table.convention)]
    section = Section(printable(table.title), HEADER, [[*map(printable, row)] for row in rows])
    notes = [f"note: {printable(note)}" for note in table.notes]
    return to_text(Group(*([sheet(section)] if rows else []), *map(Text, [*notes, *told])))


def _cell(cell: Cell) -> str:
    if not cell.known:
        return "not measured"
    if isinstance(cell.value, str):
        return mark(cell.value)
    spread = "" if cell.low is None else f" [{num(cell.low)}, {num(cell.high)}]"
    return num(cell.value) + spread


def _change(cells: object) -> list[str]:
    assert isinstance(cells, dict)
    change, outside = cells["change"].value, cells["outside"].value
    if isinstance(change, bool):
        return ["changed" if change else "", ""]
    if change is None:
        return ["–", ""]
    return [f"{'+' if change > 0 else ''}{num(change)}", OUTSIDE[outside]]
