"""Numbers that commands measured, put into the documentation by the commands themselves."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def put(page: str, name: str, text: str) -> None:
    """Replace what stands between `<!-- name -->` and `<!-- end name -->` on a page of docs/."""
    path = DOCS / page
    found = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    content, n = found.subn(lambda m: m[1] + text.strip() + "\n" + m[2], path.read_text())
    if n != 1:
        raise SystemExit(f"{path} has {n} places for {name!r}; one is expected")
    path.write_text(content)


def put_row(name: str, cells: list[str]) -> None:
    """Replace the row of `name` in the table of docs/reliability.md."""
    path = DOCS / "reliability.md"
    row = f"| {' | '.join([name, *cells])} |"
    content, n = re.subn(rf"^\| {re.escape(name)} \|.*$", lambda m: row, path.read_text(), flags=re.MULTILINE)
    if n != 1:
        raise SystemExit(f"{path} has {n} rows {name!r}; one is expected")
    path.write_text(content)
