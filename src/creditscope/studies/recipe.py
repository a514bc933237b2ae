"""Recipe: the settings that change the course of a rule and are often not stated (norm, clipping, site, condition)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from creditscope.runs.groups import Group, place
from creditscope.studies.grid import (
    CB,
    CLIP,
    DFA,
    DFA_NONE,
    EP,
    EP_READINGS,
    ERROR,
    FA,
    FA_RMS,
    OUTPUT,
    SB,
    grid,
    unique,
    with_nulls,
)
from creditscope.studies.study import RULE, Axis, Study, failing, labels, partly
from creditscope.tables import Plot, Statement, Table, state
from creditscope.training.spec import RunSpec

RUN: tuple[dict[str, Any], ...] = (
    *(DFA, DFA_NONE, DFA | CLIP),
    *(FA, FA_RMS, FA | OUTPUT, FA_RMS | CLIP),
    *(SB, SB | ERROR, CB, CB | ERROR),
    *(EP, *EP_READINGS),
)
MORE: tuple[dict[str, Any], ...] = (
    *(DFA_NONE | CLIP, DFA | {"grad_clip": 1.0, "clip_over": "global"}, DFA | OUTPUT),
    *(FA_RMS | OUTPUT, FA | CLIP, CB | {"options": {"condition": "none"}}),
)
"""What the preset `paper` adds."""
RECIPES = {"smoke": (DFA, DFA_NONE, DFA | CLIP, FA | OUTPUT), "quick": RUN, "reduced": RUN, "paper": (*RUN, *MORE)}
LAMBDAS = (0.0, 1e-4, 1e-2)
"""Of DFA with clipping after 30 epochs."""


def specs(preset: str) -> list[RunSpec]:
    runs = grid(preset, RECIPES[preset])
    if preset in ("paper", "reduced"):
        runs += grid(preset, [DFA | CLIP | {"penalty": p} for p in LAMBDAS], intervention=True)
    return unique(with_nulls(runs))


def settings(spec: RunSpec) -> str:
    """Norm, site, clipping and options of a run: what the label says beside the method."""
    return spec.label.removeprefix(spec.method).strip("()") or "as it is"


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    for method in dict.fromkeys(g.spec.method for g in groups):
        mine = [g for g in groups if g.spec.method == method]
        yield state("recipes", method=method, failed=labels(failing(mine)), groups=len(mine), partly=partly(mine))


STUDY = Study(
    "recipe",
    "what changes with settings that are often not stated (norm, clipping, site, condition)?",
    specs,
    axes=(
        RULE,
        Axis(
            "recipe", "what differs from run to run: credit_norm, credit_site, clipping, options of the rule", settings
        ),
        Axis("epochs", "epochs of the run", lambda s: s.epochs),
    ),
    order=lambda g: place(g.spec),
    conclude=conclude,
    plots=tuple(
        Plot("method", y, "recipe") for y in ("accuracy", "gamma", "margin_matched", "growth", "reference_norm_128")
    ),
)
