"""Capacity, 2×2: what the penalty takes from BP is capacity; what it gives to DFA is not."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.render.numbers import signed
from creditscope.studies.audit import audit, margin_pp, margin_text
from creditscope.studies.grid import BP, DFA, make, seeds_of, with_nulls
from creditscope.studies.published import audit_accuracy
from creditscope.studies.result import Run, StudyResult, beside, mean, means_over, pm
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
    acc = {(g.spec.method, bool(g.spec.penalty)): mean(g.accuracies) for g in groups}
    rows = [
        [g.label, pm(g.accuracies), *beside(audit_accuracy(g.spec), mean(g.accuracies)), margin_text(g, "matched")]
        for g in groups
    ]
    if len(acc) == 4:
        bp, dfa = (100 * (acc[m, True] - acc[m, False]) for m in ("bp", "dfa"))
        gap = [100 * (acc["bp", p] - acc["dfa", p]) for p in (False, True)]
        conclusion = (
            f"λ={PENALTY:g} changes BP by {signed(bp, 1)} pp and DFA by {signed(dfa, 1)} pp; the gap between them goes from "
            f"{signed(gap[0], 1)} to {signed(gap[1], 1)} pp ({means_over(len(g.seeds) for g in groups)})."
        )
    else:
        conclusion = f"{len(acc)} of the 4 cells are there; the comparison needs all."
    figure = {
        "kind": "bars",
        "bars": [{"label": g.label, "accuracy": list(g.accuracies), "margin_pp": margin_pp(g)} for g in groups],
    }
    header = ["run", "accuracy", "published", "difference", "margin to matched null (pp)"]
    convention = "mean ± sample standard deviation over seeds; published: 30 epochs (arXiv 2606.21126)"
    return StudyResult("capacity", QUESTION, header, rows, figure, conclusion, convention)
