"""The same audit on other architectures: is the failure one of residual streams with a terminal norm?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from creditscope.runs.groups import Group
from creditscope.studies.grid import BP, CLIP, DFA, FA, make, seeds_of, with_nulls
from creditscope.studies.study import METHOD, Axis, Study, failing, labels, partly
from creditscope.tables import Plot, Statement, Table, grouped_by, state
from creditscope.training.spec import RunSpec, norm_remark

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
DECIDED = ("pass", "fail", "inconclusive")


def specs(preset: str) -> list[RunSpec]:
    return with_nulls(
        make(preset, method, seed, **shape)
        for seed in seeds_of(preset)
        for shape in SHAPES[preset]
        for method in (BP, FA, DFA, *((DFA | CLIP,) if preset == "paper" and "arch" in shape else ()))
        if seed == seeds_of(preset)[0] or not FEW.items() <= shape.items()
    )


def architecture(spec: RunSpec) -> str:
    return f"{spec.arch}{norm_remark(spec.arch, spec.terminal_norm)}"


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    by = grouped_by(groups, lambda g: architecture(g.spec))
    open_ = [
        name for name, mine in by.items() if all(r.checks["D3"].answer not in DECIDED for g in mine for r in g.reports)
    ]
    yield state(
        "architectures",
        failed=len(failing(groups)),
        groups=len(groups),
        by=tuple(state("failing at", name=name, failed=labels(failing(mine))) for name, mine in by.items()),
        partly=partly(groups),
        single=[name for name, mine in by.items() if all(len(g.seeds) == 1 for g in mine)],
        open=open_,
    )


STUDY = Study(
    "architectures",
    "which architectures show the failures?",
    specs,
    axes=(Axis("architecture", "network", architecture), METHOD),
    conclude=conclude,
    plots=tuple(
        Plot("architecture", y, "method")
        for y in ("accuracy", "deep_cosine", "margin_matched", "growth", "reference_norm_128")
    ),
)
