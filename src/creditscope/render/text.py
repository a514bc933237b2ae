"""Text for a terminal, plain when piped, and tables in which no word is broken, however narrow it is.

Columns that do not fit beside each other go into further tables below, each with the first column (or a number, where
that does not tell the rows apart); where these would be many or the rows are few, each row becomes a few lines.
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from creditscope.render.document import Section
from creditscope.render.numbers import MARKS, STYLES, printable

Cell = str | Text
FEW_ROWS, MOST_PARTS = 6, 3
"""A table is cut into at most this many parts, and only if it has more rows than this."""


class Sheet:
    """A table of words and numbers.

    header, rows: the cells; a cell may have several lines. widest: no column becomes wider than this by itself. right: numbers
    of the columns to be set to the right. title: above the table. style: further arguments of rich's Table.
    """

    def __init__(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        *,
        widest: int | None = None,
        right: Sequence[int] = (),
        title: str | None = None,
        **style: Any,
    ) -> None:
        self.header, self.rows, self.widest, self.right = list(header), [list(r) for r in rows], widest, set(right)
        self.style = style | ({"title": title, "title_justify": "left", "title_style": "bold"} if title else {})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        widths = self._widths(options.max_width)
        if widths is None:
            room = options.max_width
            parts = (self._parts(room, True) or self._parts(room, False)) if len(self.rows) > FEW_ROWS else None
            yield from parts or self._stacked()
            return
        table = Table(**self.style)
        for k, (name, width) in enumerate(zip(self.header, widths, strict=True)):
            table.add_column(Text(name), width=width, justify="right" if k in self.right else "left")
        for row in self.rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
        yield table

    def _parts(self, room: int, wide: bool) -> list[Sheet] | None:
        """The table cut between columns, each part with the first column; None where that takes too many parts.

        wide: no column is narrower than it would be by itself.
        """
        if len({str(row[0]) for row in self.rows}) < len(self.rows):  # the first column does not tell the rows apart
            return self._numbered()._parts(room, wide)
        parts: list[list[int]] = []
        for k in range(1, len(self.header)):
            if parts and self._of([*parts[-1], k])._widths(room, wide):
                parts[-1].append(k)
            elif self._of([0, k])._widths(room, wide):
                parts.append([0, k])
            else:
                return None
        if len(parts) > MOST_PARTS:
            return None
        made = [self._of(columns) for columns in parts]
        for n, part in enumerate(made):
            free = Sheet(part.header, part.rows, right=sorted(part.right), **part.style)
            if free._widths(room, wide=True):  # a part of few columns has room for long cells
                part.widest = None
            part.style |= {"show_lines": part.style.get("show_lines") and part._breaks(room)}
            part.style |= {"title": None} if n else {}
        return made

    def _numbered(self) -> Sheet:
        """With the number of each row in front."""
        rows = [[str(n), *row] for n, row in enumerate(self.rows, 1)]
        return self._like(["#", *self.header], rows, [0, *(k + 1 for k in self.right)])

    def _of(self, columns: Sequence[int]) -> Sheet:
        """These columns alone."""
        right = [n for n, k in enumerate(columns) if k in self.right]
        return self._like([self.header[k] for k in columns], [[row[k] for k in columns] for row in self.rows], right)

    def _like(self, header: Sequence[str], rows: Sequence[Sequence[Cell]], right: Sequence[int]) -> Sheet:
        return Sheet(header, rows, widest=self.widest, right=right, **self.style)

    def _breaks(self, room: int) -> bool:
        """Whether a cell takes several lines."""
        widths = self._widths(room) or []
        return any(cell_len(str(cell)) > width for row in self.rows for cell, width in zip(row, widths, strict=True))

    def _widths(self, room: int, wide: bool = False) -> list[int] | None:
        """One per column, none under its longest word (wide: under its longest line); None where that is too much."""
        empty = Table(**self.style)
        for name in self.header:
            empty.add_column(name, width=0)
        room -= Console(width=room).measure(empty).minimum  # borders and padding
        columns = [[self.header[k], *(str(row[k]) for row in self.rows)] for k in range(len(self.header))]
        least = [max((cell_len(w) for text in texts for w in text.split()), default=0) for texts in columns]
        wanted = [max((cell_len(line) for text in texts for line in text.splitlines()), default=0) for texts in columns]
        if sum(least) > room:
            return None
        limit = self.widest or max(wanted, default=0)
        widths = [max(a, min(b, limit)) for a, b in zip(least, wanted, strict=True)]
        if wide and sum(widths) > room:
            return None
        while sum(widths) > room:
            longest = max((k for k in range(len(widths)) if widths[k] > least[k]), key=lambda k: widths[k])
            widths[longest] -= 1
        return widths

    def _stacked(self) -> Iterator[RenderableType]:
        if title := self.style.get("title"):
            yield Text(str(title), style=self.style["title_style"])
        for row in self.rows:
            first = " ".join(str(row[0]).split())
            yield Text(f"{self.header[0]} = {first}" if first.isdigit() else first, style="bold")
            for name, cell in zip(self.header[1:], row[1:], strict=True):
                value = " · ".join(str(cell).splitlines())
                yield Text(f"  {name}: {value}", style=cell.style if isinstance(cell, Text) else "")


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


def shown(section: Section) -> Group:
    """The table of a section and its lines."""
    return Group(sheet(section), *(Text(printable(line)) for line in section.lines))


def sheet(section: Section) -> Sheet:
    """The table of a section: a title, no lines; no header where it is empty."""
    rows = [[Text(cell, style=ANSWERS[cell]) if cell in ANSWERS else cell for cell in row] for row in section.rows]
    first = 0 if all(row[0].isdigit() for row in section.rows) else 1
    return Sheet(
        section.header, rows, right=range(first, len(section.header)) if section.numbers else (), title=section.title,
        box=None, show_header=any(section.header), pad_edge=False, padding=(0, section.gap, 0, 0),
    )  # fmt: skip
