"""creditscope diff"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from creditscope.cli.output import tell_written


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
        from creditscope.changes import as_report, diff
        from creditscope.files import dump_json, write_atomic
        from creditscope.render.changes import changes_text
        from creditscope.render.numbers import printable

        given = [as_report(path) for path in (self.a, self.b)]
        table = diff(*given)
        if self.json:
            write_atomic(self.json, dump_json(table.to_dict()))
        for letter, path, report in zip("ab", (self.a, self.b), given, strict=True):
            print(f"{letter}: {printable(report.method_name or path.stem)} ({path}): {printable(report.verdict.line)}")
        print(changes_text(table, self.all))
        tell_written(self.json)
        return 0
