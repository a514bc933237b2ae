"""One part of what is said of a network: a title, a table, lines below it. Every format renders these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from creditscope.render.markdown import escape, table


@dataclass(frozen=True)
class Section:
    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    lines: Sequence[str] = ()
    ordered: bool = False
    """The lines are steps, one after the other."""
    numbers: bool = False
    """The columns are numbers: set to the right."""
    empty: str = "not measured"
    """Why a cell holds nothing."""
    gap: int = 3
    """Spaces between columns in a terminal."""

    def numbered(self, bullet: str) -> list[str]:
        """The lines with their number, or with `bullet`."""
        return [f"{k}. {line}" if self.ordered else f"{bullet}{line}" for k, line in enumerate(self.lines, 1)]

    def markdown(self) -> list[str]:
        """Lines of Markdown: the title, the table and the lines, as far as they are there, a blank line behind each."""
        made = [f"**{escape(self.title)}**", ""] if self.title else []
        if self.header:
            made += [*table([*map(escape, self.header)], [[*map(escape, row)] for row in self.rows]), ""]
        return made + ([*replace(self, lines=[*map(escape, self.lines)]).numbered("- "), ""] if self.lines else [])
