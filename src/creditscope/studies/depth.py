"""Depth: does FA use more blocks where it has them?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from creditscope.render.numbers import signed
from creditscope.studies.audit import audit
from creditscope.studies.compared import compared, deep
from creditscope.studies.grid import BP, FA, make, seeds_of, with_nulls
from creditscope.studies.published import DEPTH_ACCURACY
from creditscope.studies.result import Run, StudyResult, mean
from creditscope.training.spec import RunSpec

QUESTION = "does accuracy grow with depth, and does the deep cosine hold?"
DEPTHS = {"smoke": (1, 2, 4), "quick": (2, 4), "paper": (2, 4, 6, 8, 12), "reduced": (2, 4, 6, 8, 12)}


def specs(preset: str) -> list[RunSpec]:
    wide: dict[str, Any] = {} if preset == "smoke" else {"width": 512}
    return with_nulls(
        make(preset, m, seed, depth=depth, **wide)
        for seed in seeds_of(preset)
        for depth in DEPTHS[preset]
        for m in (BP, FA)
    )


def analyse(runs: Sequence[Run]) -> StudyResult:
    groups = sorted(audit(runs), key=lambda g: (g.spec.method, g.spec.depth or 0))
    parts = []
    for method in dict.fromkeys(g.spec.method for g in groups):
        mine = [g for g in groups if g.spec.method == method]
        gain = signed(100 * (mean(mine[-1].accuracies) - mean(mine[0].accuracies)), 1)
        cosines = f", deep cosine {signed(deep(mine[0]), 2)} → {signed(deep(mine[-1]), 2)}" if method != "bp" else ""
        parts.append(f"{method} {gain} pp from L={mine[0].spec.depth} to L={mine[-1].spec.depth}{cosines}")
    conclusion = f"{'; '.join(parts) or 'no finished runs'}."
    return compared(
        "depth",
        QUESTION,
        groups,
        "L",
        lambda g: str(g.spec.depth),
        lambda g: (
            DEPTH_ACCURACY.get(g.spec.depth or 0) if g.spec.method == "fa" and g.spec.dataset == "cifar10" else None
        ),
        conclusion,
    )
