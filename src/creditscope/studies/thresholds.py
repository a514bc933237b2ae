"""Thresholds: do the verdicts hang on the exact numbers, and how wide is the gap between healthy and failing networks?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from creditscope.protocol import DiagnosticThresholds
from creditscope.render.numbers import num
from creditscope.studies.audit import audit, convention, specs
from creditscope.studies.result import Run, StudyResult, names

QUESTION = "do the verdicts change when the thresholds do?"
__all__ = ["analyse", "gap", "specs"]

GROWTHS = (20.0, 50.0, 100.0, 200.0)
FLOORS = (3e-8, 1e-7, 3e-7)
MARGINS = (1.0, 2.0, 3.0)


def gap(healthy: Sequence[float], failing: Sequence[float], failing_is_large: bool) -> float | None:
    """How many times the nearest failing value lies beyond the nearest healthy one (below 1: they overlap)."""
    if not healthy or not failing:
        return None
    if failing_is_large:
        return min(failing) / max(healthy) if max(healthy) > 0 else None
    return min(healthy) / max(failing) if max(failing) > 0 else None


def analyse(runs: Sequence[Run]) -> StudyResult:
    default = audit(runs)
    counts: dict[str, dict[str, int]] = {g.label: {} for g in default}
    grid = list(product(GROWTHS, FLOORS, MARGINS))
    for growth, floor, margin in grid:
        chosen = DiagnosticThresholds(g_norm_floor=floor, h_norm_explosion_ratio=growth, frozen_acc_margin_pp=margin)
        for group in audit(runs, thresholds=chosen):
            tally = counts[group.label]
            tally[group.status] = tally.get(group.status, 0) + 1
    rows, stable = [], []
    for g in default:
        same = counts[g.label].get(g.status, 0)
        if same == len(grid):
            stable.append(g.label)
        told = ", ".join(f"{n} {s}" for s, n in counts[g.label].items())
        rows.append([g.label, g.status, f"{same}/{len(grid)}", told])
    mode1 = [[(r.checks["D1"].answer, r.checks["D2"].answer) == ("fail", "fail") for r in g.reports] for g in default]
    values = {}
    for name, large in (("growth", True), ("reference", False)):
        pairs = [
            (v, bad)
            for g, flags in zip(default, mode1, strict=True)
            for v, bad in zip(g.values(name), flags, strict=True)
        ]
        values[name] = gap([v for v, bad in pairs if not bad], [v for v, bad in pairs if bad], large)
    conclusion = (
        f"{len(stable)} of {len(default)} verdicts are the same at all {len(grid)} settings ({names(stable)}); separation "
        f"between networks with and without Mode 1: growth {num(values['growth'], 2)}-fold, "
        f"‖g_L‖ {num(values['reference'], 2)}-fold (below 1: they overlap; –: one side is empty)."
    )
    header = ["method", "verdict at the defaults", "settings that agree", "over the grid"]
    figure = {
        "kind": "matrix",
        "growth": GROWTHS,
        "floor": FLOORS,
        "margin_pp": MARGINS,
        "counts": counts,
        "gap": values,
    }
    told_grid = (
        f"growth {GROWTHS}, floor {FLOORS}, margin {MARGINS} pp; "
        "published separation: growth 11 to 694, ‖g_L‖ 4.2e-9 to 1e-4"
    )
    return StudyResult("thresholds", QUESTION, header, rows, figure, conclusion, f"{told_grid}; {convention(default)}")
