"""First epoch at which a check fires, accuracy then and at the end, and what stopping there would have saved."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from creditscope.quantities import Form, Quantity, get_quantity
from creditscope.runs.record import Record
from creditscope.studies.audit import specs
from creditscope.studies.study import METHOD, SEED, Study, course, record_row
from creditscope.tables import Cell, Column, Plot, Row, Statement, Table, grouped_by, mean, span, state

GAIN_PP = 2.0
"""A stop is false if accuracy still rises by more than this afterwards, or if Mode 1 is not there at the end."""
SAVED = Quantity(
    "saved", "saved", "epochs saved", "", "share of the epochs that stopping there would have saved", form=Form.PERCENT
)
QUANTITIES = ("epochs", "d1_epoch", "d2_epoch", "mode1_epoch", "accuracy")
COLUMNS = (
    METHOD.column,
    get_quantity("epochs").column(),
    SEED.column,
    *(get_quantity(name).column() for name in ("d1_epoch", "d2_epoch", "mode1_epoch")),
    get_quantity("accuracy").column(name="accuracy_then", title="accuracy then", about="test accuracy at that epoch"),
    get_quantity("accuracy").column(title="at the end", about="test accuracy of the final network"),
    SAVED.column(),
    Column(
        "false_stop",
        "false stop",
        about=f"yes if Mode 1 is gone at the end, or accuracy still rises by more than {GAIN_PP:g} pp",
    ),
)


def timing(record: Record) -> Row:
    row = record_row((METHOD, SEED), QUANTITIES, record)
    fires, epochs = row.value("mode1_epoch"), row.value("epochs")
    if fires is None:
        more = dict.fromkeys(("accuracy_then", "saved", "false_stop"), Cell(note="Mode 1 does not fire"))
    else:
        then = get_quantity("accuracy").of(record, fires)
        gain = round(100 * (record.accuracy - then.value), 9)
        wrong = gain > GAIN_PP or not {"D1", "D2"} <= set(record.trajectory[-1]["fired"])
        more = {"accuracy_then": then, "saved": Cell(1 - fires / epochs), "false_stop": Cell(wrong)}
    return Row({**row.cells, **more}, row.runs)


def conclusion(rows: Sequence[Row]) -> Statement:
    fired = [r for r in rows if r["mode1_epoch"].known]
    if not fired:
        one = sum(r["d1_epoch"].known or r["d2_epoch"].known for r in rows)
        return state("temporal, none", runs=len(rows), one=one)
    by = grouped_by(fired, lambda r: r.value("method"))
    return state(
        "temporal",
        fired=len(fired),
        runs=len(rows),
        median=statistics.median(r.value("mode1_epoch") for r in fired),
        by_method=tuple(
            state("at epochs", label=k, span=span([r.value("mode1_epoch") for r in v])) for k, v in by.items()
        ),
        saved=mean([r.value("saved") for r in fired]),
        wrong=sum(r.value("false_stop") for r in fired),
    )


def build(study: Study, records: Sequence[Record]) -> Table:
    trained = [r for r in records if not r.spec.frozen]
    rows = [timing(r) for r in trained]
    drawn = course(trained, ("accuracy", "growth", "reference_norm_128"))
    plots = tuple(Plot("epoch", y, "method", drawn) for y in ("accuracy", "growth", "reference_norm_128"))
    return study.made(COLUMNS, rows, conclusion(rows), plots=plots)


STUDY = Study(
    "temporal",
    "how early do the checks fire, and what would stopping there have saved?",
    specs,
    build=build,
    convention=state("temporal convention", gain=GAIN_PP),
)
