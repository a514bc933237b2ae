"""CIFAR-100: the audit on a task with a hundred classes (smoke: the embedded task with half the width stands in)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from creditscope.runs.groups import Group
from creditscope.studies.grid import BP, CLIP, DFA, DFA_NONE, FA, grid, with_nulls
from creditscope.studies.study import METHOD, Axis, Study, failing, labels, partly
from creditscope.tables import Statement, Table, mean, state
from creditscope.training.spec import RunSpec


def specs(preset: str) -> list[RunSpec]:
    change: dict[str, Any] = {"width": 32} if preset == "smoke" else {"dataset": "cifar100"}
    return with_nulls(grid(preset, (BP, FA, DFA, DFA_NONE, DFA | CLIP), **change))


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    yield state(
        "cifar100",
        failed=labels(failing(groups)),
        groups=len(groups),
        dataset=groups[0].spec.dataset,
        partly=partly(groups),
        best=max(groups, key=lambda g: mean(g.accuracies)).label,
    )


STUDY = Study(
    "cifar100",
    "do the failures carry over to a harder task?",
    specs,
    axes=(Axis("dataset", "data", lambda s: s.dataset), METHOD),
    conclude=conclude,
)
