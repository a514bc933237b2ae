"""Ranking under a matched penalty: does the cosine order the methods as the functional metrics do?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scipy import stats

from creditscope.render.numbers import num, signed
from creditscope.studies.grid import CB, DFA, FA, SB, make, seeds_of, with_nulls
from creditscope.studies.interventions import CONVENTION, HEADER, Item, figure, items, row
from creditscope.studies.published import DEEP_COSINE, LOSS_CHANGE, NUDGING, PENALTY_ACCURACY
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


def rank_correlations(found: Sequence[Item], exact_layers: bool = False) -> dict[str, float | None]:
    """Spearman's correlation over methods between the deep cosine and each metric; larger is better in all of them.

    `exact_layers`: with the layers whose credit is the gradient itself, as the published cosines are.
    """
    cosines = [i.cosine_of_all if exact_layers else i.cosine for i in found]
    nudges = [i.nudge_of_all if exact_layers else i.nudge for i in found]
    return {
        "accuracy": rank_correlation(cosines, [i.accuracy for i in found]),
        "ρ": rank_correlation(cosines, [i.rho_of_all if exact_layers else i.rho for i in found]),
        "nudging": rank_correlation(cosines, [None if n is None else -n for n in nudges]),
        "loss decrease": rank_correlation(cosines, [-i.loss for i in found]),
    }


def rank_correlation(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    both = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    varied = len(both) > 2 and all(len({p[k] for p in both}) > 1 for k in (0, 1))
    value = float(stats.spearmanr([x for x, _ in both], [y for _, y in both]).statistic) if varied else math.nan
    return value if math.isfinite(value) else None


def published_ranks() -> dict[str, float | None]:
    """The same of the published values."""
    methods = ("sb", "fa", "cb", "dfa")
    cosines = [DEEP_COSINE[m, PENALTY].value for m in methods]
    return {
        "accuracy": rank_correlation(cosines, [PENALTY_ACCURACY[m, PENALTY].value for m in methods]),
        "nudging": rank_correlation(cosines, [-NUDGING[m] for m in methods]),
        "loss decrease": rank_correlation(cosines, [-LOSS_CHANGE[m] for m in methods]),
    }


def chance_of_perfect_order(points: int) -> float:
    """Share of the orders of `points` values that have a rank correlation of +1 or -1."""
    return min(1.0, 2 / math.factorial(points))


def _told(ranks: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {signed(value, 2)}" for name, value in ranks.items())


def analyse(runs: Sequence[Run]) -> StudyResult:
    found = items(runs)
    ranks = rank_correlations(found)
    told = _told(ranks)
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
            f"rank correlation of the deep cosine over {points} methods ({', '.join(i.group.label for i in found)}; "
            f"{behind}) with {told}; {by_cosine} has the highest "
            f"cosine, {same} the highest accuracy.{chance if any(v is not None for v in ranks.values()) else ''}"
        )
        if points == 4 and {i.group.spec.dataset for i in found} == {"cifar10"}:
            conclusion += (
                f" With FA's exact layer, as in the published values: {_told(rank_correlations(found, exact_layers=True))}; "
                f"published values: {_told(published_ranks())}."
            )
    else:
        conclusion = "no finished runs."
    fig = {"kind": "points", "points": figure(found), "rank_correlation": ranks}
    return StudyResult("functional", QUESTION, HEADER, [row(i) for i in found], fig, conclusion, CONVENTION)
