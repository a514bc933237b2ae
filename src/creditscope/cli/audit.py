"""creditscope audit"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from creditscope.cli.output import remark, tell_written
from creditscope.errors import CreditscopeError


@dataclass
class Audit:
    """Compare the published numbers and decisions of a paper with the runs of a store or an archive. The paper is a
    folder of data: audit.json (its settings), published.csv (its numbers) and, if it has any, verdicts.csv (its
    decisions).

    Example: creditscope audit audits/arxiv-2606.21126 --store results --csv lines.csv --html lines.html
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """Directory of the audit."""
    store: Path
    """Directory of the store, or of an archive (`runs export --format archive`)."""
    csv: Path | None = None
    """Also write every value under every reading to this file, with the runs behind it."""
    html: Path | None = None
    """Also write the tables to this file, as a page with a search field."""
    markdown: bool = False
    """Print Markdown."""

    def execute(self) -> int:
        from creditscope.files import write_atomic
        from creditscope.render.tables import table_csv, table_markdown, table_text, tables_page
        from creditscope.studies.compare import lines_table, read_audit, readings_table, summary_table
        from creditscope.studies.shown import every_record

        paper = read_audit(self.folder)
        records, problems = every_record(self.store)
        for problem in problems:
            remark(problem)
        if not records:
            raise CreditscopeError(f"{self.store} has no finished run; `creditscope study run` trains some")
        lines = paper.compare(records)
        every = lines_table(lines, "every published value next to ours")
        shown = [
            summary_table(lines, "the published tables: what came of their values"),
            readings_table(lines, "how far each reading lies from the published numbers"),
        ]
        if self.csv:
            write_atomic(self.csv, table_csv(every).encode())
        if self.html:
            write_atomic(self.html, tables_page([*shown, every], paper.paper.paper).encode())
        print("\n".join((table_markdown(t) if self.markdown else table_text(t, t.title)).rstrip("\n") for t in shown))
        tell_written(self.csv, self.html)
        return 0
