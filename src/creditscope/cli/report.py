"""creditscope report"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from creditscope.cli.parse import parse


@dataclass
class Report:
    dirs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Bundles, or directories that hold bundles."""
    protocol: str = "three-check"
    """Verdict policy: three-check or four-diagnostic."""
    json: Path | None = None
    """Also write every report as JSON to this file."""
    markdown: Path | None = None
    """Also write the table as Markdown to this file."""
    html: Path | None = None
    """Also write one self-contained HTML page with the table and every network to this file."""
    latex: Path | None = None
    """Also write the table as LaTeX (booktabs) to this file."""
    standalone: bool = False
    """Make the LaTeX file a whole document."""
    figures: Path | None = None
    """Also write the figures (SVG, PDF, PNG) into this directory."""


def run(args: Sequence[str]) -> int:
    flags = parse(
        Report,
        args,
        "report",
        "Group bundles over seeds, find their nulls among them, and print what accuracy and Γ would have claimed next to "
        "what the protocol finds. Uses the facts that are stored in the bundles; nothing is measured again.",
        "creditscope report runs/demo/networks --markdown audit.md",
    )
    from creditscope.errors import CreditscopeError
    from creditscope.files import dump_json, write_atomic
    from creditscope.protocol import get_policy
    from creditscope.render.audit import audit_markdown, audit_renderable
    from creditscope.render.text import to_text
    from creditscope.studies.audit import audit, find_bundles

    get_policy(flags.protocol)
    if not flags.dirs:
        raise CreditscopeError("report needs at least one directory: a bundle, or a directory that holds bundles")
    pool = find_bundles(flags.dirs, lambda text: print(f"creditscope: left out: {text}", file=sys.stderr))
    groups = audit(pool, protocol=flags.protocol)
    if not groups:
        raise CreditscopeError("only frozen-blocks nulls were found; add the networks that they are nulls for")
    title = "What accuracy + Γ would have claimed | what the protocol finds"
    if flags.json:
        summary = [{"method": g.label, "seeds": g.seeds, "reports": [r.to_dict() for r in g.reports]} for g in groups]
        write_atomic(flags.json, dump_json(summary))
    if flags.markdown:
        write_atomic(flags.markdown, audit_markdown(groups, title).encode())
    if flags.html:
        from creditscope.render.html import html_page, networks

        write_atomic(flags.html, html_page(groups, networks(groups, pool)).encode())
    if flags.latex:
        from creditscope.render.latex import audit_latex

        write_atomic(flags.latex, audit_latex(groups, standalone=flags.standalone).encode())
    if flags.figures:
        from creditscope.render.figures import write_figures

        write_figures(groups, flags.figures)
    print(to_text(audit_renderable(groups, title)))
    return 0
