"""Learning rates: three for each rule on the embedded data set, all shown; `field` takes the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from creditscope.runs.groups import Group
from creditscope.studies.field import RATE, RULES
from creditscope.studies.grid import make
from creditscope.studies.study import METHOD, Study
from creditscope.tables import Plot, Statement, Table, state
from creditscope.training.spec import RunSpec, make_spec

FACTORS = (1.0, 0.25, 4.0)
"""Of the recipe's learning rate."""
SEED, EPOCHS = 42, 5


def specs(preset: str) -> list[RunSpec]:
    """The embedded data set in every preset: `smoke` by its own short recipe."""
    grid = []
    for method in RULES:
        if preset == "smoke":
            base = make(preset, method, SEED)
        else:
            base = make_spec({"dataset": "quadratic", "epochs": EPOCHS, "seed": SEED, **method})
        grid += [base.changed(lr=(base.lr or 0.0) * factor) for factor in FACTORS]
    return grid


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    best: dict[float, list[str]] = {}
    for label in dict.fromkeys(g.label for g in groups):
        rate = max((g for g in groups if g.label == label), key=lambda g: g.accuracies[0]).spec.lr or 0.0
        best.setdefault(rate, []).append(label)
    yield state("best rates", best=tuple(state("best rate", lr=lr, methods=best[lr]) for lr in sorted(best)))


STUDY = Study(
    "learning-rates",
    "which of three learning rates gives a rule the highest accuracy on the embedded data set?",
    specs,
    axes=(METHOD, RATE),
    quantities=("accuracy", "growth", "reference_norm_128", "gamma"),
    order=lambda g: (g.label, g.spec.lr or 0.0),
    conclude=conclude,
    plots=(Plot("lr", "accuracy", "method"),),
)
