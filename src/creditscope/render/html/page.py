"""One HTML page for a set of audited networks: self-contained, no request to anywhere, inert to what stands in the files.

The page is whole without scripts (every figure is SVG, every number is in a table); the script adds opening one network at a
time, sorting, filtering, hovering and saving.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from creditscope.files import plain
from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.render import audit as audit_table
from creditscope.render.html.network import Network, data_of
from creditscope.render.html.overview import audit_row, panels, summary
from creditscope.render.html.section import section
from creditscope.render.html.studies import study_data, study_section
from creditscope.render.numbers import MARKS, num, printable, signed
from creditscope.runs.groups import AuditRow, reported
from creditscope.tables import Table

ASSETS = Path(__file__).parent
LONGEST = 1000
"""Characters of one text on the page; the JSON holds all of it."""


def html_page(
    groups: Sequence[AuditRow],
    shown: Sequence[Network],
    title: str = "creditscope audit",
    thresholds: DiagnosticThresholds | None = None,
    studies: Sequence[tuple[str, Table]] = (),
    begun: Sequence[str] = (),
    published: dict[str, Any] | None = None,
) -> str:
    """The page: the audit table over seeds (where there are groups), the overview, the studies, one section per network.

    `studies` are (preset, result); `begun` are lines on studies that cannot be shown yet; `published` is a
    `published_section`.
    """
    limits = thresholds or DiagnosticThresholds()
    styles, script = _asset("page.css"), _asset("page.js")
    sections = [section(n, limits) for n in shown]
    judged = [n for n in shown if not n.null]
    protocols = list(dict.fromkeys(n.report.protocol for n in judged))
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            styles=Markup(styles),
            script=Markup(script),
            policy=Markup(
                f"default-src 'none'; style-src {_digest(styles)}; script-src {_digest(script)}; img-src data:; "
                "base-uri 'none'; form-action 'none'"
            ),
            data=embedded(
                {
                    "networks": [data_of(n) for n in shown],
                    "studies": [study_data(preset, result) for preset, result in studies],
                }
            ),
            protocols=protocols,
            summary=summary(groups or reported((n.report.method_name, n.report) for n in judged)),
            audit=[audit_row(g, shown, groups) for g in groups],
            audit_header=audit_table.HEADER,
            caption=audit_table.caption(groups) if groups else "",
            panels=panels(groups),
            networks=sections,
            studies=[study_section(preset, result) for preset, result in studies],
            begun=begun,
            published=published,
            keys={n.report.run: n.key for n in shown if n.report.run},
            n_nulls=sum(n.null for n in shown),
            methods=sorted({s["method"] for s in sections}),
            statuses=list(dict.fromkeys(s["status"] for s in sections)),
            marks=MARKS,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(num=num, signed=signed)
    return environment


def _shown(value: Any) -> Any:
    """Text from outside: one line, without control characters, of limited length."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    value = printable(value)
    return value if len(value) <= LONGEST else value[: LONGEST - 1] + "…"


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def embedded(value: Any) -> Markup:
    """JSON, gzipped, in base64: a third of its size, and nothing in it can leave its script element."""
    dumped = json.dumps(plain(value), allow_nan=False, separators=(",", ":")).encode()
    return Markup(base64.b64encode(gzip.compress(dumped, mtime=0)).decode())
