"""Thresholds: do the verdicts hang on the exact numbers, and how wide is the gap between healthy and failing networks?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

from creditscope.protocol import DiagnosticThresholds
from creditscope.quantities import get_quantity
from creditscope.runs.groups import Outcome, audit
from creditscope.runs.record import Record
from creditscope.studies.audit import specs
from creditscope.studies.study import METHOD, Study, judged
from creditscope.tables import Cell, Column, Plot, Row, Table, state

GROWTHS = (20.0, 50.0, 100.0, 200.0)
FLOORS = (3e-8, 1e-7, 3e-7)
MARGINS = (1.0, 2.0, 3.0)


def gap(healthy: Sequence[float], failing: Sequence[float], failing_is_large: bool) -> float | None:
    """How many times the nearest failing value lies beyond the nearest healthy one (below 1: they overlap)."""
    if not healthy or not failing:
        return None
    if failing_is_large:
        return min(failing) / max(healthy) if max(healthy) > 0 else None
    return min(healthy) / max(failing) if max(failing) > 0 else None


def separation(records: Sequence[Record], quantity: str, failing_is_large: bool) -> float | None:
    """The gap between the networks with Mode 1 and the others, each judged at the default thresholds."""
    sides: dict[bool, list[float]] = {True: [], False: []}
    for group in audit(records):
        for record, report in zip(group.records, group.reports, strict=True):
            mode1 = {report.checks[d].answer for d in ("D1", "D2")} == {"fail"}
            sides[mode1].append(get_quantity(quantity).of(record).value)
    return gap(sides[False], sides[True], failing_is_large)


def build(study: Study, records: Sequence[Record]) -> Table:
    default = audit(records)
    counts: dict[str, Counter[Outcome]] = {g.label: Counter() for g in default}
    grid = list(product(GROWTHS, FLOORS, MARGINS))
    for growth, floor, margin in grid:
        chosen = DiagnosticThresholds(g_norm_floor=floor, h_norm_explosion_ratio=growth, frozen_acc_margin_pp=margin)
        for group in audit(records, thresholds=chosen):
            counts[group.label][group.outcome] += 1
    rows = [
        Row(
            {
                "method": Cell(g.label),
                "default": Cell(g.outcome),
                "agree": Cell(counts[g.label][g.outcome], n=len(grid)),
                **{o.value: Cell(counts[g.label][o], n=len(grid)) for o in Outcome},
            },
            g.hashes,
        )
        for g in default
    ]
    conclusion = state(
        "thresholds",
        stable=[r.value("method") for r in rows if r.value("agree") == len(grid)],
        groups=len(rows),
        settings=len(grid),
        growth=separation(records, "growth", failing_is_large=True),
        reference=separation(records, "reference_norm_128", failing_is_large=False),
    )
    used = [o for o in Outcome if any(count[o] for count in counts.values())]
    columns = [
        METHOD.column,
        Column("default", "verdict at the defaults", about="status with the thresholds of the protocol"),
        Column(
            "agree",
            f"settings that agree (of {len(grid)})",
            about=f"of {len(grid)} threshold settings, those with the same status",
        ),
        *(Column(o.value, about=f"settings at which it is {o.value}") for o in used),
    ]
    convention = (state("thresholds convention", growths=GROWTHS, floors=FLOORS, margins=MARGINS), *judged(default))
    return study.made(columns, rows, conclusion, convention=convention)


STUDY = Study(
    "thresholds", "do the verdicts change when the thresholds do?", specs, build=build, plots=(Plot("method", "agree"),)
)
