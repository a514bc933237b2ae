"""Depth profile: how much of the task a linear readout finds at each depth, for every method, and in its random-block twin."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.measure.facts import DepthProfile
from creditscope.quantities import Quantity, Scale
from creditscope.runs.groups import network
from creditscope.runs.record import Record
from creditscope.studies.grid import BP, DFA, DFA_NONE, FA, FA_RMS, grid, with_nulls
from creditscope.studies.study import METHOD_AND_NORM, Study, method_and_norm
from creditscope.tables import Cell, Column, Plot, Row, Spread, Statement, Table, grouped_by, mean, state
from creditscope.training.spec import RunSpec

READOUT = Quantity(
    "readout", "acc", "readout", "", "test accuracy of a closed-form linear readout of h_l, mean over seeds",
    scale=Scale.SHARE, spread=Spread.STD,
)  # fmt: skip
TWIN = Quantity(
    "twin", "acc", "readout of the twin", "", "the same for the network with random blocks and the same embedding",
    scale=Scale.SHARE, spread=Spread.STD,
)  # fmt: skip


def specs(preset: str) -> list[RunSpec]:
    return with_nulls(grid(preset, (BP, FA, FA_RMS, DFA_NONE, DFA)))


def profile_of(method: str, profiles: Sequence[DepthProfile]) -> Statement:
    margins = [p.margin.pp for p in profiles if p.margin is not None]
    lost = sorted({p.first_loss for p in profiles if p.first_loss is not None})
    return state(
        "profile of",
        method=method,
        margin=mean(margins) if margins else None,
        networks=len(profiles),
        loss=(state("takes away", blocks=lost),) if lost else (),
    )


def build(study: Study, records: Sequence[Record]) -> Table:
    trained = [r for r in records if not r.spec.frozen]
    methods = grouped_by((r for r in trained if r.profile is not None), lambda r: method_and_norm(r.spec))
    rows, statements = [], []
    for name, found in methods.items():
        profiles = [r.profile for r in found if r.profile is not None]
        hashes = tuple(r.spec.hash for r in found)
        for layer in range(max(len(p.curve) for p in profiles)):
            readouts = {
                quantity.name: quantity.mean(Cell(side[layer].accuracy) for side in sides if layer < len(side))
                for quantity, sides in ((READOUT, [p.curve for p in profiles]), (TWIN, [p.twin for p in profiles]))
            }
            rows.append(Row({"method": Cell(name), "layer": Cell(layer), **readouts}, hashes))
        statements.append(profile_of(name, profiles))
    columns = [
        METHOD_AND_NORM.column,
        Column("layer", "l", about="the readout is of h_l; 0 is the output of the embedding"),
        READOUT.column(),
        TWIN.column(),
    ]
    missing = len(trained) - sum(map(len, methods.values()))
    convention = state("profile convention", networks=sorted({network(r.spec) for r in trained}), missing=missing)
    return study.made(columns, rows, *statements, convention=(convention,))


STUDY = Study(
    "profile",
    "how much of the task can be read off at each depth, against random blocks?",
    specs,
    build=build,
    plots=(Plot("layer", "readout", "method"), Plot("layer", "twin", "method")),
)
