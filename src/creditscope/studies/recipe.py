"""Recipe: which settings that the papers do not state give the published values. All are shown, not the nearest only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from creditscope.render.numbers import num
from creditscope.studies.audit import Group, audit, audit_figure, convention, place
from creditscope.studies.claims import PRIMARY, Claim, matches
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
    make,
    seeds_of,
    unique,
    with_nulls,
)
from creditscope.studies.published_claims import claims
from creditscope.studies.result import NotMeasured, Run, StudyResult, geometric, mean
from creditscope.training.spec import RunSpec

QUESTION = "which settings that the papers do not state (norm, clipping, site, condition) give the published values?"
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
CHOOSING = tuple(f"DFA: ‖g_L‖ after epoch {k}" for k in (1, 2, 3))
"""The values that a recipe of DFA is chosen by; for a method without published early values it is the accuracy."""
UNSTATED = ("credit_site", "grad_clip")
"""Fields of a run in which a recipe may differ from the primary audit (beside the norm and the rule's options)."""


def specs(preset: str) -> list[RunSpec]:
    grid = [make(preset, recipe, seed) for seed in seeds_of(preset) for recipe in RECIPES[preset]]
    if preset in ("paper", "reduced"):
        clipped = (make(preset, DFA | CLIP, s, intervention=True, penalty=p) for s in seeds_of(preset) for p in LAMBDAS)
        grid += clipped
    return unique(with_nulls(grid))


@dataclass(frozen=True)
class Distance:
    """How far our runs are from a set of published values, in two units that are not added up."""

    orders: tuple[float, ...]
    """log10(ours / published) of each order of magnitude."""
    z: tuple[float, ...]
    """(ours - published) / standard deviation of each other value that has one."""
    other_length: bool
    """Some of it is read from runs that were trained for another number of epochs than the published."""

    @property
    def text(self) -> list[str]:
        """Root mean square of both, each with the number of values."""
        length = ", other length" if self.other_length else ""
        return [f"{num(rms(v), 2)} (n={len(v)}{length})" if v else "–" for v in (self.orders, self.z)]


def rms(values: Sequence[float]) -> float:
    return math.sqrt(math.fsum(v * v for v in values) / len(values))


def primary_claims() -> list[Claim]:
    """Published values of the methods on the network of the primary audit, with and without a penalty."""
    return [c for c in claims() if c.runs.keys() <= {"method", "penalty", "epochs"}]


def chooses(claim: Claim, early: bool) -> bool:
    """Is it one of the values that choose a recipe? `early`: the method has published values of its first epochs."""
    if claim.runs.get("penalty") or claim.epochs != PRIMARY["epochs"]:
        return False
    return claim.what in CHOOSING if early else claim.what.endswith(": accuracy")


def values(claim: Claim, runs: Iterable[Run]) -> tuple[list[float], int]:
    """The claim's quantity in the runs of one recipe, and their epochs: of several lengths the one nearest to the published.

    EP and the bridges may have 30 epochs where 100 are published.
    """
    wanted = {k: v for k, v in {**PRIMARY, **claim.runs}.items() if k not in (*UNSTATED, "epochs")}
    by_length: dict[int, list[float]] = {}
    for run in runs:
        if all(matches(getattr(run.spec, name), value) for name, value in wanted.items()):
            try:
                value = claim.value(run)
            except NotMeasured:
                value = None
            if value is not None and math.isfinite(value):
                by_length.setdefault(run.spec.epochs or 0, []).append(float(value))
    nearest = min(by_length, key=lambda n: abs(n - claim.epochs), default=0)
    if (
        claim.epochs != PRIMARY["epochs"] and nearest != claim.epochs
    ):  # a longer training is no stand-in for a shorter one
        return [], nearest
    return by_length.get(nearest, []), nearest


def distance(held: Iterable[Claim], runs: Sequence[Run]) -> Distance:
    orders, zs, other = [], [], False
    for claim in held:
        ours, trained = values(claim, runs)
        said = claim.published
        if not ours or claim.because or claim.null or claim.closeness in ("at most", "at least"):
            continue
        if claim.closeness == "order":
            if all(v * said.value > 0 for v in ours):
                orders.append(math.log10(geometric([v / said.value for v in ours])))
                other |= trained != claim.epochs
            continue
        width = said.std if said.std is not None else (said.span[1] - said.span[0]) / 2 if said.span else 0.0
        deviation = math.hypot(width, spread(ours))
        if deviation:
            zs.append((mean(ours) - said.value) / deviation)
            other |= trained != claim.epochs
    return Distance(tuple(orders), tuple(zs), other)


def spread(ours: Sequence[float]) -> float:
    """Sample standard deviation; 0 of one value."""
    centre = mean(ours)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in ours) / (len(ours) - 1)) if len(ours) > 1 else 0.0


