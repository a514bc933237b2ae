"""The overview over seeds: what is claimed and what holds, in numbers, and in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from creditscope.render.html.network import Network
from creditscope.render.html.section import tone, verdict_mark
from creditscope.render.numbers import num
from creditscope.render.tables import texts, three_digits
from creditscope.render.words import STATUSES, paragraph
from creditscope.runs.groups import AuditRow, Group
from creditscope.studies.audit import audit_table

FEW = 3
"""Up to this many rows, the warnings of each stand on the overview; beyond, on the page of its network."""


def summary(rows: Sequence[AuditRow]) -> list[dict[str, Any]]:
    """What is claimed and what holds, in numbers: (count, words, status)."""
    noun = "method" if any(isinstance(row, Group) for row in rows) else "network"
    accepted = sum(row.s1 == "accept" for row in rows)
    words = f"{noun}s accepted by accuracy above chance and Γ > 0 alone (S1)"
    return counted(f"{accepted} of {len(rows)}", words, [row.status for row in rows])


def counted(count: str, words: str, statuses: Sequence[str]) -> list[dict[str, Any]]:
    """The tiles at the head of a page: what is claimed (`count`, `words`), then how often each status stands there."""
    shown = [s for s in STATUSES if s in statuses or s in ("pass", "fail")]
    tiles = [(count, words, "claim"), *((f"{statuses.count(s)} of {len(statuses)}", STATUSES[s], s) for s in shown)]
    return [dict(zip(("count", "words", "status"), tile, strict=True)) for tile in tiles]


def told_apart(group: AuditRow, rows: Sequence[AuditRow]) -> str:
    """What differs between groups of the same name, task and shape: "epochs 30, checkpoint_epochs 1"."""
    if not isinstance(group, Group):
        return ""
    groups = [row for row in rows if isinstance(row, Group)]
    shape = {"dataset", "arch", "width", "depth"}
    seen = {"seed", "options", "schedule_epochs", *shape}

    def alike(g: Group) -> bool:
        return g.label == group.label and g.spec.model_dump(include=shape) == group.spec.model_dump(include=shape)

    mine = group.spec.model_dump(exclude=seen)
    others = [g.spec.model_dump(exclude=seen) for g in groups if g is not group and alike(g)]
    differing = [name for name, value in mine.items() if any(o[name] != value for o in others)]
    values = {name: ", ".join(map(str, v)) or "none" if isinstance(v := mine[name], tuple) else v for name in differing}
    return ", ".join(f"{name} {value}" for name, value in values.items())


def audit_cells(group: AuditRow) -> dict[str, str]:
    """The row of a group in the audit table of `creditscope report` as text, by the names of the columns."""
    table = three_digits(audit_table([group], ""))
    return dict(zip(table.by_name, texts(table)[1][0], strict=True))


def caption(groups: Sequence[AuditRow]) -> str:
    """The convention of every number in the table."""
    return paragraph(audit_table(groups, "").convention)


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
        "warnings": list(dict.fromkeys(w for verdict in verdicts for w in verdict.warnings)),
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
