"""Rescue: which recipe lets FA and DFA pass all three checks. Searched on the embedded data, the best tried on CIFAR-10, what
passes there with one seed run with all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from creditscope.quantities import standard
from creditscope.runs.groups import Group, Outcome, audit
from creditscope.runs.record import Record
from creditscope.studies.grid import CLIP, DFA, DFA_NONE, FA, FA_RMS, OUTPUT, make, seeds_of, with_nulls
from creditscope.studies.study import RULE, Axis, Study
from creditscope.tables import Plot, Statement, Table, grouped_by, mean, state
from creditscope.training.spec import RunSpec, make_spec

RATES: tuple[tuple[float, float], ...] = ((1.0, 1.0), (0.3, 1.0), (1.0, 0.3))
"""Learning rate of embedding and blocks, and of head and terminal norm, as multiples of the usual one."""
BEST = {"smoke": 1, "quick": 3, "paper": 3, "reduced": 3}
"""How many recipes of each method go on from the search to CIFAR-10: the question is asked of both."""
METHODS = ("fa", "dfa")
RECIPE = ("method", "credit_norm", "credit_site", "grad_clip", "clip_over", "penalty")
"""What a recipe is, beside its learning rates."""


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


def specs(preset: str) -> list[RunSpec]:
    """The search."""
    first = seeds_of(preset)[0]
    if preset == "smoke":
        return with_nulls(make(preset, r | site, first) for r in (FA, DFA) for site in (OUTPUT, CLIP))
    return with_nulls(make_spec({**recipe, "seed": first}) for recipe in search())


def on_cifar(found: RunSpec, preset: str, seed: int) -> RunSpec:
    """The same recipe there, with learning rates as multiples of the usual one of that task; `smoke` trains longer instead."""
    usual, lr = make(preset, {"method": "bp"}, seed).lr or 0.0, found.lr or 0.0
    recipe = {name: getattr(found, name) for name in RECIPE}
    if preset == "smoke":
        return make(preset, recipe, seed, epochs=2 * (found.epochs or 0))
    scale = usual / (make_spec({}).lr or 0.0)
    return make(preset, {**recipe, "lr": lr * scale, "head_lr": (found.head_lr or lr) * scale}, seed, intervention=True)


def then(preset: str, records: Sequence[Record]) -> list[RunSpec]:
    """The best of the finished search on CIFAR-10 with the first seed; those that pass there with the others, too."""
    first, *others = seeds_of(preset)
    ranked = tried(finished(specs(preset), records))
    best = [g for m in METHODS for g in [g for g in ranked if g.spec.method == m][: BEST[preset]]]
    second = with_nulls(on_cifar(g.spec, preset, first) for g in best)
    passing = [g.spec for g in tried(finished(second, records)) if g.outcome is Outcome.PASS]
    return [*second, *with_nulls(spec.changed(seed=seed) for spec in passing for seed in others)]


def finished(wanted: Sequence[RunSpec], records: Sequence[Record]) -> list[Record]:
    """The records of one stage; none while one is missing: a choice from a part would depend on the order of the runs."""
    here = {r.spec.hash: r for r in records}
    return [here[s.hash] for s in wanted] if all(s.hash in here for s in wanted) else []


def rank(group: Group) -> tuple[float, ...]:
    """The better, the smaller: seeds that fail, checks that fail, then the lower end of the margin, then the accuracy."""
    failed = sum(r.status != "pass" for r in group.reports)
    checks = sum(r.checks[d].answer == "fail" for r in group.reports for d in ("D1", "D2", "D3"))
    margin = group.margin("matched")
    low = -100.0 if margin is None else margin.margin_pp if margin.low_pp is None else margin.low_pp
    return failed, checks, -low, -mean(group.accuracies)


def tried(records: Sequence[Record]) -> list[Group]:
    """The recipes, best first."""
    return sorted((g for g in audit(records) if g.spec.method in METHODS), key=rank)


def stage(spec: RunSpec) -> str:
    """The data of a stage, and for how long it trains."""
    return f"{spec.dataset} ({spec.epochs} epochs)"


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    for name, mine in grouped_by(groups, lambda g: stage(g.spec)).items():
        by = {m: [g.outcome is Outcome.PASS for g in mine if g.spec.method == m] for m in METHODS}
        counts = tuple(state("of method", k=sum(of), n=len(of), method=m.upper()) for m, of in by.items())
        yield state("rescue", dataset=name, passing=sum(map(sum, by.values())), tried=len(mine), counts=counts)


def build(study: Study, records: Sequence[Record]) -> Table:
    return study.grouped([g for mine in grouped_by(records, lambda r: stage(r.spec)).values() for g in tried(mine)])


STUDY = Study(
    "rescue",
    "which recipe lets FA and DFA pass all three checks?",
    specs,
    axes=(
        Axis("dataset", "data, and epochs of training", stage),
        RULE,
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
    then=then,
    plots=tuple(Plot("growth", y, "method") for y in ("accuracy", "margin_matched")),
)
