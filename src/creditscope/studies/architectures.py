"""The same audit on other architectures: is the failure one of residual streams with a terminal norm?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from creditscope.studies.audit import Group, audit, failing, partly
from creditscope.studies.compared import compared
from creditscope.studies.grid import BP, DFA, FA, make, seeds_of, with_nulls
from creditscope.studies.published import ARCHITECTURE_ACCURACY, Published, audit_accuracy
from creditscope.studies.result import Run, StudyResult, names
from creditscope.training.spec import RunSpec

QUESTION = "which architectures show the failures?"
RESMLP: tuple[dict[str, Any], ...] = ({}, {"terminal_norm": False})
VIT: dict[str, Any] = {"arch": "vit-mini", "intervention": True}
CNN: dict[str, Any] = {"arch": "small-cnn", "intervention": True}
STUDENT: dict[str, Any] = {"dataset": "student", "arch": "student", "intervention": True, "augment": False}
FEW: dict[str, Any] = {"epochs": 5, "schedule_epochs": 30}
SHAPES: dict[str, tuple[dict[str, Any], ...]] = {
    "smoke": RESMLP,
    "quick": (*RESMLP, VIT, CNN, STUDENT),
    "paper": (*RESMLP, VIT, CNN, STUDENT),
    "reduced": (*RESMLP, {**VIT, **FEW}, {**CNN, **FEW}, STUDENT),
}
"""`reduced`: five epochs (of a schedule of 30) and the first seed alone for the two costly architectures."""


def specs(preset: str) -> list[RunSpec]:
    return with_nulls(
        make(preset, method, seed, **shape)
        for seed in seeds_of(preset)
        for shape in SHAPES[preset]
        for method in (BP, FA, DFA)
        if seed == seeds_of(preset)[0] or not FEW.items() <= shape.items()
    )


def name_of(group: Group) -> str:
    s = group.spec
    return f"{s.arch} without LayerNorm" if s.arch == "resmlp" and not s.terminal_norm else str(s.arch)


def published(group: Group) -> Published | None:
    if group.spec.dataset == "quadratic":
        return None
    found = ARCHITECTURE_ACCURACY.get((name_of(group), group.spec.method))
    if found and group.spec.epochs != 30 and name_of(group) in ("vit-mini", "small-cnn"):
        return replace(found, note=f"after training to the end, ours {group.spec.epochs} epochs")
    return found or (audit_accuracy(group.spec) if name_of(group) == "resmlp" else None)


def analyse(runs: Sequence[Run]) -> StudyResult:
    groups = audit(runs)
    failed = failing(groups)
    told = [
        f"{name}: {names(g.label for g in failed if name_of(g) == name)}"
        for name in dict.fromkeys(map(name_of, groups))
    ]
    conclusion = (
        f"{len(failed)} of {len(groups)} networks fail; failing by architecture: {'; '.join(told)}{partly(groups)}."
    )
    return compared("architectures", QUESTION, groups, "architecture", name_of, published, conclusion)
