"""Small pieces of Markdown."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_row(header), _row(["---"] * len(header)), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()) for cell in cells)} |"


def plain(text: str) -> str:
    """Text that is not markup: characters that Markdown reads are taken literally; `code` stays."""
    parts = text.split("`")
    literal = [p if k % 2 else "".join(f"\\{c}" if c in "\\*_|<>[]$" else c for c in p) for k, p in enumerate(parts)]
    return "`".join(p.replace("|", "\\|") if k % 2 else p for k, p in enumerate(literal))


def attribute_docs(cls: type) -> dict[str, str]:
    """The string under each annotated attribute of a class, by the attribute's name."""
    body = ast.parse(inspect.cleandoc("\n" + inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for attribute, after in zip(body.body, body.body[1:], strict=False):
        named = isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name)
        if named and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[attribute.target.id] = " ".join(str(after.value.value).split())
    return found
