"""What changed from one report to another, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from creditscope.measure.student_t import cut
from creditscope.protocol.checks import INTERPRETIVE
from creditscope.quantities import QUANTITIES, get_quantity
from creditscope.render.numbers import num, printable
from creditscope.render.text import Sheet, to_text
from creditscope.render.words import paragraph, words
from creditscope.tables import Row, Table

LAYERS = {
    "h": "mean ‖h_l‖",
    "g": "‖g_l‖ per sample",
    "cosine": "cos(a_l, g_l)",
    "rho": "ρ",
    "readout": "readout of h_l",
    "twin_readout": "readout of the twin's h_l",
}
"""What a person reads for a quantity of each layer; the others have their titles."""
ALONE = {"margin_bp": "margin ", "margin_unstated": "margin ", "fresh_b_z": "fresh-B "}
"""What a title needs that stands beside others in a table."""
SHARE, COSINE = (0.0, 1.0), (-1.0, 1.0)
POSSIBLE = {
    "accuracy": SHARE,
    "accuracy on the evaluation samples": SHARE,
    "readout": SHARE,
    "twin_readout": SHARE,
    "cosine": COSINE,
    "rho": COSINE,
    **dict.fromkeys(("margin_matched", "margin_bp", "margin_unstated", "profile_margin"), (-100.0, 100.0)),
}
"""The range of a quantity, where it has one."""


def changes_text(table: Table, everything: bool = False) -> str:
    """The table of `diff`; `everything`: with what did not change."""
    return to_text(Group(*_parts(table, everything)))


def _parts(table: Table, everything: bool) -> Iterator[RenderableType]:
    """The rows that both reports have, then in one line each what only one of them has."""
    kept = table.rows if everything else [r for r in table.rows if r.value("change") not in (0, False)]
    both = [r for r in kept if r["a"].known and r["b"].known]
    if both:
        header = ("quantity", "layer", "a", "b", "change", "outside the intervals")
        yield Sheet(
            header, [_cells(r) for r in both], right=(1, 2, 3, 4), box=None, pad_edge=False, padding=(0, 2, 0, 0)
        )
    else:
        yield Text("Nothing that both reports hold has changed.")
    for side, other in (("a", "b"), ("b", "a")):
        names = dict.fromkeys(_name(r) for r in table.rows if r[side].known and not r[other].known)
        if names:
            yield Text(f"only in {side}: {', '.join(names)}")
    if any(r.value("outside") is None for r in both):
        yield Text("–: neither side has an interval to compare with", style="dim")
    if both:
        yield Text(f"{paragraph(table.conclusion)} {paragraph(table.convention)}", style="dim")
    yield from (Text(f"note: {printable(note)}") for note in table.notes)


def _name(row: Row) -> str:
    name = str(row.value("quantity"))
    if row.value("layer") is not None:
        return LAYERS.get(name, name)
    return ALONE.get(name, "") + get_quantity(name).title if name in QUANTITIES else name


def _cells(row: Row) -> list[str]:
    layer, change = row.value("layer"), row.value("change")
    change_text = words(change) if isinstance(change, bool) else num(change)
    where = "" if layer is None else str(layer)
    return [_name(row), where, _side(row, "a"), _side(row, "b"), change_text, words(row.value("outside"))]


def _side(row: Row, side: str) -> str:
    name, cell = str(row.value("quantity")), row[side]
    value = num(cell.number) if cell.number is not None else str(cell.value)
    if name == "C":
        value = INTERPRETIVE.get(value, value)
    if cell.ends is None:
        return value
    low, high, remark = cut(*cell.ends, *POSSIBLE.get(name, (-math.inf, math.inf)))
    return f"{value} [{num(low)}, {num(high)}]{remark}"
