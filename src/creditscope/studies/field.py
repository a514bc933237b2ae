"""Field: every rule at its documented defaults on the same network, each with the learning rate that the embedded data chose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from creditscope.runs.groups import Group, Outcome
from creditscope.studies.grid import BP, CB, DFA, DFA_NONE, EP, FA, FA_RMS, SB, make, seeds_of, with_nulls
from creditscope.studies.study import METHOD, Axis, Study, labels, method_and_norm
from creditscope.tables import Statement, Table, mean, state
from creditscope.training.spec import RunSpec

RELATIVES: tuple[dict[str, Any], ...] = tuple(
    {"method": name, "credit_norm": "none"} for name in ("sdfa", "sparse-dfa", "drtp")
)
"""Of DFA: without a norm, as their papers have them."""
OTHERS: tuple[dict[str, Any], ...] = tuple(
    {"method": name}
    for name in (
        "fa-weights", "usf", "brsf", "frsf", "kp", "wm", "dfa-sublayers", "greedy", "dtp", "pepita", "ff", "fgrad", "nodepert",
        "pc", "epc",
    )
)  # fmt: skip
RULES = (BP, FA, FA_RMS, DFA_NONE, DFA, *RELATIVES, *OTHERS, EP, SB, CB, {"method": "random", "credit_norm": "rms"})
COSTLY = ("pc",)
"""More than ten times the cost of BP per step (`make bench`): one seed. (EP costs seven times BP; the audit has its seeds.)"""
CONTROLS = ("bp", "random")
"""What the rules are held against."""
FACTORS: dict[str, float] = {"pepita": 0.25, "sb(rms)": 0.25, "random(rms)": 0.25}
"""Learning rate over that of the recipe, for each `method(norm)` for which it is not 1: ¼ or 4, where it beats 1 in the study
`learning-rates` by more than the error of the test samples (95 %)."""
RATE = Axis("lr", "peak learning rate", lambda s: s.lr)


def specs(preset: str) -> list[RunSpec]:
    seeds = seeds_of(preset)
    grid = []
    for method in RULES:
        base = make(preset, method, seeds[0], intervention=True)
        rate = (base.lr or 0.0) * FACTORS.get(method_and_norm(base), 1.0)
        one = preset == "smoke" or method["method"] in COSTLY
        grid += [make(preset, method, seed, intervention=True, lr=rate) for seed in (seeds[:1] if one else seeds)]
    return with_nulls(grid)


def reaches(group: Group, exact: Group) -> bool:
    """Is its mean accuracy at least that of the lowest seed of backpropagation?"""
    return mean(group.accuracies) >= min(exact.accuracies)


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    exact = next((g for g in groups if g.spec.method == "bp"), None)
    rules = [g for g in groups if g.spec.method not in CONTROLS]
    passed = [g for g in rules if g.outcome is Outcome.PASS]
    failed = [g for g in rules if g.outcome is Outcome.FAIL]
    yield state("field", groups=len(rules), passed=labels(passed), failed=labels(failed))
    if exact is not None:
        reached = [g for g in rules if reaches(g, exact)]
        yield state("field against bp", reached=labels(reached), others=len(rules))


STUDY = Study(
    "field",
    "which rules train the blocks of one residual network, and at what scale?",
    specs,
    axes=(METHOD, RATE),
    quantities=(
        "seeds",
        "accuracy",
        "margin_matched",
        "margin_bp",
        "profile_margin",
        "growth",
        "reference_norm_128",
        "gamma",
        "deep_cosine",
        "certificate",
        "finding",
    ),
    order=lambda g: (g.spec.method != "bp", -sum(g.accuracies) / max(1, len(g.accuracies))),
    conclude=conclude,
)
