"""Rescue: which recipe lets FA and DFA pass all three checks. Searched on the embedded data, the best tried on CIFAR-10."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from creditscope.render.numbers import num
from creditscope.studies.audit import Group, audit, audit_figure, convention, margin_interval, margin_pp, margin_text
from creditscope.studies.grid import CLIP, DFA, DFA_NONE, FA, FA_RMS, OUTPUT, make, seeds_of, with_nulls
from creditscope.studies.result import Run, StudyResult, mean, names, pm, span
from creditscope.training.spec import RunSpec, make_spec

QUESTION = "which recipe lets FA and DFA pass all three checks?"
RATES: tuple[tuple[float, float], ...] = ((1.0, 1.0), (0.3, 1.0), (1.0, 0.3))
"""Learning rate of embedding and blocks, and of head and terminal norm, as multiples of the usual one."""
BEST = 6
"""How many recipes of the search go on to CIFAR-10."""
CHOSEN: tuple[dict[str, Any], ...] = ()
"""Those six, as `best` finds them in the runs of the search."""
PASSED: tuple[dict[str, Any], ...] = ()
"""Those that pass on CIFAR-10 with the first seed: the other seeds are run, too."""


def search() -> list[dict[str, Any]]:
    """Every recipe that is tried on the embedded data, as settings of a spec."""
    usual = make_spec({}).lr or 0.0
    return [
        {**rule, **site, **clip, "penalty": penalty, "lr": blocks * usual, "head_lr": head * usual}
        for rule in (FA, FA_RMS, DFA, DFA_NONE)
        for site in ({}, OUTPUT)
        for clip in ({}, CLIP)
        for penalty in (0.0, 1e-2)
        for blocks, head in RATES
    ]


def on_cifar(recipe: dict[str, Any], preset: str, seed: int) -> RunSpec:
    """The same recipe there, with learning rates as multiples of the usual one of that task."""
    here, there = make_spec({}).lr or 0.0, make(preset, {"method": "bp"}, seed).lr or 0.0
    rates = {name: recipe[name] / here * there for name in ("lr", "head_lr")}
    return make(preset, {**recipe, **rates}, seed, intervention=True)


def specs(preset: str) -> list[RunSpec]:
    first, *others = seeds_of(preset)
    if preset == "smoke":
        return with_nulls(make(preset, r | site, first) for r in (FA, DFA) for site in (OUTPUT, CLIP))
    grid = [make_spec({**recipe, "seed": first}) for recipe in search()]
    grid += [on_cifar(recipe, preset, first) for recipe in CHOSEN]
    grid += [on_cifar(recipe, preset, seed) for recipe in PASSED for seed in others]
    return with_nulls(grid)


def rank(group: Group) -> tuple[float, ...]:
    """The better, the smaller: seeds that fail, checks that fail, then the lower end of the margin, then the accuracy."""
    failed = sum(r.status != "pass" for r in group.reports)
    checks = sum(r.checks[d].answer == "fail" for r in group.reports for d in ("D1", "D2", "D3"))
    low = margin_interval(group)
    margin = low[0] if low else margin_pp(group)
    return failed, checks, -(margin if margin is not None else -100.0), -mean(group.accuracies)


def best(runs: Sequence[Run]) -> list[Group]:
    """The recipes of the search that go on, best first."""
    return sorted(_tried(runs, "quadratic"), key=rank)[:BEST]


def _tried(runs: Sequence[Run], dataset: str) -> list[Group]:
    return [g for g in audit([r for r in runs if r.spec.dataset == dataset]) if g.spec.method in ("fa", "dfa")]


def _row(group: Group) -> list[str]:
    s = group.spec
    answers = [{r.checks[d].answer for r in group.reports} for d in ("D1", "D2", "D3")]
    return [
        str(s.dataset),
        s.method,
        str(s.credit_norm),
        str(s.credit_site),
        s.clip,
        f"{s.penalty:g}",
        num(s.lr, 2),
        num(s.head_lr or s.lr, 2),
        str(len(group.seeds)),
        pm(group.accuracies),
        margin_text(group, "matched"),
        margin_text(group, "bp"),
        span(group.values("growth")),
        *(found.pop() if len(found) == 1 else "mixed" for found in answers),
        group.finding,
    ]


HEADER = [
    *("dataset", "method", "norm", "site", "clip", "λ", "lr", "head lr", "n", "accuracy"),
    *(
        "margin to matched null (pp)",
        "to bp null (pp)",
        "growth",
        "D1 answer",
        "D2 answer",
        "D3 answer",
        "the protocol finds",
    ),
]


def analyse(runs: Sequence[Run]) -> StudyResult:
    groups: list[Group] = []
    parts = []
    for dataset in dict.fromkeys(str(r.spec.dataset) for r in runs):
        tried = sorted(_tried(runs, dataset), key=rank)
        passing = [g for g in tried if g.status == "pass"]
        groups += tried
        counts = names(f"{sum(g.spec.method == m for g in passing)} of {m.upper()}" for m in ("fa", "dfa"))
        parts.append(f"on {dataset} {len(passing)} of {len(tried)} recipes pass all three checks ({counts})")
    conclusion = f"{'; '.join(parts) or 'no finished runs'}."
    told = (
        "every recipe that was tried, the best first (by verdict, failed checks, lower end of the margin, accuracy); "
        f"{convention(groups)}"
    )
    return StudyResult("rescue", QUESTION, HEADER, [_row(g) for g in groups], audit_figure(groups), conclusion, told)
