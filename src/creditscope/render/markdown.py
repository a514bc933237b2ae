"""Markdown. Strings from outside are escaped: they cannot become markup."""

from __future__ import annotations

import re
import sys

from creditscope.render.numbers import clip

LONGEST = 500
CAPTION = 2000
"""Letters of a caption or a conclusion, which are longer than what stands in a cell."""


def escape(text: str, longest: int | None = LONGEST) -> str:
    """One line of inert text: markup characters escaped, length limited (None: as long as it is)."""
    text = clip(text, longest or sys.maxsize)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_{}\[\]|~$#!])", r"\\\1", text)
    return re.sub(r"^(\d*)([-+.)])(?=[-+\s]|$)", r"\1\\\2", text)  # "- x", "1. x", "---": no list, no rule


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """A pipe table; cells must be escaped already."""
    return ["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *("| " + " | ".join(r) + " |" for r in rows)]
