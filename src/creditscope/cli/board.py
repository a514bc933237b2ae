"""creditscope board"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from creditscope.cli.output import left_out
from creditscope.errors import CreditscopeError

if TYPE_CHECKING:
    from creditscope.board.entry import Entry

NOT_HELD = 3


@dataclass
class List:
    """One line per entry of a board: what is claimed, what the audit found.

    Example: creditscope board list board
    """

    dir: Annotated[Path, tyro.conf.Positional] = Path("board")
    """Directory of entries (board/entries/NAME/claim.json)."""

    def execute(self) -> int:
        from creditscope.render.html.board import row
        from creditscope.render.numbers import printable, share

        held = _held(self.dir)[0]
        wide = max([len("entry"), *(len(printable(entry.claim.name)) for entry in held)])
        line = f"{{:<{wide}}} {{:>7}} {{:>7}} {{:>20}}  {{:<15}} {{}}".format
        print(line("entry", "claimed", "audited", "margin (pp)", "verdict", "locality"))
        for r in map(row, held):
            name, margin = printable(r["claim"].name), f"{r['margin_text']} {r['interval']}"
            print(line(name, share(r["claimed"]), share(r["audited"]), margin, r["mark"], r["locality"]))
        print("claimed, audited: accuracy. margin: audited accuracy minus that of the null (random-blocks baseline).")
        return 0


@dataclass
class Build:
    """Build the page of a board: one file index.html, the evidence and the badges beside it. Every entry is checked first;
    one that does not hold is left out, named on the page, and makes the exit code 3.

    Example: creditscope board build board --out site
    """

    dir: Annotated[Path, tyro.conf.Positional]
    """Directory of entries (board/entries/NAME/claim.json)."""
    out: Path
    """Directory to write."""
    title: str = "creditscope board"
    """Title of the page."""

    def execute(self) -> int:
        from creditscope.render.html.board import write_board

        held, refused = _held(self.dir)
        size = write_board(held, [(path.name, why) for path, why in refused], self.out, self.title)
        rest = f", {len(refused)} left out" if refused else ""
        print(f"{self.out / 'index.html'}: {len(held)} entr{'y' if len(held) == 1 else 'ies'}, {size:,} bytes{rest}")
        return NOT_HELD if refused else 0


def _held(directory: Path) -> tuple[list[Entry], list[tuple[Path, str]]]:
    """The entries that hold; each of the others is told."""
    from creditscope.board.entry import read_entries
    from creditscope.render.numbers import printable

    held, refused = read_entries([directory])
    for _, why in refused:
        left_out(printable(why))
    if not held:
        raise CreditscopeError(f"no entry of {directory} holds ({len(refused)} left out, see above)")
    return held, refused
