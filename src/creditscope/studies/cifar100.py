"""CIFAR-100: the audit on a task with a hundred classes (smoke: the embedded task with half the width stands in)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from creditscope.studies.audit import audit, failing, partly
from creditscope.studies.compared import compared
from creditscope.studies.grid import BP, CLIP, DFA, DFA_NONE, FA, make, seeds_of, with_nulls
from creditscope.studies.published import CIFAR100_ACCURACY
from creditscope.studies.result import Run, StudyResult, mean, names
from creditscope.training.spec import RunSpec

QUESTION = "do the failures carry over to a harder task?"


def specs(preset: str) -> list[RunSpec]:
    change: dict[str, Any] = {"width": 32} if preset == "smoke" else {"dataset": "cifar100"}
    methods = (BP, FA, DFA, DFA_NONE, DFA | CLIP)
    return with_nulls(make(preset, m, seed, **change) for seed in seeds_of(preset) for m in methods)


def analyse(runs: Sequence[Run]) -> StudyResult:
    groups = audit(runs)
    bad = failing(groups)
    best = max(groups, key=lambda g: mean(g.accuracies), default=None)
    where = groups[0].spec.dataset if groups else "no data"
    conclusion = (
        f"{len(bad)} of {len(groups)} methods fail on {where} ({names(g.label for g in bad)}{partly(groups)}); "
        f"highest accuracy: {best.label if best else 'none'}."
    )
    return compared(
        "cifar100",
        QUESTION,
        groups,
        "dataset",
        lambda g: str(g.spec.dataset),
        lambda g: CIFAR100_ACCURACY.get(g.spec.method) if g.spec.dataset == "cifar100" else None,
        conclusion,
    )
