"""Depth: does FA use more blocks where it has them?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from creditscope.runs.groups import Group
from creditscope.studies.grid import BP, FA, grid, with_nulls
from creditscope.studies.study import METHOD, Axis, Study
from creditscope.tables import Plot, Statement, Table, state
from creditscope.training.spec import RunSpec

DEPTHS = {"smoke": (1, 2, 4), "quick": (2, 4), "paper": (2, 4, 6, 8, 12), "reduced": (2, 4, 6, 8, 12)}


def specs(preset: str) -> list[RunSpec]:
    wide: dict[str, Any] = {} if preset == "smoke" else {"width": 512}
    return with_nulls(grid(preset, [m | {"depth": depth} for depth in DEPTHS[preset] for m in (BP, FA)], **wide))


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    for method in dict.fromkeys(g.spec.method for g in groups):
        first, *_, last = 2 * [row for row, g in zip(table.rows, groups, strict=True) if g.spec.method == method]
        yield state(
            "over depth" if method != "bp" else "bp over depth",
            method=method,
            gain=100 * (last.value("accuracy") - first.value("accuracy")),
            shallow=first.value("L"),
            deep=last.value("L"),
            before=first.value("deep_cosine"),
            after=last.value("deep_cosine"),
        )


STUDY = Study(
    "depth",
    "does accuracy grow with depth, and does the deep cosine hold?",
    specs,
    axes=(Axis("L", "number of blocks", lambda s: s.depth), METHOD),
    order=lambda g: (g.spec.method, g.spec.depth or 0),
    conclude=conclude,
    plots=tuple(Plot("L", y, "method") for y in ("accuracy", "deep_cosine", "margin_matched")),
)
