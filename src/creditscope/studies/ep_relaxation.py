"""EP relaxation: a fully relaxed EP is backpropagation. Where, along steps and step size, does it stop being it?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from creditscope.render.numbers import num, signed
from creditscope.studies.audit import Group, audit, audit_figure, convention
from creditscope.studies.grid import BP, EP, make, seeds_of, unique
from creditscope.studies.result import Run, StudyResult, known, mean, pm
from creditscope.training.spec import RunSpec

QUESTION = "how far must EP relax to be backpropagation?"
STEPS = {"smoke": (2, 12), "quick": (4, 20, 50), "reduced": (4, 20, 50), "paper": (4, 12, 20, 50)}
SIZES = {"smoke": (0.1, 0.5), "quick": (0.01, 0.1, 0.5), "reduced": (0.01, 0.1, 0.5), "paper": (0.01, 0.05, 0.1, 0.5)}
SHORT: dict[str, Any] = {"epochs": 5, "schedule_epochs": 30}
"""What `reduced` trains."""
SAME = 0.99
"""Γ from which the credit counts as the gradient."""


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


def residual(group: Group) -> float | None:
    """‖dE/dh‖ of the states where the relaxation ended, over that at its start: mean over seeds, final epoch."""
    found = known((b.trajectory[-1].get("rule") or {}).get("residual") for b in group.bundles)
    return mean(found) if found else None


def gamma(group: Group) -> float | None:
    found = group.values("gamma")
    return mean(found) if found else None


def analyse(runs: Sequence[Run]) -> StudyResult:
    groups = audit(runs)
    bp = next((g for g in groups if g.spec.method == "bp"), None)
    relaxed = [g for g in groups if g.spec.method == "ep"]
    relaxed.sort(key=lambda g: (g.spec.options["step_size"], g.spec.options["steps"]))
    rows = []
    for g in [*relaxed, *([bp] if bp else [])]:
        o = g.spec.options
        behind = signed(mean(g.accuracies) - mean(bp.accuracies)) if bp else "–"
        way = [str(o.get("steps", "–")), num(float(o["step_size"]), 2) if o else "–"]
        left = residual(g)
        rows.append(
            [
                g.spec.method,
                *way,
                str(len(g.seeds)),
                pm(g.accuracies),
                behind,
                pm(g.values("gamma"), 3),
                "–" if left is None else num(left, 2),
            ]
        )
    header = ["method", "steps", "step size", "n", "accuracy", "minus BP", "Γ", "distance to the fixed point"]
    measured = [(residual(g), gamma(g)) for g in relaxed]
    pairs = [(r, c) for r, c in measured if r is not None and c is not None]
    same, other = [p for p in pairs if p[1] >= SAME], [p for p in pairs if p[1] < SAME]
    parts = [f"Γ ≥ {SAME:g} in {len(same)} of {len(pairs)} relaxations"]
    parts += [f"all of them within {num(max(r for r, _ in same), 2)} of the fixed point"] if same else []
    if other:
        nearest, farthest = min(other), max(other)
        parts.append(
            f"the nearest that is another credit ends at {num(nearest[0], 2)} (Γ {num(nearest[1], 2)}), the farthest at "
            f"{num(farthest[0], 2)} (Γ {num(farthest[1], 2)})"
        )
    conclusion = f"{'; '.join(parts)}." if pairs else "no finished runs of EP."
    told = (
        "plain gradient descent on the states, a step that raises the energy halved; credit read as the prediction error; "
        "distance: ‖dE/dh‖ where the relaxation ended over that at its start, mean over samples of the last batch; "
    )
    return StudyResult(
        "ep-relaxation", QUESTION, header, rows, audit_figure(groups), conclusion, told + convention(groups)
    )
