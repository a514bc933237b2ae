"""Tables for a terminal: no word is broken, however narrow it is. Where the columns do not fit, each row becomes a few lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

Cell = str | Text


class Sheet:
    """A table of words and numbers.

    header, rows: the cells; a cell may have several lines. preferred: widths of the columns where there is room for them.
    widest: no column becomes wider than this by itself. right: numbers of the columns to be set to the right. style: further
    arguments of rich's Table.
    """

    def __init__(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        *,
        preferred: Sequence[int] | None = None,
        widest: int | None = None,
        right: Sequence[int] = (),
        **style: Any,
    ) -> None:
        self.header, self.rows, self.preferred, self.widest = list(header), [list(r) for r in rows], preferred, widest
        self.right, self.style = set(right), style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        widths = self._widths(options.max_width)
        if widths is None:
            yield from self._stacked()
            return
        table = Table(**self.style)
        for k, (name, width) in enumerate(zip(self.header, widths, strict=True)):
            table.add_column(Text(name), width=width, justify="right" if k in self.right else "left")
        for row in self.rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
        yield table

    def _widths(self, room: int) -> list[int] | None:
        """One per column, none under its longest word; None where that is too much."""
        empty = Table(**self.style)
        for name in self.header:
            empty.add_column(name, width=0)
        room -= Console(width=room).measure(empty).minimum  # borders and padding
        columns = [[self.header[k], *(str(row[k]) for row in self.rows)] for k in range(len(self.header))]
        least = [max((cell_len(w) for text in texts for w in text.split()), default=0) for texts in columns]
        wanted = [max((cell_len(line) for text in texts for line in text.splitlines()), default=0) for texts in columns]
        if sum(least) > room:
            return None
        if self.preferred and sum(self.preferred) <= room and all(map(int.__ge__, self.preferred, least)):
            return list(self.preferred)
        limit = self.widest or max(wanted, default=0)
        widths = [max(a, min(b, limit)) for a, b in zip(least, wanted, strict=True)]
        while sum(widths) > room:
            longest = max((k for k in range(len(widths)) if widths[k] > least[k]), key=lambda k: widths[k])
            widths[longest] -= 1
        return widths

    def _stacked(self) -> Iterator[RenderableType]:
        if title := self.style.get("title"):
            yield Text(str(title), style=self.style.get("title_style", ""))
        for row in self.rows:
            first = " ".join(str(row[0]).split())
            yield Text(f"{self.header[0]} = {first}" if first.isdigit() else first, style="bold")
            for name, cell in zip(self.header[1:], row[1:], strict=True):
                told = " · ".join(str(cell).splitlines())
                yield Text(f"  {name}: {told}", style=cell.style if isinstance(cell, Text) else "")
