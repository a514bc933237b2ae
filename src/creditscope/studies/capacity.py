"""Capacity, 2×2: what the penalty takes from BP is capacity; what it gives to DFA is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from creditscope.runs.groups import Group
from creditscope.studies.grid import BP, DFA, grid, with_nulls
from creditscope.studies.study import INTERVENTIONS, Study, mean_over, shared_seeds
from creditscope.tables import Plot, Statement, Table, state
from creditscope.training.spec import RunSpec

PENALTY = 1e-2


def specs(preset: str) -> list[RunSpec]:
    methods = [m | {"penalty": penalty} for m in (BP, DFA) for penalty in (0.0, PENALTY)]
    return with_nulls(grid(preset, methods, intervention=True))


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    cells = {(g.spec.method, bool(g.spec.penalty)): g for g in groups}
    shared = shared_seeds(*(g.seeds for g in cells.values()))
    if len(cells) < 4 or not shared:
        yield state("cells missing", cells=len(cells))
        return
    pp = {key: 100 * mean_over(g, "accuracy", shared) for key, g in cells.items()}
    yield state(
        "capacity",
        penalty=PENALTY,
        bp=pp["bp", True] - pp["bp", False],
        dfa=pp["dfa", True] - pp["dfa", False],
        label=cells["dfa", False].label,
        before=pp["bp", False] - pp["dfa", False],
        after=pp["bp", True] - pp["dfa", True],
        seeds=shared,
    )


STUDY = Study(
    "capacity",
    "does capacity explain the gain of DFA under the penalty? (BP and DFA, with and without)",
    specs,
    axes=INTERVENTIONS,
    conclude=conclude,
    plots=(Plot("penalty", "accuracy", "method"), Plot("penalty", "margin_matched", "method")),
)
