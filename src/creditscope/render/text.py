"""Text for a terminal, plain when piped."""

from __future__ import annotations

import io
import shutil
import sys

from rich.console import Console, RenderableType
from rich.text import Text

from creditscope.render.document import Section
from creditscope.render.numbers import MARKS, STYLES
from creditscope.render.sheet import Sheet

WIDTH = 118
ANSWERS = {words: STYLES.get(answer, "dim") for answer, words in MARKS.items()}
"""A cell that is an answer has its colour."""


def columns() -> int:
    """Of the terminal; where output goes elsewhere, as many as a report takes."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH


def to_text(content: RenderableType, width: int | None = None) -> str:
    """Render for standard output as it is now: colour only if it is a terminal; no wider than it, or than a report is."""
    width = width or min(WIDTH, columns())
    colour = sys.stdout.isatty()
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, force_terminal=colour, no_color=not colour or None, highlight=False)
    console.print(content, crop=False)  # the verdict is one line, however long
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines())


def sheet(section: Section) -> Sheet:
    """The table of a section: a title, no lines; no header where it is empty."""
    rows = [[Text(cell, style=ANSWERS[cell]) if cell in ANSWERS else cell for cell in row] for row in section.rows]
    first = 0 if all(row[0].isdigit() for row in section.rows) else 1
    return Sheet(
        section.header, rows, right=range(first, len(section.header)) if section.numbers else (), title=section.title,
        box=None, show_header=any(section.header), pad_edge=False, padding=(0, section.gap, 0, 0),
    )  # fmt: skip
