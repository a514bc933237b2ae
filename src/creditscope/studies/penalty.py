"""Penalty λ: does holding the scale bring back a measurable credit, and do trained blocks then help?"""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.render.numbers import signed
from creditscope.studies.grid import BP, DFA, FA, make, seeds_of, with_nulls
from creditscope.studies.interventions import CONVENTION, HEADER, Item, figure, items, row
from creditscope.studies.result import Run, StudyResult
from creditscope.training.spec import RunSpec

QUESTION = "what does the penalty λ‖f_l(h_l)‖² do to accuracy, scale and credit?"
LAMBDAS = {"smoke": (0.0, 1e-2), "quick": (0.0, 1e-2), "paper": (0.0, 1e-4, 1e-3, 1e-2, 1e-1)}


def specs(preset: str) -> list[RunSpec]:
    grid = [
        make(preset, method, seed, penalty=penalty, intervention=True)
        for seed in seeds_of(preset)
        for method in (BP, FA, DFA)
        for penalty in LAMBDAS[preset]
    ]
    return with_nulls(grid)


def d3_at(item: Item, needed: float) -> str:
    """D3 as a point comparison at a threshold in percentage points."""
    return "–" if item.margin is None else "fail" if item.margin < needed else "pass"


def analyse(runs: Sequence[Run]) -> StudyResult:
    found = items(runs)
    rows = [[*row(i), d3_at(i, 1), d3_at(i, 2)] for i in found]
    fragile = [i.group.label for i in found if d3_at(i, 1) != d3_at(i, 2)]
    parts = []
    for method in dict.fromkeys(i.group.spec.method for i in found):
        mine = [i for i in found if i.group.spec.method == method]
        base = next((i for i in mine if i.group.spec.penalty == 0), None)
        rest = [i for i in mine if i.group.spec.penalty]
        if base and rest:
            best = max(rest, key=lambda i: i.accuracy)
            gain = signed(100 * (best.accuracy - base.accuracy), 1)
            parts.append(
                f"{method} {gain} pp at λ={best.group.spec.penalty:g} (‖h_L‖ {base.last_h:.2g} → {best.last_h:.2g})"
            )
    conclusion = (
        f"best accuracy under a penalty against none: {'; '.join(parts) or 'not measured'}; D3 depends on the choice of 1 or 2 "
        f"pp in {len(fragile)} of {len(found)} rows."
    )
    header = [*HEADER, "D3 at 1 pp", "D3 at 2 pp"]
    return StudyResult(
        "penalty", QUESTION, header, rows, {"kind": "lines", "points": figure(found)}, conclusion, CONVENTION
    )
