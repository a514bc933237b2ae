"""Ranking under a matched penalty: does the cosine order the methods as the functional metrics do?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from scipy import stats

from creditscope.quantities import get_quantity
from creditscope.runs.groups import Group
from creditscope.studies.grid import CB, DFA, FA, SB, grid, with_nulls
from creditscope.studies.penalty import CONVENTION, QUANTITIES
from creditscope.studies.study import INTERVENTIONS, Study
from creditscope.tables import Plot, Statement, Table, state
from creditscope.training.spec import RunSpec

PENALTY = 1e-2
METRICS: Mapping[str, int] = {"accuracy": 1, "rho": 1, "nudging": -1, "loss_change": -1}
"""What the cosine is ranked against; -1: the smaller, the better."""


def specs(preset: str) -> list[RunSpec]:
    return with_nulls(grid(preset, (SB, FA, CB, DFA), penalty=PENALTY, intervention=True))


def rank_correlation(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    """Spearman's; None below three points, or where one side does not vary."""
    both = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    varied = len(both) > 2 and all(len({p[k] for p in both}) > 1 for k in (0, 1))
    value = float(stats.spearmanr([x for x, _ in both], [y for _, y in both]).statistic) if varied else math.nan
    return value if math.isfinite(value) else None


def rank_correlations(table: Table, of: str = "deep_cosine") -> dict[str, float | None]:
    """Spearman's correlation over methods between the deep cosine and each metric; larger is better in all of them."""
    cosines = table.values(of)
    return {
        name: rank_correlation(cosines, [None if v is None else sign * v for v in table.values(name)])
        for name, sign in METRICS.items()
    }


def chance_of_perfect_order(points: int) -> float:
    """Share of the orders of `points` values that have a rank correlation of +1 or -1."""
    return min(1.0, 2 / math.factorial(points))


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    ranks = rank_correlations(table)
    ranked = [row for row in table.rows if row["deep_cosine"].known]
    by_cosine = max(ranked, key=lambda r: r.value("deep_cosine")).value("run") if ranked else None
    by_accuracy = max(table.rows, key=lambda r: r.value("accuracy")).value("run")
    chance = state("chance of order", points=len(ranked), p=chance_of_perfect_order(len(ranked)))
    yield state(
        "functional",
        points=len(ranked),
        labels=table.values("run"),
        ranks=tuple(state("rank", quantity=get_quantity(name).title, value=value) for name, value in ranks.items()),
        by_cosine=by_cosine,
        winner=state("same winner") if by_cosine == by_accuracy else state("other winner", label=by_accuracy),
        seeds=sorted({len(g.seeds) for g in groups}),
        chance=(chance,) if any(v is not None for v in ranks.values()) else (),
    )


STUDY = Study(
    "functional",
    "under the same penalty, does the cosine rank the methods as accuracy, ρ, nudging and the loss do?",
    specs,
    axes=INTERVENTIONS,
    quantities=QUANTITIES,
    conclude=conclude,
    convention=CONVENTION,
    plots=tuple(Plot("deep_cosine", y, "run") for y in METRICS),
)
