"""Rescue: which recipe lets FA and DFA pass all three checks. Searched on the embedded data, the best tried on CIFAR-10."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from creditscope.quantities import standard
from creditscope.runs.groups import Group, Outcome, audit
from creditscope.runs.record import Record
from creditscope.studies.grid import CLIP, DFA, DFA_NONE, FA, FA_RMS, OUTPUT, make, seeds_of, with_nulls
from creditscope.studies.study import Axis, Study
from creditscope.tables import Plot, Statement, Table, mean, state
from creditscope.training.spec import RunSpec, make_spec

RATES: tuple[tuple[float, float], ...] = ((1.0, 1.0), (0.3, 1.0), (1.0, 0.3))
"""Learning rate of embedding and blocks, and of head and terminal norm, as multiples of the usual one."""
BEST = 6
"""How many recipes of the search go on to CIFAR-10."""
CHOSEN: tuple[dict[str, Any], ...] = ()
"""Those six, as `best` finds them in the runs of the search."""
PASSED: tuple[dict[str, Any], ...] = ()
"""Those that pass on CIFAR-10 with the first seed: the other seeds are run, too."""
METHODS = ("fa", "dfa")


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
    margin = group.margin("matched")
    low = -100.0 if margin is None else margin.margin_pp if margin.low_pp is None else margin.low_pp
    return failed, checks, -low, -mean(group.accuracies)


def tried(records: Sequence[Record], dataset: str) -> list[Group]:
    """The recipes of one dataset, best first."""
    pool = [r for r in records if r.spec.dataset == dataset]
    return sorted((g for g in audit(pool) if g.spec.method in METHODS), key=rank)


def best(records: Sequence[Record]) -> list[Group]:
    """The recipes of the search that go on, best first."""
    return tried(records, "quadratic")[:BEST]


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    for dataset in dict.fromkeys(str(g.spec.dataset) for g in groups):
        mine = [g for g in groups if g.spec.dataset == dataset]
        passing = [g.spec.method for g in mine if g.outcome is Outcome.PASS]
        counts = tuple(state("of method", k=passing.count(m), method=m.upper()) for m in METHODS)
        yield state("rescue", dataset=dataset, passing=len(passing), tried=len(mine), counts=counts)


def build(study: Study, records: Sequence[Record]) -> Table:
    return study.grouped([g for d in dict.fromkeys(str(r.spec.dataset) for r in records) for g in tried(records, d)])


STUDY = Study(
    "rescue",
    "which recipe lets FA and DFA pass all three checks?",
    specs,
    axes=(
        Axis("dataset", "data", lambda s: s.dataset),
        Axis("method", "credit rule", lambda s: s.method),
        Axis("norm", "credit_norm", lambda s: s.credit_norm),
        Axis("site", "credit_site", lambda s: s.credit_site),
        Axis("clip", "how the gradient is clipped", lambda s: s.clip),
        Axis("penalty", "penalty", lambda s: s.penalty, "λ"),
        Axis("lr", "peak learning rate of embedding and blocks", lambda s: s.lr),
        Axis("head_lr", "peak learning rate of head and terminal norm", lambda s: s.head_lr or s.lr, "head lr"),
    ),
    quantities=(*standard()[:-1], "d1", "d2", "d3", "finding"),
    conclude=conclude,
    convention=state("rescue convention"),
    build=build,
    plots=tuple(Plot("growth", y, "method") for y in ("accuracy", "margin_matched")),
)
