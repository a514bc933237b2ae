"""Ladder: only the last k blocks are trained. Where does training a further block stop helping?"""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.protocol.intervals import t_interval
from creditscope.quantities import Form, Quantity, get_quantity
from creditscope.runs.groups import network
from creditscope.runs.record import Record
from creditscope.studies.grid import BP, DFA, FA, grid, make, seeds_of, unique
from creditscope.studies.study import METHOD_AND_NORM, Study, method_and_norm, shared_seeds
from creditscope.tables import Cell, Column, Plot, Row, Spread, Statement, Table, grouped_by, mean, state
from creditscope.training.spec import RunSpec

GAIN = Quantity(
    "gain", "Δ acc", "gain over the rung before (pp)", "pp",
    "accuracy minus that of the row before, which trains fewer blocks, over the seeds that both have",
    form=Form.SIGNED, digits=1, spread=Spread.INTERVAL,
)  # fmt: skip


def specs(preset: str) -> list[RunSpec]:
    full = make(preset, BP, seeds_of(preset)[0])
    rungs = [m | {"train_last": k} for m in (BP, FA, DFA) for k in range((full.depth or 0) + 1)]
    return unique(grid(preset, rungs, intervention=True))


def rung(spec: RunSpec) -> int:
    """Number of trained blocks."""
    return (spec.depth or 0) if spec.train_last is None else spec.train_last


def gain(these: Sequence[Record], those: Sequence[Record]) -> Cell:
    """Difference of accuracy in percentage points over the seeds that both have, with its paired 95 % t-interval."""
    here, there = ({r.spec.seed: r.accuracy for r in records} for records in (these, those))
    gains = [100 * (here[s] - there[s]) for s in shared_seeds(here, there)]
    low, high = t_interval(gains) or (None, None)
    return Cell(mean(gains), low, high, len(gains), values=tuple(gains)) if gains else Cell(note="no seed in common")


def best_rung(method: str, rungs: dict[int, list[Record]]) -> Statement:
    best = max(rungs, key=lambda k: mean([r.accuracy for r in rungs[k]]))
    lowest = min(rungs)
    over = state("over the lowest", gain=gain(rungs[best], rungs[lowest]), lowest=lowest)
    few = (state("of rungs", rungs=sorted(rungs)),) if len(rungs) <= 4 else ()
    return state("best rung", method=method, best=best, about=(*few, *((over,) if best != lowest else ())))


def build(study: Study, records: Sequence[Record]) -> Table:
    by_method = grouped_by(records, lambda r: method_and_norm(r.spec))
    methods = {name: grouped_by(mine, lambda r: rung(r.spec)) for name, mine in by_method.items()}
    accuracy = get_quantity("accuracy")
    rows = []
    for name, rungs in methods.items():
        before: list[Record] | None = None
        for k in sorted(rungs):
            mine = rungs[k]
            cells = {
                "method": Cell(name),
                "trained_blocks": Cell(k),
                "accuracy": accuracy.mean(accuracy.of(r) for r in mine),
                "gain": Cell(note="the lowest rung") if before is None else gain(mine, before),
            }
            rows.append(Row(cells, tuple(r.spec.hash for r in mine)))
            before = mine
    columns = [
        METHOD_AND_NORM.column,
        Column("trained_blocks", "trained blocks", about="k: only the last k blocks are trained"),
        accuracy.column(),
        GAIN.column(),
    ]
    statements = [best_rung(name, rungs) for name, rungs in methods.items()]
    networks = sorted({network(r.spec) for r in records})
    return study.made(columns, rows, *statements, convention=(state("ladder convention", networks=networks),))


STUDY = Study(
    "ladder",
    "how many of the last blocks are worth training?",
    specs,
    build=build,
    plots=(Plot("trained_blocks", "accuracy", "method"),),
)
