"""Seeds: one verdict per seed over ten or more, none left out; the share that fails, with its exact interval."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from creditscope.measure.binomial import clopper_pearson
from creditscope.render.numbers import num, signed
from creditscope.studies.audit import audit, margin_pp, network
from creditscope.studies.grid import DFA, FA, make, with_nulls
from creditscope.studies.result import Run, StudyResult, shared_seeds
from creditscope.training.spec import RunSpec

QUESTION = "how often does a method fail over seeds, without choosing among them?"
TEN = tuple(range(1, 11))
SEEDS = {"smoke": TEN, "quick": TEN, "paper": TEN, "reduced": TEN}
CHANGES: dict[str, dict[str, Any]] = {
    "smoke": {"epochs": 2, "width": 32, "batch_size": 400},
    "quick": {"width": 512, "depth": 2},
    "paper": {"width": 512, "depth": 2},
    "reduced": {"width": 512, "depth": 2, "intervention": True},
}
"""The setting of the contested claim (d=512 L=2); `reduced`: 30 epochs instead of 100."""


def specs(preset: str) -> list[RunSpec]:
    return with_nulls(make(preset, m, seed, **CHANGES[preset]) for m in (FA, DFA) for seed in SEEDS[preset])


def share_interval(k: int, n: int) -> tuple[float, float]:
    """Clopper-Pearson 95 % interval of a share k/n."""
    return clopper_pearson(k, n, 0.95)


def selections(runs: Sequence[Run], size: int = 3) -> dict[str, Any]:
    """Every choice of `size` seeds among those that all methods have with their null: how D3 would come out over each.

    `below`: the mean margin is under the threshold, as a table without intervals is read; `fail`: its paired interval is too.
    Both are the choices by method, `every` those that hold for all methods at once.
    """
    by_seed, groups = runs_by_seed(runs), audit(runs)
    shared = shared_seeds({g.label: g.seeds for g in groups}) if groups else []
    complete = [s for s in shared if all(margin_pp(g) is not None for g in audit(by_seed[s]))]
    choices = list(itertools.combinations(complete, size)) if len(complete) > size else []
    found: dict[str, Any] = {"size": size, "choices": len(choices), "seeds": complete, "below": {}, "fail": {}}
    every = {"below": 0, "fail": 0}
    for chosen in choices:
        checks = {g.label: g.reports[0].checks["D3"] for g in audit([r for s in chosen for r in by_seed[s]])}
        raised = {
            "below": {label: c.value is not None and c.value < c.threshold for label, c in checks.items()},
            "fail": {label: c.answer == "fail" for label, c in checks.items()},
        }
        for reading, by_method in raised.items():
            every[reading] += all(by_method.values())
            for label, yes in by_method.items():
                found[reading][label] = found[reading].get(label, 0) + yes
    return {**found, "every": every}


def selection_text(found: dict[str, Any]) -> str:
    """The choices in a sentence; empty where there is nothing to choose."""
    if not found["choices"]:
        return ""

    def told(reading: str) -> str:
        every = f", all of them at once in {found['every'][reading]}" if len(found[reading]) > 1 else ""
        return ", ".join(f"{label} in {k}" for label, k in found[reading].items()) + every

    return (
        f"Of the {found['choices']} choices of {found['size']} of the {len(found['seeds'])} seeds that have their nulls, the "
        f"mean margin is below the threshold of D3: {told('below')}; and so is its whole paired 95 % interval: {told('fail')}."
    )


def runs_by_seed(runs: Sequence[Run]) -> dict[int, list[Run]]:
    by_seed: dict[int, list[Run]] = {}
    for run in runs:
        by_seed.setdefault(run.spec.seed, []).append(run)
    return by_seed


def analyse(runs: Sequence[Run]) -> StudyResult:
    by_seed = runs_by_seed(runs)
    rows: list[list[str]] = []
    verdicts: dict[str, list[str]] = {}
    margins: dict[str, list[tuple[int, float | None]]] = {}
    for seed in sorted(by_seed):
        for group in audit(by_seed[seed]):  # one seed at a time: its own null, its own interval
            report = group.reports[0]
            verdicts.setdefault(group.label, []).append(report.status)
            margins.setdefault(group.label, []).append((seed, margin_pp(group)))
            rows.append(
                [
                    group.label,
                    str(seed),
                    num(group.accuracies[0]),
                    signed(margin_pp(group), 1),
                    report.status,
                    group.finding,
                ]
            )
    rows.sort(key=lambda r: r[0])
    parts, figure = [], {}
    for label, statuses in verdicts.items():
        found = [status for status in statuses if status != "incomplete"]  # without its null a seed is not judged
        k, n = found.count("fail"), len(found)
        low, high = share_interval(k, n) if n else (0.0, 1.0)
        undecided, open_ = found.count("inconclusive"), len(statuses) - n
        parts.append(
            f"{label} fails in {k} of {n} seeds (95 % interval {low:.2f} to {high:.2f}; {undecided} inconclusive"
            + (f"; {open_} more without a measured D3)" if open_ else ")")
        )
        figure[label] = {"fail": k, "n": n, "low": low, "high": high, "verdicts": found, "margins": margins[label]}
    chosen = selections(runs)
    conclusion = " ".join(filter(None, (f"{'; '.join(parts) or 'no finished runs'}.", selection_text(chosen))))
    header = ["method", "seed", "accuracy", "margin to matched null (pp)", "status", "the protocol finds"]
    networks = "; ".join(sorted({network(run.spec) for run in runs}))
    convention = (
        f"{networks or 'no finished runs'}; every seed that was run, none selected; each judged alone (binomial interval, this "
        "network only); share: Clopper-Pearson; published (100 epochs): 3 of 10 seeds by the change history, in which both fail"
    )
    drawn = {"kind": "shares", "methods": figure, "selections": chosen}
    return StudyResult("seeds", QUESTION, header, rows, drawn, conclusion, convention)
