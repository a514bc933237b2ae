"""Random targets: labels redrawn for every batch. Growth that appears here needs no signal at all."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.quantities import get_quantity
from creditscope.runs.record import Record
from creditscope.studies.grid import BP, DFA, DFA_NONE, EP, FA, grid
from creditscope.studies.study import EPOCH, FIRED, METHOD, Study, course
from creditscope.tables import Cell, Plot, Row, Table, grouped_by, mean, state
from creditscope.training.spec import RunSpec

GREW = 10.0
"""‖h_L‖ at the end over its start from which we say that it grew."""
FIRST = (0, 1, 2, 3)
"""Epochs that the table shows beside the last."""


def specs(preset: str) -> list[RunSpec]:
    return grid(preset, (BP, EP, FA, DFA, DFA_NONE), targets="random")


def factor(record: Record) -> float:
    """‖h_L‖ after training over ‖h_L‖ at initialisation."""
    last_h = get_quantity("last_h")
    return float(last_h.of(record).value / last_h.of(record, 0).value)


def build(study: Study, records: Sequence[Record]) -> Table:
    drawn = course(records, ("last_h",))
    by = grouped_by(records, lambda r: r.spec.label)
    rows = []
    for row in drawn.rows:
        epoch, mine = row.value("epoch"), by[row.value("method")]
        if epoch in FIRST or epoch == mine[0].trajectory[-1]["epoch"]:
            lines = [line for r in mine if (line := r.line(epoch))]
            fired = tuple(sorted({check for line in lines for check in line["fired"]}))
            rows.append(Row({**row.cells, "fired": Cell(fired)}, row.runs))
    grew = [label for label, mine in by.items() if mean([factor(r) for r in mine]) > GREW]
    columns = [METHOD.column, EPOCH, get_quantity("last_h").column(), FIRED]
    conclusion = state("random-target", grew=grew, rules=len(by), factor=GREW)
    return study.made(columns, rows, conclusion, plots=(Plot("epoch", "last_h", "method", drawn),))


STUDY = Study(
    "random-target",
    "does the stream grow when there is nothing to learn?",
    specs,
    build=build,
    convention=state("random-target convention"),
)
