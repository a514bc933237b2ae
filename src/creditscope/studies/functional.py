"""Ranking under a matched penalty: does the cosine order the methods as the functional metrics do?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from scipy import stats

from creditscope.render.numbers import num, signed
from creditscope.studies.grid import CB, DFA, FA, SB, make, seeds_of, with_nulls
from creditscope.studies.interventions import CONVENTION, HEADER, Item, figure, items, row
from creditscope.studies.result import Run, StudyResult, means_over
from creditscope.training.spec import RunSpec

QUESTION = "under the same penalty, does the cosine rank the methods as accuracy, ρ, nudging and the loss do?"
PENALTY = 1e-2


def specs(preset: str) -> list[RunSpec]:
    return with_nulls(
        make(preset, method, seed, penalty=PENALTY, intervention=True)
        for seed in seeds_of(preset)
        for method in (SB, FA, CB, DFA)
    )


def rank_correlations(found: Sequence[Item]) -> dict[str, float | None]:
    """Spearman's correlation over methods between the deep cosine and each metric; larger is better in all of them."""
    metrics: dict[str, Callable[[Item], float | None]] = {
        "accuracy": lambda i: i.accuracy,
        "ρ": lambda i: i.rho,
        "nudging": lambda i: None if i.nudge is None else -i.nudge,
        "loss decrease": lambda i: -i.loss,
    }
    result: dict[str, float | None] = {}
    for name, metric in metrics.items():
        pairs = [(i.cosine, metric(i)) for i in found]
        both = [(c, m) for c, m in pairs if c is not None and m is not None]
        varied = len(both) > 2 and all(len({p[k] for p in both}) > 1 for k in (0, 1))
        value = float(stats.spearmanr([c for c, _ in both], [m for _, m in both]).statistic) if varied else math.nan
        result[name] = value if math.isfinite(value) else None
    return result


def chance_of_perfect_order(points: int) -> float:
    """Share of the orders of `points` values that have a rank correlation of +1 or -1."""
    return min(1.0, 2 / math.factorial(points))


def analyse(runs: Sequence[Run]) -> StudyResult:
    found = items(runs)
    ranks = rank_correlations(found)
    told = ", ".join(f"{name} {signed(value, 2)}" for name, value in ranks.items())
    if found:
        by_cosine = max(found, key=lambda i: -2.0 if i.cosine is None else i.cosine).group.label
        by_accuracy = max(found, key=lambda i: i.accuracy).group.label
        same = "also" if by_cosine == by_accuracy else f"while {by_accuracy} has"
        behind = means_over(len(i.group.seeds) for i in found)
        points = sum(i.cosine is not None for i in found)
        chance = (
            f" With {points} points, a rank correlation of +1 or -1 arises by chance with p = "
            f"{num(chance_of_perfect_order(points), 2)}."
        )
        conclusion = (
            f"rank correlation of the deep cosine over {points} methods ({behind}) with {told}; {by_cosine} has the highest "
            f"cosine, {same} the highest accuracy.{chance if any(v is not None for v in ranks.values()) else ''}"
        )
    else:
        conclusion = "no finished runs."
    fig = {"kind": "points", "points": figure(found), "rank_correlation": ranks}
    return StudyResult("functional", QUESTION, HEADER, [row(i) for i in found], fig, conclusion, CONVENTION)
