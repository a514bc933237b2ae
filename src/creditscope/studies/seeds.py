"""Seeds: one verdict per seed over ten or more, none left out; the share that fails, with its exact interval."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from creditscope.measure.binomial import clopper_pearson
from creditscope.quantities import Quantity, Scale
from creditscope.runs.groups import Group, Outcome, audit, network
from creditscope.runs.record import Record
from creditscope.studies.grid import DFA, FA, make, with_nulls
from creditscope.studies.study import METHOD, SEED, Study, shared_seeds
from creditscope.tables import Cell, Plot, Row, Spread, Statement, Table, grouped_by, state
from creditscope.training.spec import RunSpec

TEN = tuple(range(1, 11))
CHANGES: dict[str, dict[str, Any]] = {
    "smoke": {"epochs": 2, "width": 32, "batch_size": 400},
    "quick": {"width": 512, "depth": 2},
    "paper": {"width": 512, "depth": 2},
    "reduced": {"width": 512, "depth": 2, "intervention": True},
}
"""The setting of the contested claim (d=512 L=2); `reduced`: 30 epochs instead of 100."""
STATUS = Quantity(
    "status", "", "status", "", "pass, fail, inconclusive or incomplete, of this seed alone",
    of_group=lambda row: Cell(row.outcome),
)  # fmt: skip
SHARE = Quantity(
    "share", "k/n", "share that fails", "", "seeds that fail of those with a measured D3, with Clopper-Pearson 95 % interval",
    scale=Scale.SHARE, digits=2, spread=Spread.INTERVAL,
)  # fmt: skip


def specs(preset: str) -> list[RunSpec]:
    return with_nulls(make(preset, m, seed, **CHANGES[preset]) for m in (FA, DFA) for seed in TEN)


def by_seed(records: Sequence[Record]) -> dict[int, list[Record]]:
    return dict(sorted(grouped_by(records, lambda r: r.spec.seed).items()))


def share(k: int, n: int) -> Cell:
    """k of n with its Clopper-Pearson 95 % interval."""
    low, high = clopper_pearson(k, n, 0.95) if n else (0.0, 1.0)
    return Cell(k / n if n else None, low, high, n, "" if n else "no seed has a measured D3")


def selections(records: Sequence[Record], size: int = 3) -> Statement | None:
    """Every choice of `size` seeds among those that all methods have with their null: how D3 would come out over each.

    `below`: the mean margin is under the threshold, as a table without intervals is read; `fail`: its paired interval is too.
    Both are the choices by method, `every` those that hold for all methods at once.
    """
    pool, groups = by_seed(records), audit(records)
    shared = shared_seeds(*(g.seeds for g in groups))
    complete = [s for s in shared if all(g.margin("matched") for g in audit(pool[s]))]
    choices = list(itertools.combinations(complete, size)) if len(complete) > size else []
    if not choices:
        return None
    raised: dict[str, list[dict[str, bool]]] = {"below": [], "fail": []}  # by reading, of every choice: methods
    for chosen in choices:
        checks = {g.label: g.reports[0].checks["D3"] for g in audit([r for s in chosen for r in pool[s]])}
        raised["below"].append({k: c.value is not None and c.value < c.threshold for k, c in checks.items()})
        raised["fail"].append({k: c.answer == "fail" for k, c in checks.items()})
    found = {
        reading: tuple(state("chosen", label=label, k=sum(of[label] for of in each)) for label in each[0])
        for reading, each in raised.items()
    }
    for reading, each in raised.items():
        at_once = state("all at once", k=sum(all(methods.values()) for methods in each))
        found[f"every_{reading}"] = (at_once,) if len(groups) > 1 else ()
    return state("selections", choices=len(choices), size=size, seeds=len(complete), **found)


def shares(alone: Sequence[Group]) -> Iterator[tuple[str, Cell, Statement]]:
    """By method: the share of the judged seeds that fail (without its null a seed is not judged)."""
    for label in dict.fromkeys(g.label for g in alone):
        outcomes = [g.outcome for g in alone if g.label == label]
        found = [o for o in outcomes if o is not Outcome.INCOMPLETE]
        k, open_ = found.count(Outcome.FAIL), len(outcomes) - len(found)
        cell = share(k, len(found))
        undecided = found.count(Outcome.INCONCLUSIVE)
        more = (state("not judged", n=open_),) if open_ else ()
        yield label, cell, state("fails in", label=label, k=k, share=cell, undecided=undecided, open=more)


def build(study: Study, records: Sequence[Record]) -> Table:
    pool = by_seed(records)
    alone = [g for seed in pool for g in audit(pool[seed])]  # one seed at a time: its own null, its own interval
    alone.sort(key=lambda g: g.label)
    counted = list(shares(alone))
    chosen = selections(records)
    drawn = Table(
        "shares", SHARE.title, (METHOD.column, SHARE.column()),
        tuple(Row({"method": Cell(label), "share": cell}) for label, cell, _ in counted),
    )  # fmt: skip
    convention = state("seeds convention", networks=sorted({network(r.spec) for r in records}))
    plots = (Plot("method", "margin_matched"), Plot("method", "share", table=drawn), Plot("method", "status", "seed"))
    statements = [*(s for _, _, s in counted), *([chosen] if chosen else [])]
    return study.of_groups(alone, *statements, convention=(convention,), plots=plots)


STUDY = Study(
    "seeds",
    "how often does a method fail over seeds, without choosing among them?",
    specs,
    axes=(METHOD, SEED),
    quantities=("accuracy", "margin_matched", STATUS, "finding"),
    build=build,
)
