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
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from creditscope.files import plain
from creditscope.render.figures import audit_panels
from creditscope.render.html.network import Network, apart, data_of
from creditscope.render.html.section import figure_of, row, section, study_data, study_section, tone, verdict_mark
from creditscope.render.numbers import accuracy, mark, num, share, shortened, signed
from creditscope.render.report import check_interval
from creditscope.render.tables import texts, three_digits
from creditscope.render.words import STATUSES, paragraph
from creditscope.runs.groups import AuditRow, Group, differing, reported
from creditscope.studies.audit import audit_table
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
    progress: Callable[[Sequence[Network]], Iterable[Network]] = iter,
) -> str:
    """The page: the audit table over seeds (where there are groups), the table of networks, the studies, a page per network.

    `studies` are (preset, result); `begun` are lines on studies that cannot be shown yet. `progress`
    sees each network as its page is drawn, which takes about a second.
    """
    shown = apart(shown)
    rows = [row(n) for n in shown]
    judged = [n for n in shown if not n.null]
    panels = audit_panels(groups, LONGEST_NAME)
    return whole_page(
        "page.html",
        asset("page.css"),
        title=title,
        packs=packs({n.key: network_html(n) for n in progress(shown)}, TOGETHER),
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


# ---- the overview over seeds: what is claimed and what holds, in numbers, and in a table -----------------------------------


Tile = tuple[str, str, str]
"""Count, words and status."""
FEW = 3
"""Up to this many rows, the warnings of each stand on the overview; beyond, on the page of its network."""


def summary(rows: Sequence[AuditRow]) -> list[Tile]:
    """What is claimed and what holds, in numbers."""
    noun = "method" if any(isinstance(row, Group) for row in rows) else "network"
    accepted = sum(row.s1 == "accept" for row in rows)
    words = f"{noun}s accepted by accuracy above chance and Γ > 0 alone (S1)"
    return counted(f"{accepted} of {len(rows)}", words, [row.status for row in rows])


def counted(count: str, words: str, statuses: Sequence[str]) -> list[Tile]:
    """The tiles at the head of a page: what is claimed (`count`, `words`), then how often each status stands there."""
    shown = [s for s in STATUSES if s in statuses or s in ("pass", "fail")]
    return [(count, words, "claim"), *((f"{statuses.count(s)} of {len(statuses)}", STATUSES[s], s) for s in shown)]


def told_apart(group: AuditRow, rows: Sequence[AuditRow]) -> str:
    """What differs between groups of the same name, task and shape: "epochs 30, checkpoint_epochs 1"."""
    if not isinstance(group, Group):
        return ""
    alike = [row.spec for row in rows if isinstance(row, Group) and (row.label, row.task) == (group.label, group.task)]
    values = {name: getattr(group.spec, name) for name in differing(alike, ("seed", "options", "schedule_epochs"))}
    shown = {name: ", ".join(map(str, v)) or "none" if isinstance(v, tuple) else v for name, v in values.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def audit_cells(group: AuditRow) -> dict[str, str]:
    """The row of a group in the audit table of `creditscope report` as text, by the names of the columns."""
    table = three_digits(audit_table([group], ""))
    return dict(zip(table.by_name, texts(table)[1][0], strict=True))


def caption(groups: Sequence[AuditRow]) -> str:
    """The convention of every number in the table."""
    return paragraph(audit_table(groups, "").convention)


def warnings_of(group: AuditRow) -> dict[str, str]:
    """Each warning of a row, with the names of its networks; none where all of them have it."""
    having: dict[str, list[str]] = {}
    for name, report in zip(group.names, group.reports, strict=True):
        for warning in dict.fromkeys(report.verdict.warnings):
            having.setdefault(warning, []).append(name)
    return {w: ", ".join(names) if len(names) < len(group.reports) else "" for w, names in having.items()}


def audit_row(group: AuditRow, shown: Sequence[Network], groups: Sequence[AuditRow] = ()) -> dict[str, Any]:
    by_run = {n.report.run: n.key for n in shown if n.report.run}
    by_report = {id(n.report): n.key for n in shown}
    cells = audit_cells(group)
    status, verdicts = group.status, [report.verdict for report in group.reports]
    chances = [c for r in group.reports if r.facts.evaluation and (c := r.facts.evaluation.chance) is not None]
    return {
        "cells": cells,
        "margins": [f"{name.removeprefix('margin_')} {cells[name]}" for name in cells if name.startswith("margin")],
        "finding": cells["finding"].removeprefix(f"{status}: "),  # the badge says it already
        "status": status,
        "mark": verdict_mark(status, verdicts),
        "tone": tone(status, verdicts),
        "warnings": warnings_of(group),
        "explodes": any(r.checks["D1"].answer == "fail" for r in group.reports),
        "networks": [
            (name, by_run[r.run] if r.run in by_run else by_report[id(r)])
            for name, r in zip(group.names, group.reports, strict=True)
        ],
        "n": group.count,
        "chance": num(max(chances)) if chances else "",
        "task": group.task,
        "apart": told_apart(group, groups),
    }
