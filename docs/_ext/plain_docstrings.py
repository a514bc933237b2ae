"""Docstrings here are plain text (a line `name: what it is` for each parameter); this turns them into reStructuredText."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

ITEM = re.compile(r"(?P<names>[a-z_]\w*(?:, [a-z_]\w*)*): (?P<text>.+)")
SPAN = re.compile(r"`+([^`]+)`+")


def escaped(text: str) -> str:
    """Words as they stand: only `code` is markup."""
    parts = SPAN.split(text)
    return "".join(f"``{p}``" if k % 2 else re.sub(r"([\\*_|])", r"\\\1", p) for k, p in enumerate(parts))


def to_rst(lines: Sequence[str]) -> list[str]:
    """Paragraphs, one bullet for each `name: text`, and indented text as it is."""
    out: list[str] = []
    inside = False  # a bullet, whose further lines are indented
    literal = False
    for line in lines:
        item = ITEM.fullmatch(line)
        indented = line.startswith("    ")
        if not line.strip():
            out.append("")
            inside = False
        elif item and (inside or not out or not out[-1]):
            if not inside:
                out.append("")
            out.append(f"* **{escaped(item['names'])}**: {escaped(item['text'])}")
            inside, literal = True, False
        elif inside and indented:
            out.append(f"  {escaped(line.strip())}")
        elif indented:
            if not literal:
                out += ["", "::", ""]
            literal = True
            out.append(line)
        else:
            if inside:
                out.append("")
            out.append(escaped(line))
            inside = literal = False
    return [*out, ""]


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_rst(lines)


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
