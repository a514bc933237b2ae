"""Mode 2 before Mode 1: is the headline Γ one layer's cosine already while the reference can still be measured?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from creditscope.protocol import DiagnosticThresholds
from creditscope.quantities import first_epoch, get_quantity, top_layer
from creditscope.runs.record import Record
from creditscope.studies.grid import DFA, DFA_NONE, FA, FA_RMS, grid
from creditscope.studies.study import EPOCH, FIRED, METHOD, SEED, Study, course, record_row
from creditscope.tables import Cell, Plot, Row, Table, state
from creditscope.training.spec import RunSpec

EPOCHS = 5
QUANTITIES = ("cosine[0]", "deep_cosine", "top_share")


def specs(preset: str) -> list[RunSpec]:
    return grid(preset, (FA, FA_RMS, DFA, DFA_NONE))


def first_mode2(record: Record, limit: float) -> tuple[int, int] | None:
    """First epoch at which one layer has more than this share of Γ, and the layer."""
    for line in record.trajectory:
        found = top_layer(record, line)
        if line["epoch"] >= 1 and found is not None and found[1] > limit:
            return int(line["epoch"]), found[0]
    return None


def build(study: Study, records: Sequence[Record]) -> Table:
    limit = DiagnosticThresholds().concentration_share
    found = [(first_mode2(r, limit), first_epoch(r, "D1", "D2"), r.facts.concentration) for r in records]
    mode2 = [(at, mode1, c) for at, mode1, c in found if at is not None]
    exact = sum(c is not None and at[1] in c.exact_layers for at, _, c in mode2)
    conclusion = state(
        "early",
        limit=limit,
        with_mode2=len(mode2),
        runs=len(records),
        before=sum(mode1 is None or at[0] < mode1 for at, mode1, _ in mode2),
        exact=(state("early, exact", n=exact),) if exact else (),
    )
    rows = [
        _row(r, line["epoch"], tuple(line["fired"]))
        for r in records
        for line in r.trajectory
        if 1 <= line["epoch"] <= EPOCHS and line["cosine"]
    ]
    deep = get_quantity("deep_cosine").column(
        title="mean of deeper layers", about="mean cosine over the layers above 0 that count"
    )
    layer_0, share = (get_quantity(name).column() for name in ("cosine[0]", "top_share"))
    columns = [METHOD.column, SEED.column, EPOCH, layer_0, deep, share, FIRED]
    drawn = course(records, ("top_share", "cosine[0]"), last=EPOCHS)
    plots = tuple(Plot("epoch", y, "method", drawn) for y in ("top_share", "cosine[0]"))
    return study.made(columns, rows, conclusion, plots=plots)


def _row(record: Record, epoch: int, fired: tuple[str, ...]) -> Row:
    row = record_row((METHOD, SEED), QUANTITIES, record, epoch)
    return replace(row, cells={**row.cells, "epoch": Cell(epoch), "fired": Cell(fired)})


STUDY = Study(
    "early",
    "does one layer carry Γ (Mode 2) before the measurement degenerates (Mode 1)?",
    specs,
    build=build,
    convention=state("early convention", epochs=EPOCHS),
)
