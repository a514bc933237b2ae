"""The licences of everything that creditscope installs, from the installed metadata. By hand: python tests/trust/licences.py

Writes docs/licences.md: what a plain install brings (with what that needs in turn), and what each extra adds.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "licences.md"
HEAD = """\
# Licences

creditscope is under the Apache License 2.0. This page is made by `python tests/trust/licences.py` from the metadata of what is
installed; nothing of it is shipped with creditscope.
"""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def parsed(requirement: str) -> tuple[str, str]:
    """(name, marker) of one requirement line."""
    spec, _, marker = requirement.partition(";")
    found = re.match(r"[A-Za-z0-9_.-]+", spec.strip())
    return canonical(found[0]) if found else "", marker.strip()


def holds(marker: str, extra: str) -> bool:
    from packaging.markers import Marker

    return not marker or Marker(marker).evaluate({"extra": extra})


def closure(names: list[str]) -> dict[str, metadata.Distribution | None]:
    """The packages and what they need in turn; None where one is not installed."""
    found: dict[str, metadata.Distribution | None] = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            found[name] = None
            continue
        for line in metadata.distribution(name).requires or []:
            needed, marker = parsed(line)
            if holds(marker, ""):
                todo.append(needed)
    return found


def licence(distribution: metadata.Distribution) -> str:
    """The licence expression, else the classifiers, else the first line of the licence field."""
    meta: Any = distribution.metadata
    if expression := meta.get("License-Expression"):
        return str(expression)
    classifiers = [c.split(" :: ")[-1] for c in meta.get_all("Classifier") or [] if c.startswith("License ::")]
    classifiers = [c for c in classifiers if c != "OSI Approved"]
    if classifiers:
        return ", ".join(classifiers)
    lines = str(meta.get("License") or "").strip().splitlines()
    return lines[0][:60] if lines else "not stated"


def table(packages: dict[str, metadata.Distribution | None]) -> list[str]:
    rows = ["| package | version | licence |", "|---|---|---|"]
    for name, dist in sorted(packages.items()):
        rows.append(
            f"| {name} | – | not installed here |" if dist is None else f"| {name} | {dist.version} | {licence(dist)} |"
        )
    return rows


def page() -> str:
    own = metadata.distribution("creditscope")
    lines = [parsed(line) for line in own.requires or []]
    base = closure([name for name, marker in lines if holds(marker, "")])
    text = [HEAD, "## A plain install", "", *table(base)]
    known = set(base)
    for extra in own.metadata.get_all("Provides-Extra") or []:
        added = closure([name for name, marker in lines if marker and holds(marker, extra)])
        new = {name: dist for name, dist in added.items() if name not in known and name != "creditscope"}
        text += ["", f"## Added by the extra `{extra}`", "", *(table(new) if new else ["Nothing further."])]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE.name}: {page().count(chr(10) + '| ')} rows")
    sys.exit(0)
