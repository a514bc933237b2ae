"""The same audit on other architectures: is the failure one of residual streams with a terminal norm?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from creditscope.studies.audit import Group, audit, failing, partly
from creditscope.studies.compared import compared
from creditscope.studies.grid import BP, CLIP, DFA, FA, make, seeds_of, with_nulls
from creditscope.studies.published import ARCHITECTURE_ACCURACY, UNSTATED, Published, audit_accuracy
from creditscope.studies.result import Run, StudyResult, names
from creditscope.training.spec import RunSpec, bare

DECIDED = ("pass", "fail", "inconclusive")
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
        for method in (BP, FA, DFA, *((DFA | CLIP,) if preset == "paper" and "arch" in shape else ()))
        if seed == seeds_of(preset)[0] or not FEW.items() <= shape.items()
    )


def name_of(group: Group) -> str:
    return network_name(group.spec)


def network_name(s: RunSpec) -> str:
    return f"{s.arch}{bare(s.arch, s.terminal_norm)}"


def published(group: Group) -> Published | None:
    if group.spec.dataset == "quadratic":
        return None
    found = ARCHITECTURE_ACCURACY.get((name_of(group), group.spec.method))
    if found and group.spec.epochs != 30 and name_of(group) in ("vit-mini", "small-cnn"):
        length = "30 epochs" if name_of(group) == "vit-mini" else UNSTATED
        return replace(found, note=f"{length}, ours {group.spec.epochs}")
    return found or (audit_accuracy(group.spec) if name_of(group) == "resmlp" else None)


def _all(groups: Sequence[Group], name: str, holds: Callable[[Group], bool]) -> bool:
    return all(holds(g) for g in groups if name_of(g) == name)


def analyse(runs: Sequence[Run]) -> StudyResult:
    groups = audit(runs)
    failed = failing(groups)
    told = [
        f"{name}: {names(g.label for g in failed if name_of(g) == name)}"
        for name in dict.fromkeys(map(name_of, groups))
    ]
    single = names(
        name for name in dict.fromkeys(map(name_of, groups)) if _all(groups, name, lambda g: len(g.seeds) == 1)
    )
    unmeasured = names(
        name
        for name in dict.fromkeys(map(name_of, groups))
        if _all(groups, name, lambda g: all(r.checks["D3"].answer not in DECIDED for r in g.reports))
    )
    conclusion = (
        f"{len(failed)} of {len(groups)} pairs of architecture and method fail in every seed; failing by architecture: "
        f"{'; '.join(told)}{partly(groups)}; with one seed: {single}; where D3 is not measured or not measurable: {unmeasured}."
    )
    return compared("architectures", QUESTION, groups, "architecture", name_of, published, conclusion)
