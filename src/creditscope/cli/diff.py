"""creditscope diff"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass
class Diff:
    """Compare two reports, bundles or records: what changed, by how much, and whether it lies outside the intervals.

    Example: creditscope diff runs/fa runs/dfa
    """

    a: Annotated[Path, tyro.conf.Positional]
    """A report (JSON), a record (.npz, .safetensors) or the directory of a bundle."""
    b: Annotated[Path, tyro.conf.Positional]
    """What to compare it with."""
    all: bool = False
    """Also print what did not change."""
    json: Path | None = None
    """Also write the table as JSON to this file."""

    def execute(self) -> int:
        from creditscope.changes import diff
        from creditscope.files import dump_json, write_atomic

        table = diff(self.a, self.b)
        if self.json:
            write_atomic(self.json, dump_json(table.to_dict()))
        print(table if self.all else table.where(lambda row: row.value("change") not in (0, False)))
        return 0
