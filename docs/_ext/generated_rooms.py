"""The table of rooms, from the contract that `lint-imports` checks."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from md import plain, table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # comes with pytest and with Sphinx there

ROOT = Path(__file__).parents[2]


def layers() -> list[list[str]]:
    """The rooms from top to bottom; rooms of one layer do not import each other."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rooms = next(c for c in contracts if c["id"] == "rooms")
    return [[name for name in re.findall(r"\w+", layer) if _file(name)] for layer in rooms["layers"]]


def _file(room: str) -> Path | None:
    home = ROOT / "src" / "creditscope"
    return next((p for p in (home / room / "__init__.py", home / f"{room}.py") if p.is_file()), None)


def rooms() -> str:
    rows = []
    for layer in layers():
        for name in layer:
            path = _file(name)
            assert path is not None
            about = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]
            rows.append([f"`{name}{'/' if path.name == '__init__.py' else '.py'}`", plain(about)])
    return table(["module", "what it is"], rows)
