"""A table as text, Markdown, LaTeX, HTML, CSV and JSON. A data frame is `Table.to_frame()`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from html import escape as quoted
from typing import TYPE_CHECKING, Any

from rich.box import HORIZONTALS
from rich.console import Group, RenderableType
from rich.text import Text

from creditscope.errors import CreditscopeError, unknown
from creditscope.quantities import Form, Scale
from creditscope.render.card import card
from creditscope.render.document import Section, to_latex
from creditscope.render.markdown import CAPTION, escape
from creditscope.render.markdown import table as pipe_table
from creditscope.render.numbers import STYLES, interval_of, num, percent, printable, share, signed
from creditscope.render.text import Sheet, to_text
from creditscope.render.text import columns as terminal_width
from creditscope.render.words import paragraph, span_text, words
from creditscope.tables import Cell, Column, Spread, Table, span

if TYPE_CHECKING:
    from creditscope.render.plots import Drawing

DIGITS = 3
"""Significant digits of a number on the page."""
NARROW = 40
"""Widest column of a terminal's table."""


def number_text(value: float | None, column: Column) -> str:
    """A value of the column's quantity."""
    quantity = column.quantity
    if value is None or quantity is None:
        return words(value)
    if quantity.form is Form.SIGNED:
        return signed(value, quantity.digits)
    if quantity.form is Form.PERCENT:
        return percent(value)
    if quantity.scale is Scale.SHARE and isinstance(value, float):  # 0.610 beside 0.614
        return share(value, quantity.digits)
    return str(value) if isinstance(value, int) else num(value, quantity.digits)


def cell_text(cell: Cell, column: Column) -> str:
    if column.spread is Spread.RANGE and cell.values:
        return span_text(span(cell.values), column.quantity.digits if column.quantity else 2)
    if not isinstance(cell.value, int | float) or isinstance(cell.value, bool):
        return words(cell.value)
    number = _number_and_spread(cell, column)
    return f"{number} ({cell.note})" if cell.note else number


def _number_and_spread(cell: Cell, column: Column) -> str:
    number = number_text(cell.value, column)
    if column.spread is Spread.STD and cell.std is not None:
        alike = column.quantity is not None and column.quantity.scale is Scale.SHARE
        return f"{number} ± {number_text(cell.std, column) if alike else num(cell.std, 2)}"
    if column.spread is Spread.INTERVAL and cell.ends is not None:
        if column.quantity is not None and column.quantity.unit == "pp":
            return f"{number} {interval_of(*cell.ends)}"
        low, high = (number_text(end, column) for end in cell.ends)
        return f"{number} [{low}, {high}]"
    return number


def texts(table: Table) -> tuple[list[str], list[list[str]]]:
    """(headings, rows) as a person reads them."""
    rows = [[printable(cell_text(row[c.name], c)) for c in table.columns] for row in table.rows]
    return [c.heading for c in table.columns], rows


def three_digits(table: Table) -> Table:
    """The same table with three significant digits where its quantities are printed with two."""

    def shown(column: Column) -> Column:
        q = column.quantity
        if q is None or q.form is not Form.NUMBER or q.digits >= DIGITS:
            return column
        return replace(column, quantity=replace(q, digits=DIGITS))

    return replace(table, columns=tuple(map(shown, table.columns)))


def table_text(table: Table, title: str | None = None) -> str:
    """For a terminal; `title` stands above it."""
    header, rows = texts(table)
    styled = [
        [Text(t, style=_style(row[c.name])) for t, c in zip(texts, table.columns, strict=True)]
        for texts, row in zip(rows, table.rows, strict=True)
    ]
    look: dict[str, Any] = {"show_lines": True, "box": HORIZONTALS, "padding": (0, 1), "pad_edge": False}
    grid = Sheet(header, styled, widest=NARROW, title=title, **look)
    below = [(paragraph(table.conclusion), "bold"), (paragraph(table.convention, ""), "dim")]
    parts: list[RenderableType] = [grid, Text(), *(Text(line, style=style) for line, style in below if line)]
    # a wide terminal shows wide tables unbroken
    return to_text(Group(*parts, *(Text(f"note: {printable(n)}") for n in table.notes)), terminal_width())


def _style(cell: Cell) -> str:
    """Of an outcome; its words say the same."""
    outcome = getattr(cell.value, "outcome", cell.value)
    return STYLES.get(str(outcome.value), "") if isinstance(outcome, Enum) else ""


def table_markdown(table: Table) -> str:
    header, rows = texts(table)
    lines = [f"## {escape(table.name)}: {escape(table.title)}", ""]
    lines += pipe_table([escape(h) for h in header], [[escape(cell) for cell in row] for row in rows])
    if conclusion := paragraph(table.conclusion):
        lines += ["", f"**{escape(conclusion, CAPTION)}**"]
    if convention := paragraph(table.convention, ""):
        lines += ["", escape(convention, None)]
    lines += ["", *(f"- note: {escape(n, None)}" for n in table.notes)] if table.notes else []
    return "\n".join(lines) + "\n"


