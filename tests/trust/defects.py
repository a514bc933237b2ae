"""Small defects, one per line of mutants*.csv: in which function, which expression, what is put in its place, which behaviour
that breaks, which test must fail.

A defect is a change of the syntax tree: layout, brackets, quotes and comments of the code do not matter. Files are below
src/creditscope/, tests are nodes below tests/ and run alone against the defect.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

Place = tuple[list[ast.AST], int, int]
"""A list of nodes that is part of the tree, and the part of it from ... to ... that the defect replaces."""
SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Mutant(NamedTuple):
    file: str
    function: str
    """Class.method; "": the module."""
    old: str
    new: str
    breaks: str
    test: str


def _rows(path: Path) -> list[Mutant]:
    with path.open(newline="", encoding="utf-8") as table:
        return [Mutant(**{**row, "file": row["file"] + ".py"}) for row in csv.DictReader(table)]


MUTANTS = [mutant for path in sorted(Path(__file__).parent.glob("mutants*.csv")) for mutant in _rows(path)]


class GoneError(Exception):
    """The code has no such place, or several."""


def mutated(source: str, function: str, old: str, new: str) -> str:
    """The module with `new` in the one place of `function` where `old` stands.

    `old` and `new` are an expression or statements. Without an `old`, `new` is put behind the module: it may wrap a
    function, or change a default.
    """
    tree = ast.parse(source)
    if not old:
        return f"{source}\n{new}\n"
    scope: ast.AST = tree
    for name in function.split(".") if function else ():
        found = [n for n in ast.walk(scope) if isinstance(n, SCOPES) and n.name == name and n is not scope]
        if not found:
            raise GoneError(f"there is no {function}")
        scope = found[0]
    places = list(_places(scope, [_shape(node) for node in _parsed(old)], _is_expression(old)))
    if len(places) != 1:
        raise GoneError(f"{old!r} stands {len(places)} times in {function or 'the module'}")
    (nodes, first, last), owner, field = places[0]
    nodes[first:last] = _parsed(new)
    if owner is not None:
        setattr(owner, field, nodes[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _places(scope: ast.AST, wanted: list[str], expression: bool) -> Iterator[tuple[Place, ast.AST | None, str]]:
    for node in ast.walk(scope):
        for field, value in ast.iter_fields(node):
            nodes = value if isinstance(value, list) else [value]
            if not all(isinstance(n, ast.AST) for n in nodes) or (not expression and not isinstance(value, list)):
                continue
            shapes = [_shape(n) for n in nodes]
            for k in range(len(nodes) - len(wanted) + 1):
                if shapes[k : k + len(wanted)] == wanted:
                    yield (nodes, k, k + len(wanted)), None if isinstance(value, list) else node, field


def _is_expression(text: str) -> bool:
    statements = ast.parse(text).body
    return len(statements) == 1 and isinstance(statements[0], ast.Expr)


def _parsed(text: str) -> list[ast.AST]:
    statements = ast.parse(text).body
    return [statements[0].value] if isinstance(statements[0], ast.Expr) and len(statements) == 1 else list(statements)


def _shape(node: ast.AST) -> str:
    """The node as text, the same where it is read and where it is written."""
    return ast.dump(node).replace("ctx=Store()", "ctx=Load()").replace("ctx=Del()", "ctx=Load()")
