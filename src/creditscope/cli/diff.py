"""creditscope diff"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from creditscope.cli.parse import parse


@dataclass
class Diff:
    a: Annotated[Path, tyro.conf.Positional]
    """A report (JSON) or the directory of a bundle."""
    b: Annotated[Path, tyro.conf.Positional]
    """The one that it is compared with."""
    all: bool = False
    """Also print what did not change."""
    json: Path | None = None
    """Also write the table as JSON to this file."""


def run(args: Sequence[str]) -> int:
    flags = parse(
        Diff,
        args,
        "diff",
        "Compare two reports or bundles: what changed, by how much, and whether it lies outside the intervals.",
        "creditscope diff runs/fa runs/dfa",
    )
    from creditscope.changes import diff
    from creditscope.files import dump_json, write_atomic
    from creditscope.render.changes import text

    table = diff(flags.a, flags.b)
    if flags.json:
        write_atomic(flags.json, dump_json(table.to_dict()))
    print(text(table, everything=flags.all))
    return 0
