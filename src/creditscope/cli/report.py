"""creditscope report"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from creditscope.cli.output import annotation, exit_code, tell_written
from creditscope.cli.sources import Sources, find_sources
from creditscope.errors import CreditscopeError
from creditscope.files import dump_json, write_atomic

if TYPE_CHECKING:
    from creditscope.runs.groups import AuditRow, Group
    from creditscope.tables import Table

TITLE = "Accuracy and Γ alone | what the protocol finds"


@dataclass
class Report:
    """Group bundles over seeds, find their nulls among them, and print accuracy and Γ next to what the protocol finds.
    Uses stored facts; nothing is measured again (but see --full). Exit code 0; with --strict 0 if every verdict
    passes, 3 if one fails, 4 otherwise.

    Example: creditscope report runs/store --html report.html --figures figures
    """

    dirs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Bundles, stores, reports (JSON), or directories that hold them. A report of one of the bundles adds what it measured."""
    protocol: str = "three-check"
    """Verdict policy: three-check, three-check/1.0 or four-diagnostic."""
    json: Path | None = None
    """Also write every report as JSON to this file."""
    markdown: Path | None = None
    """Also write the table as Markdown to this file."""
    html: Path | None = None
    """Also write one self-contained HTML page with the table, the studies of a store and every network to this file."""
    latex: Path | None = None
    """Also write the table as LaTeX (booktabs) to this file."""
    standalone: bool = False
    """Make the LaTeX file a whole document."""
    figures: Path | None = None
    """Also write the figures (SVG, PDF, PNG) into this directory: audit, layers, temporal, and one per study of a store."""
    full: bool = False
    """Measure the full level (ρ, nudging, fresh-B) of a store's studies if it is missing, and keep it in the store."""
    data_dir: Path | None = None
    """Where the CIFAR files are (for --full)."""
    strict: bool = False
    """Exit with code 3 if a verdict fails, 4 if none fails and not all pass."""
    github: bool = False
    """Also print every verdict as an annotation of a GitHub workflow."""

    def execute(self) -> int:
        from creditscope.protocol import get_policy
        from creditscope.render.tables import table_latex, table_markdown, table_text
        from creditscope.runs.groups import audit, place, reported
        from creditscope.studies.audit import audit_table

        get_policy(self.protocol)
        if not self.dirs:
            raise CreditscopeError(
                "report needs a bundle, a directory that holds bundles, a store, or reports of `diagnose` (JSON)"
            )
        sources = find_sources(self.dirs)
        sources.reports = [  # a report without a name has that of its file, in every table
            (name, r if r.method_name else r.model_copy(update={"method_name": name})) for name, r in sources.reports
        ]
        groups = sorted(audit(sources.bundles, protocol=self.protocol), key=lambda g: place(g.spec))
        rows: list[AuditRow] = [*groups, *reported(sources.reports, (b.spec.hash for b in sources.bundles))]
        if not rows:
            raise sources.without_networks()
        if self.figures and not groups:
            raise CreditscopeError(
                "--figures needs bundles: a report has no trajectory; reports alone make an --html page"
            )
        if self.json:
            write_atomic(self.json, summary(rows))
        table = audit_table(rows, TITLE)
        if self.markdown:
            write_atomic(self.markdown, table_markdown(table).encode())
        if self.latex:
            write_atomic(self.latex, table_latex(table, self.standalone).encode())
        if self.html or self.figures:
            _pictures(self, sources, groups, rows)
        judged = [report for row in rows for report in row.reports]
        if self.github:
            print("\n".join(map(annotation, judged)))
        print(table_text(table, TITLE))
        tell_written(self.json, self.markdown, self.latex, self.html, self.figures)
        return exit_code(judged) if self.strict else 0


def summary(rows: Sequence[AuditRow]) -> bytes:
    """Every report of a table, as JSON."""
    return dump_json(
        [
            {
                "method": row.label,
                "seeds": list(getattr(row, "seeds", ())),
                "reports": [r.to_dict() for r in row.reports],
            }
            for row in rows
        ]
    )


def _pictures(flags: Report, sources: Sources, groups: Sequence[Group], rows: Sequence[AuditRow]) -> None:
    from creditscope.studies.shown import full_reports, stored_studies

    studies: list[tuple[str, Table]] = []
    begun: list[str] = []
    for root in sources.stores:
        stored = stored_studies(root, flags.full, flags.data_dir)
        where = f"{root}: " if len(sources.stores) > 1 else ""
        studies += stored.results
        begun += [where + line for line in stored.begun]
    if flags.html:
        from rich.console import Console
        from rich.progress import track

        from creditscope.render.html import html_page, networks

        console = Console(stderr=True)
        drawn = partial(track, description="drawing networks", console=console, disable=not console.is_terminal)
        runs = {b.spec.hash for b in sources.bundles}
        extra = [r for root in sources.stores for r in full_reports(root) if r.run in runs]
        shown = networks(groups, sources.bundles, [*extra, *(r for _, r in sources.reports)])
        page = html_page(rows, shown, studies=studies, begun=begun, progress=drawn)
        write_atomic(flags.html, page.encode())
    if flags.figures:
        from creditscope.render.draw import table_panels
        from creditscope.render.figures import write_figures
        from creditscope.render.words import words

        several = len({preset for preset, _ in studies}) > 1
        named = {f"study-{r.name}" + (f"-{preset}" if several else ""): table_panels(r, words) for preset, r in studies}
        write_figures(groups, flags.figures, named)
