"""EP relaxation: a fully relaxed EP is backpropagation. Where, along steps and step size, does it stop being it?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from creditscope.quantities import Form, Quantity
from creditscope.runs.groups import Group, audit
from creditscope.runs.record import Record
from creditscope.studies.grid import BP, EP, make, seeds_of, unique
from creditscope.studies.study import RULE, Axis, Study
from creditscope.tables import Cell, Plot, Row, Statement, Table, state
from creditscope.training.spec import RunSpec

STEPS = {"smoke": (2, 12), "quick": (4, 20, 50), "reduced": (4, 20, 50), "paper": (4, 12, 20, 50)}
SIZES = {"smoke": (0.1, 0.5), "quick": (0.01, 0.1, 0.5), "reduced": (0.01, 0.1, 0.5), "paper": (0.01, 0.05, 0.1, 0.5)}
SHORT: dict[str, Any] = {"epochs": 5, "schedule_epochs": 30}
"""What `reduced` trains."""
SAME = 0.99
"""Γ from which the credit counts as the gradient."""
BEHIND = Quantity(
    "minus_bp", "Δ acc", "minus BP", "", "accuracy minus that of BP with the same recipe", form=Form.SIGNED
)


def specs(preset: str) -> list[RunSpec]:
    """Plain gradient descent on the states, read as the error, which is the gradient at the fixed point; and BP."""
    seeds = seeds_of(preset)[:1] if preset == "reduced" else seeds_of(preset)
    changes: dict[str, Any] = SHORT if preset == "reduced" else {}
    fixed = {"momentum": False, "reading": "error", "tolerance": 0.0}
    relaxed = (
        {**EP, "options": {**fixed, "steps": steps, "step_size": size}}
        for steps in STEPS[preset]
        for size in SIZES[preset]
    )
    methods = [BP, *relaxed]
    return unique(make(preset, m, seed, intervention=True, **changes) for seed in seeds for m in methods)


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    relaxed = [(r.value("residual"), r.value("gamma")) for r in table.rows if r.value("method") == "ep"]
    pairs = [(r, c) for r, c in relaxed if r is not None and c is not None]
    if not pairs:
        yield state("no runs")
        return
    same, other = [p for p in pairs if p[1] >= SAME], [p for p in pairs if p[1] < SAME]
    yield state("relaxed", limit=SAME, same=len(same), pairs=len(pairs))
    if same:
        yield state("relaxed within", distance=max(r for r, _ in same))
    if other:
        yield state("relaxed elsewhere", nearest=min(other), farthest=max(other))


def build(study: Study, records: Sequence[Record]) -> Table:
    groups = audit(records)
    ways = sorted(
        (g for g in groups if g.spec.method == "ep"),
        key=lambda g: (g.spec.options["step_size"], g.spec.options["steps"]),
    )
    made = study.grouped([*ways, *(g for g in groups if g.spec.method == "bp")])
    bp = next((row.value("accuracy") for row in made.rows if row.value("method") == "bp"), None)

    def behind(row: Row) -> Row:
        value = Cell(note="BP was not run") if bp is None else Cell(row.value("accuracy") - bp)
        return replace(row, cells={**row.cells, BEHIND.name: value})

    k = 1 + [c.name for c in made.columns].index("accuracy")
    columns = (*made.columns[:k], BEHIND.column(), *made.columns[k:])
    return replace(made, columns=columns, rows=tuple(map(behind, made.rows)))


STUDY = Study(
    "ep-relaxation",
    "how far must EP relax to equal backpropagation?",
    specs,
    axes=(
        RULE,
        Axis("steps", "gradients of the energy that one relaxation takes", lambda s: s.options.get("steps")),
        Axis(
            "step_size",
            "of the gradient descent on the states",
            lambda s: s.options.get("step_size"),
            title="step size",
        ),
    ),
    quantities=("seeds", "accuracy", "gamma", "residual"),
    conclude=conclude,
    convention=state("relaxation convention"),
    build=build,
    plots=(Plot("residual", "gamma", "method"), Plot("residual", "accuracy", "method")),
)