def table_latex(table: Table, standalone: bool = False) -> str:
    """A table that may break over pages; its caption is the conclusion and the convention."""
    header, rows = texts(table)
    caption = " ".join(filter(None, (paragraph(table.conclusion), paragraph(table.convention)))) or table.title
    grid = Section("", header, rows, caption=caption, label=f"tab:creditscope-{table.name}")
    return to_latex([grid], standalone)


def table_html(table: Table) -> str:
    """A <table> with its caption; every text in it is inert."""
    header, rows = texts(table)
    titles = zip(header, (c.holds for c in table.columns), strict=True)
    heads = "".join(f'<th scope="col" title="{_html(about)}">{_html(title)}</th>' for title, about in titles)
    classes = kinds(rows)
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{_html(t)}</td>' for t, kind in zip(row, classes, strict=True)) + "</tr>"
        for row in rows
    )
    sentences = (paragraph(table.conclusion), paragraph(table.convention), *table.notes)
    below = "".join(f"<p>{_html(text)}</p>" for text in sentences if text)
    caption = f"<caption>{_html(table.title)}</caption>"
    return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{below}"


def _html(text: str) -> str:
    return quoted(printable(text))


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>:root{{color-scheme:light dark}}body{{font:15px system-ui,sans-serif;margin:2em}}
table{{border-collapse:collapse;margin:1em 0}}
td,th{{border-bottom:1px solid #8886;padding:3px 8px;text-align:left;vertical-align:top}}
caption{{text-align:left;font-weight:600}}
th{{position:sticky;top:0;background:Canvas}}.filter{{position:sticky;left:0;font:inherit;width:30em;max-width:75vw}}</style>
<h1>{title}</h1><label>Show lines with all of these words: <input class="filter" type="search"></label>{tables}
<script>document.querySelector(".filter").addEventListener("input",e=>{{const w=e.target.value.toLowerCase().split(/\\s+/);
for(const r of document.querySelectorAll("tbody tr"))r.hidden=!w.every(x=>r.textContent.toLowerCase().includes(x))}})</script>
</html>
"""


def tables_page(tables: Sequence[Table], title: str) -> str:
    """Tables as one page to open in a browser, with a field that shows only the lines that hold some words."""
    return PAGE.format(title=_html(title), tables="".join(map(table_html, tables)))


def kinds(rows: list[list[str]]) -> list[str]:
    """Class of each column: names and sentences are set to the left, sentences may wrap, numbers do neither."""
    found = []
    for cells in zip(*rows, strict=True):
        together = "".join(cells)
        letters = sum(c.isalpha() or c.isspace() for c in together)
        longest = max(map(len, cells))
        plain = longest <= 18 or letters <= 0.6 * len(together)
        found.append("" if plain else "words" if longest > NARROW else "name")
    return found


def table_csv(table: Table) -> str:
    """Numbers in full, one column per value, with `.low`, `.high`, `.std` and `.n` where there are any."""
    rows = table.records()
    return csv_text(list(rows[0]) if rows else [c.name for c in table.columns], rows)


def csv_text(names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: inert(v) for k, v in row.items()} for row in rows)
    return out.getvalue()


def inert(value: object) -> object:
    """Text that a spreadsheet would take for a formula gets a quote in front."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def table_json(table: Table) -> str:
    sentences = {"conclusion": paragraph(table.conclusion), "convention": paragraph(table.convention, "")}
    return json.dumps({**table.to_dict(), "text": sentences}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


FORMS: dict[str, Callable[[Table], str]] = {
    "text": table_text,
    "markdown": table_markdown,
    "latex": table_latex,
    "html": table_html,
    "csv": table_csv,
    "json": table_json,
}


def render_table(table: Table, form: str) -> str:
    """The table in one of FORMS."""
    if form not in FORMS:
        raise CreditscopeError(unknown("format", form, FORMS))
    return FORMS[form](table)


# ---- how a table shows itself -------------------------------------------------------------------------------------------


def text(table: Table) -> str:
    return table_text(table, table.title)


markdown = table_markdown


def html(table: Table) -> str:
    header, rows = texts(table)
    drawing = plot(table) if table.plots else None
    return card(table.title, "", [paragraph(table.conclusion)], Section("", header, rows), drawing)


def plot(table: Table) -> Drawing:
    """Every plot that the table asks for, in one figure."""
    from creditscope.render.draw import figure, table_panels

    panels = table_panels(table, words)
    if not panels:
        raise CreditscopeError(f"table {table.name} has no plots; draw two of its columns: draw(table, x, y)")
    return figure(panels)