@dataclass(frozen=True)
class Candidate:
    """One recipe of one method, with all the lengths and penalties that it was run with."""

    name: str
    group: Group
    chosen: Distance
    held_back: Distance


def candidates(runs: Sequence[Run]) -> list[Candidate]:
    trained = [r for r in runs if not r.spec.frozen]
    of: dict[str, list[Run]] = {}
    for run in trained:
        of.setdefault(f"{run.spec.method} {_name(run.spec)}", []).append(run)
    groups = sorted(audit(runs), key=lambda g: place(g.spec))  # the longer training before the shorter
    group_of = {b.spec.hash: g for g in reversed(groups) for b in g.bundles}
    published = primary_claims()
    found = []
    for mine in of.values():
        spec = mine[0].spec
        about = [c for c in published if c.runs.get("method") == spec.method]
        early = any(c.what in CHOOSING for c in about)
        used = [c for c in about if chooses(c, early)]
        rest = [c for c in about if c not in used]
        group = min((group_of[r.spec.hash] for r in mine), key=lambda g: place(g.spec))
        found.append(Candidate(_name(spec), group, distance(used, mine), distance(rest, mine)))
    return sorted(found, key=lambda c: place(c.group.spec))


def _name(spec: RunSpec) -> str:
    """Norm, site, clipping and options of a run: what the label says beside the method, without the penalty."""
    plain = spec.model_copy(update={"penalty": 0.0, "train_last": None})
    return plain.label.removeprefix(spec.method).strip("()") or "as it is"


def analyse(runs: Sequence[Run]) -> StudyResult:
    found = candidates(runs)
    rows = [
        [
            c.group.spec.method,
            c.name,
            str(c.group.spec.epochs),
            str(len(c.group.seeds)),
            *c.chosen.text,
            *c.held_back.text,
            c.group.finding,
        ]
        for c in found
    ]
    header = [
        "method",
        "recipe",
        "epochs",
        "n",
        "log10 ratio, values that choose",
        "z, values that choose",
        "log10 ratio, held back",
        "z, held back",
        "the protocol finds",
    ]
    parts = []
    for method in dict.fromkeys(c.group.spec.method for c in found):
        mine = [c for c in found if c.group.spec.method == method]
        if told := _nearest(mine):
            parts.append(told)
    conclusion = (
        f"nearest to the values that choose, {'; '.join(parts)}. The text states none of these settings: they fit, no more."
        if parts
        else "no method has a published value next to two recipes."
    )
    told = (
        "distance: root mean square over the published values of log10(ours / published) for orders of magnitude and of "
        "(ours - published) / standard deviation (published and ours) for the rest; runs of the published penalty and, where "
        "there are any, of the published length; "
        "chosen by ‖g_L‖ after epochs 1 to 3 (DFA) or by the accuracy (others), never by a value held back; "
    )
    figure = audit_figure([c.group for c in found])
    return StudyResult(
        "recipe", QUESTION, header, rows, figure, conclusion, told + convention([c.group for c in found])
    )


def _nearest(mine: Sequence[Candidate]) -> str:
    """Which recipe is nearest on the values that choose, and whether it is so on those held back."""

    def size(d: Distance) -> float | None:
        return rms(d.orders) if d.orders else rms(d.z) if d.z else None

    scored = [(size(c.chosen), c) for c in mine if size(c.chosen) is not None]
    if len(scored) < 2:
        return ""
    best = min(scored, key=lambda pair: pair[0] or 0.0)[1]
    rest = [c for c in mine if size(c.held_back) is not None]
    also = min(rest, key=lambda c: size(c.held_back) or 0.0, default=None)
    elsewhere = f"on those held back {_called(also) if also else '–'}"
    return (
        f"{_called(best)} of {len(scored)} recipes ({'also nearest on those held back' if also is best else elsewhere})"
    )


def _called(c: Candidate) -> str:
    return f"{c.group.spec.method}({c.name})"
