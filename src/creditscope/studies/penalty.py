"""Penalty λ: does holding the scale bring back a measurable credit, and do trained blocks then help?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from creditscope.quantities import Quantity, get_quantity
from creditscope.runs.groups import AuditRow, Group
from creditscope.studies.grid import BP, DFA, DFA_NONE, FA, FA_RMS, make, seeds_of, with_nulls
from creditscope.studies.study import INTERVENTIONS, Study, mean_over, method_and_norm, of_seeds, shared_seeds
from creditscope.tables import Cell, Plot, Statement, Table, mean, state
from creditscope.training.spec import RunSpec

ALL = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
LAMBDAS = {"smoke": (0.0, 1e-2), "quick": (0.0, 1e-2), "paper": ALL, "reduced": ALL}
FIRST_SEED_ONLY = {"reduced": (1e-3, 1e-1)}
"""Penalties that a preset runs with its first seed alone."""
QUANTITIES = (
    *("seeds", "accuracy", "last_h", "reference_norm_128", "deep_cosine", "deep_cosine_all_layers"),
    *("rho", "nudging", "loss_change", "margin_matched"),
)
CONVENTION = state("interventions")
"""What the intervention studies have in common: accuracy, scale and level-full facts of each method and penalty."""


def specs(preset: str) -> list[RunSpec]:
    return with_nulls(
        make(preset, method, seed, penalty=penalty, intervention=True)
        for seed in seeds_of(preset)
        for method in (BP, FA, FA_RMS, DFA_NONE, DFA)
        for penalty in LAMBDAS[preset]
        if seed == seeds_of(preset)[0] or penalty not in FIRST_SEED_ONLY.get(preset, ())
    )


def at_point(needed: float) -> Quantity:
    """D3 as a point comparison at a threshold in percentage points."""

    def read(row: AuditRow) -> Cell:
        margin = get_quantity("margin_matched").over(row).value
        return Cell(note="no matched null") if margin is None else Cell("fail" if margin < needed else "pass")

    about = f"the margin as a point comparison with a threshold of {needed:g} pp"
    return Quantity(f"point_{needed:g}", "", f"point at {needed:g} pp", "", about, of_group=read)


POINTS = (at_point(1.0), at_point(2.0))
"""The margin as a point, at two thresholds of D3 in percentage points."""


def gain_pp(group: Group, base: Group) -> float | None:
    """Accuracy minus that without penalty, in percentage points, over the seeds that both have."""
    seeds = shared_seeds(group.seeds, base.seeds)
    pairs = zip(of_seeds(group, "accuracy", seeds), of_seeds(base, "accuracy", seeds), strict=True)
    return mean([100 * (a - b) for a, b in pairs]) if seeds else None


def largest_gains(groups: Sequence[Group]) -> Iterator[Statement]:
    """By method: the penalty with the largest gain, of those with the most seeds (a lucky seed is not held against a mean)."""
    for method in dict.fromkeys(method_and_norm(g.spec) for g in groups):
        mine = [g for g in groups if method_and_norm(g.spec) == method]
        base = next((g for g in mine if g.spec.penalty == 0), None)
        if base is None:
            continue
        seeds = {g.label: shared_seeds(g.seeds, base.seeds) for g in mine if g.spec.penalty}
        most = max(map(len, seeds.values()), default=0)
        rest = [
            (gain, g) for g in mine if len(seeds.get(g.label, ())) == most and (gain := gain_pp(g, base)) is not None
        ]
        if not rest or not most:
            continue
        gain, best = max(rest, key=lambda pair: pair[0])
        before, after = (mean_over(g, "last_h", seeds[best.label]) for g in (base, best))
        penalty = best.spec.penalty
        yield state(
            "gain under a penalty", method=method, gain=gain, penalty=penalty, n=most, before=before, after=after
        )


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    fragile = sum(len({row.value(q.name) for q in POINTS}) > 1 for row in table.rows)
    yield state("penalty", gains=tuple(largest_gains(groups)), fragile=fragile, rows=len(table.rows))


STUDY = Study(
    "penalty",
    "what does the penalty λ‖f_l(h_l)‖² do to accuracy, scale and credit?",
    specs,
    axes=INTERVENTIONS,
    quantities=(*QUANTITIES, *POINTS),
    conclude=conclude,
    convention=CONVENTION,
    plots=tuple(Plot("penalty", y, "method") for y in ("accuracy", "last_h", "deep_cosine", "rho")),
)
