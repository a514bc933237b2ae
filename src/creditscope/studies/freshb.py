"""Fresh-B null: is the alignment specific to the feedback matrices that the network was trained with?"""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.measure.facts import FreshB
from creditscope.quantities import get_quantity
from creditscope.runs.record import NotMeasured, Record
from creditscope.studies.grid import DFA, FA, grid
from creditscope.studies.study import METHOD, SEED, Axis, Study, record_row
from creditscope.tables import Plot, Table, state
from creditscope.training.spec import RunSpec

PENALTY = 1e-2
Z = 3.0
RUN = Axis("run", "method and seed", lambda s: f"{s.label} s{s.seed}")
QUANTITIES = ("fresh_b", "fresh_b_mean", "fresh_b_z")


def specs(preset: str) -> list[RunSpec]:
    return grid(preset, (FA, DFA), penalty=PENALTY, intervention=True)


def _fact(record: Record) -> FreshB | None:
    try:
        return record.full(None).fresh_b
    except NotMeasured:
        return None


def build(study: Study, records: Sequence[Record]) -> Table:
    rows = [record_row((METHOD, SEED, RUN), QUANTITIES, record) for record in records]
    measured = [row for row in rows if row["fresh_b"].known]
    specific = [row for row in measured if row["fresh_b_z"].known and abs(row.value("fresh_b_z")) > Z]
    conclusion = state("freshb", specific=[row.value("run") for row in specific], measured=len(measured), z=Z)
    columns = [METHOD.column, SEED.column, RUN.column, *(get_quantity(name).column() for name in QUANTITIES)]
    samples = sorted({f.n_samples for r in records if (f := _fact(r)) is not None and f.trained is not None})
    convention = state("freshb convention", penalty=PENALTY, samples=samples)
    return study.made(columns, rows, conclusion, convention=(convention,))


STUDY = Study(
    "freshb",
    "does the deep cosine survive when the feedback matrices are redrawn?",
    specs,
    quantities=QUANTITIES,
    build=build,
    plots=(Plot("run", "fresh_b"), Plot("run", "fresh_b_mean")),
)
