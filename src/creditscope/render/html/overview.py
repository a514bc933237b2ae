"""The overview over seeds: what is claimed and what holds, in numbers, in a table and in three panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from creditscope.render import audit as audit_table
from creditscope.render.charts import Dots, Level, Row
from creditscope.render.figures import names
from creditscope.render.html.network import Network
from creditscope.render.html.section import figure_of
from creditscope.render.numbers import mark
from creditscope.runs.groups import AuditRow, Group

LONGEST_NAME = 44
"""Letters of a row's name in a wide figure."""


def summary(rows: Sequence[AuditRow]) -> list[dict[str, Any]]:
    """What is claimed and what holds, in numbers: (count, words, status)."""
    statuses = [row.status for row in rows]
    noun = "method" if any(isinstance(row, Group) for row in rows) else "network"
    claims = sum(row.aligned for row in rows)
    words = {
        "pass": "no audited failure found",
        "fail": "needs walk-back",
        "inconsistent": "inconsistent: the stated accuracy is not the network's",
        "inconclusive": "inconclusive",
        "mixed": "seeds disagree",
        "incomplete": "incomplete: a check was not measured or not measurable",
    }
    total = len(statuses)
    first = {
        "count": f"{claims} of {total}",
        "words": f"{noun}s that accuracy and Γ > 0 alone would accept (S1)",
        "status": "claim",
    }
    return [
        first,
        *(
            {"count": f"{statuses.count(s)} of {total}", "words": w, "status": s}
            for s, w in words.items()
            if s in statuses or s in ("pass", "fail")
        ),
    ]


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


def audit_row(group: AuditRow, shown: Sequence[Network], groups: Sequence[AuditRow] = ()) -> dict[str, Any]:
    by_run = {n.report.run: n.key for n in shown if n.report.run}
    by_report = {id(n.report): n.key for n in shown}
    cells = audit_table.cells(group)
    status = group.status
    return {
        "cells": [cell.splitlines() for cell in cells],
        "finding": cells[-1].removeprefix(f"{status}: "),  # the badge says it already
        "status": status,
        "mark": mark(status),
        "networks": [
            (name, by_run[r.run] if r.run in by_run else by_report[id(r)])
            for name, r in zip(group.names, group.reports, strict=True)
        ],
        "n": group.count,
        "task": group.task,
        "apart": told_apart(group, groups),
    }


def panels(groups: Sequence[AuditRow]) -> list[dict[str, Any]]:
    """Accuracy with its nulls, Γ, and margin: one dot per seed."""
    if not groups:
        return []
    limit = next(c.threshold for c in groups[0].reports[0].verdict.checks if c.id == "D3")
    accuracy_rows, gamma_rows, margin_rows = [], [], []
    told = names(groups, LONGEST_NAME)
    for name, group in zip(told, groups, strict=True):
        seeds = group.names
        margins = {m.null: m for m in group.margins}
        null = next((margins[k] for k in ("matched", "kind unstated", "bp") if k in margins), None)
        accuracy_rows.append(
            Row(
                name,
                group.marked_accuracies,
                hollow=[(f"{null.null} null, mean", null.null_accuracy)] if null else (),
            )
        )
        gammas = [
            (seed, r.facts.aggregate.headline)
            for seed, r in zip(seeds, group.reports, strict=True)
            if r.facts.aggregate is not None and r.facts.aggregate.headline is not None
        ]
        gamma_rows.append(Row(name, gammas))
        if null is not None:
            interval = None if null.low_pp is None or null.high_pp is None else (null.low_pp, null.high_pp)
            margin_rows.append(Row(name, [(f"mean of n={null.n}, {null.null} null", null.margin_pp)], interval))
        else:
            margin_rows.append(Row(name, ()))
    c = groups[0].reports[0].facts.convention
    dots = [
        Dots(
            "audit-accuracy",
            "Accuracy (dots: seeds; squares: frozen-blocks null)",
            "final checkpoint, test set",
            "accuracy",
            accuracy_rows,
            zero=False,
        ),
        Dots(
            "audit-gamma",
            "Headline Γ (dots: seeds)",
            f"mean over layers of the mean per-sample cosine, {c.cosine_dtype}",
            "Γ",
            gamma_rows,
        ),
        Dots(
            "audit-margin",
            "Margin to the frozen-blocks null (bar: 95 % interval)",
            "trained minus null, percentage points",
            "pp",
            margin_rows,
            levels=(Level(limit, f"D3 threshold {limit:g} pp"),),
        ),
    ]
    return [figure_of(d) for d in dots]
