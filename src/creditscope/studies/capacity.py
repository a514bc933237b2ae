"""Capacity, 2×2: what the penalty takes from BP is capacity; what it gives to DFA is not."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.render.numbers import signed
from creditscope.studies.audit import audit, margin_pp, margin_text
from creditscope.studies.grid import BP, DFA, make, seeds_of, with_nulls
from creditscope.studies.published import audit_accuracy
from creditscope.studies.result import Run, StudyResult, beside, mean, named, over, pm, shared_seeds
from creditscope.training.spec import RunSpec

QUESTION = "is the gain of DFA under the penalty one of capacity? (BP and DFA, with and without)"
PENALTY = 1e-2


def specs(preset: str) -> list[RunSpec]:
    return with_nulls(
        make(preset, method, seed, penalty=penalty, intervention=True)
        for seed in seeds_of(preset)
        for method in (BP, DFA)
        for penalty in (0.0, PENALTY)
    )


def analyse(runs: Sequence[Run]) -> StudyResult:
    groups = audit(runs)
    cells = {(g.spec.method, bool(g.spec.penalty)): g for g in groups}
    shared = shared_seeds({key: g.seeds for key, g in cells.items()}) if cells else []
    rows = [
        [
            g.label,
            str(len(g.seeds)),
            pm(g.accuracies),
            *beside(audit_accuracy(g.spec), mean(g.accuracies)),
            margin_text(g, "matched"),
        ]
        for g in groups
    ]
    if len(cells) == 4 and shared:
        acc = {key: over(shared, g.seeds, g.accuracies) for key, g in cells.items()}
        bp, dfa = (100 * (acc[m, True] - acc[m, False]) for m in ("bp", "dfa"))
        gap = [100 * (acc["bp", p] - acc["dfa", p]) for p in (False, True)]
        conclusion = (
            f"λ={PENALTY:g} changes BP by {signed(bp, 1)} pp and {cells['dfa', False].label} by {signed(dfa, 1)} pp; "
            "the gap between them goes from "
            f"{signed(gap[0], 1)} to {signed(gap[1], 1)} pp (over {named(shared)})."
        )
    else:
        conclusion = f"{len(cells)} of the 4 cells are there; the comparison needs all, with a seed in common."
    figure = {
        "kind": "bars",
        "bars": [{"label": g.label, "accuracy": list(g.accuracies), "margin_pp": margin_pp(g)} for g in groups],
    }
    header = ["run", "n", "accuracy", "published", "difference", "margin to matched null (pp)"]
    convention = "mean ± sample standard deviation over seeds; published: 30 epochs (arXiv 2606.21126)"
    return StudyResult("capacity", QUESTION, header, rows, figure, conclusion, convention)
