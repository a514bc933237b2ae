"""One HTML page for a set of audited networks: self-contained, no request to anywhere, inert to what stands in the files.

The overview is whole without scripts. The page of a network is stored as gzipped text inside the file and unpacked when it is
opened, so that 200 networks load as fast as one; the script also sorts, filters, tells the values of marks, and saves.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from creditscope.files import plain
from creditscope.render.figures import audit_panels
from creditscope.render.html.network import Network, apart, data_of
from creditscope.render.html.overview import FEW, audit_row, caption, summary
from creditscope.render.html.section import figure_of, row, section, study_data, study_section
from creditscope.render.numbers import accuracy, mark, num, share, shortened, signed
from creditscope.render.report import check_interval
from creditscope.runs.groups import AuditRow, reported
from creditscope.tables import Table

ASSETS = Path(__file__).parent
LONGEST = 1000
"""Characters of one text on the page; the JSON holds all of it."""
TOGETHER = 16
"""Networks that are packed together: what their pages share is stored once."""
LONGEST_NAME = 44
"""Letters of a method's name in a figure."""


def html_page(
    groups: Sequence[AuditRow],
    shown: Sequence[Network],
    title: str = "creditscope audit",
    studies: Sequence[tuple[str, Table]] = (),
    begun: Sequence[str] = (),
) -> str:
    """The page: the audit table over seeds (where there are groups), the table of networks, the studies, a page per network.

    `studies` are (preset, result); `begun` are lines on studies that cannot be shown yet.
    """
    shown = apart(shown)
    rows = [row(n) for n in shown]
    judged = [n for n in shown if not n.null]
    panels = audit_panels(groups, LONGEST_NAME)
    return whole_page(
        "page.html",
        asset("page.css"),
        title=title,
        packs=packs({n.key: network_html(n) for n in shown}, TOGETHER),
        data=packed({"networks": list(map(data_of, shown)), "studies": [study_data(*study) for study in studies]}),
        protocols=list(dict.fromkeys(n.report.protocol for n in judged)),
        summary=summary(groups or reported((n.report.method_name, n.report) for n in judged)),
        audit=[audit_row(g, shown, groups) for g in groups],
        few=len(groups) <= FEW,
        caption=caption(groups) if groups else "",
        panels=[figure_of(*panels, title="Accuracy, Γ and margin of every method")] if panels else [],
        networks=rows,
        studies=[study_section(preset, result) for preset, result in studies],
        begun=begun,
        n_nulls=sum(n.null for n in shown),
        methods=sorted({r["method"] for r in rows}),
        statuses=list(dict.fromkeys(r["status"] for r in rows)),
    )


def whole_page(template: str, styles: str, **values: Any) -> str:
    """A page with its styles, the script of all pages, and the policy that allows these two and nothing else."""
    script = asset("page.js")
    policy = Markup(security_policy(styles, script))
    made = environment().get_template(template)
    return made.render(styles=Markup(styles), script=Markup(script), policy=policy, **values)


def packs(pages: Mapping[str, str], together: int) -> list[tuple[Markup, Markup]]:
    """(keys, pages by key) of so many pages at a time. Keys are ours: their list is no text from outside, of limited length."""
    items = list(pages.items())
    parts = [dict(items[k : k + together]) for k in range(0, len(items), together)]
    return [(Markup(" ").join(part), packed(part)) for part in parts]


def network_html(network: Network) -> str:
    """The page of one network."""
    return environment().get_template("network.html").render(n=section(network))


@cache
def environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        num=num,
        share=share,
        signed=signed,
        accuracy=accuracy,
        mark=mark,
        code=_code,
        dash=or_dash,
        interval=check_interval,
    )
    return environment


def _shown(value: Any) -> Any:
    """Text from outside: one line, without control characters, of limited length."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return shortened(value, LONGEST)


def _code(sentence: str) -> Markup:
    """A sentence whose names in backticks are shown as code; everything else in it is text."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(_shown(sentence)))))


def or_dash(value: Any, why: str = "not measured") -> Any:
    """What stands in a cell of a table: where there is nothing, a dash that says why."""
    mark = str(value or "").removeprefix("–")  # a mark of the table may stand behind a dash
    if value is None or (isinstance(value, str) and mark in ("", "°", "*")):
        return Markup('<span class="none" title="{}">–</span>{}').format(why, mark)
    return value


def asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def security_policy(styles: str, script: str) -> str:
    """Of a page that makes no request and runs nothing but its own script."""
    return (
        f"default-src 'none'; style-src {_digest(styles)}; script-src {_digest(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def packed(value: Any) -> Markup:
    """JSON, gzipped, in base64: a third of its size, and nothing in it can leave its script element."""
    dumped = json.dumps(plain(value), allow_nan=False, separators=(",", ":")).encode()
    return Markup(base64.b64encode(gzip.compress(dumped, mtime=0)).decode())
