"""What changed from one report to another, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from creditscope.protocol.checks import INTERPRETIVE
from creditscope.render.numbers import num, printable
from creditscope.render.sheet import Sheet
from creditscope.render.text import to_text
from creditscope.render.words import paragraph
from creditscope.tables import Row, Table

NAMES = {
    "gamma": "Γ",
    "deep_cosine": "deep mean cosine",
    "top_share": "largest share of Σ|cos_l|",
    "reference_norm": "‖g_L‖ per sample",
    "h": "mean ‖h_l‖",
    "g": "‖g_l‖ per sample",
    "cosine": "cos(a_l, g_l)",
    "rho": "ρ",
    "readout": "readout of h_l",
    "twin_readout": "readout of the twin's h_l",
    "profile_margin": "readout margin (pp)",
    "margin_matched": "margin to the matched null (pp)",
    "margin_bp": "margin to the bp null (pp)",
    "margin_kind unstated": "margin to a null of unstated kind (pp)",
    "fresh_b_z": "z against redrawn feedback",
}
"""What a person reads for the name of a quantity in the files."""


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
    if both:
        yield Text(f"{paragraph(table.conclusion)} {paragraph(table.convention)}", style="dim")
    yield from (Text(f"note: {printable(note)}") for note in table.notes)


def _name(row: Row) -> str:
    name = str(row.value("quantity"))
    return NAMES.get(name, name)


def _cells(row: Row) -> list[str]:
    layer, change = row.value("layer"), row.value("change")
    outside = {True: "yes", False: "no"}.get(row.value("outside"), "–")
    told = {True: "yes", False: "no"}.get(change) if isinstance(change, bool) else num(change)
    return [_name(row), "" if layer is None else str(layer), *(_side(row, side) for side in "ab"), told or "–", outside]


def _side(row: Row, side: str) -> str:
    cell = row[side]
    value = num(cell.number) if cell.number is not None else str(cell.value)
    if row.value("quantity") == "C":
        value = INTERPRETIVE.get(value, value)
    return value if cell.low is None or cell.high is None else f"{value} [{num(cell.low)}, {num(cell.high)}]"
