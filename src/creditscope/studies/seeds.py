"""Seeds: one verdict per seed over ten or more, none left out; the share that fails, with its exact interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scipy import special

from creditscope.render.numbers import num, signed
from creditscope.studies.audit import audit, margin_pp
from creditscope.studies.grid import DFA, FA, make, with_nulls
from creditscope.studies.result import Run, StudyResult
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
    low = 0.0 if k == 0 else float(special.betaincinv(k, n - k + 1, 0.025))
    high = 1.0 if k == n else float(special.betaincinv(k + 1, n - k, 0.975))
    return low, high


def analyse(runs: Sequence[Run]) -> StudyResult:
    by_seed: dict[int, list[Run]] = {}
    for run in runs:
        by_seed.setdefault(run.spec.seed, []).append(run)
    rows, verdicts = [], {}  # type: list[list[str]], dict[str, list[str]]
    for seed in sorted(by_seed):
        for group in audit(by_seed[seed]):  # one seed at a time: its own null, its own interval
            report = group.reports[0]
            verdicts.setdefault(group.label, []).append(report.status)
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
    for label, found in verdicts.items():
        k, n = found.count("fail"), len(found)
        low, high = share_interval(k, n)
        undecided = found.count("inconclusive")
        parts.append(
            f"{label} fails in {k} of {n} seeds (95 % interval {low:.2f} to {high:.2f}; {undecided} inconclusive)"
        )
        figure[label] = {"fail": k, "n": n, "low": low, "high": high, "verdicts": found}
    conclusion = f"{'; '.join(parts) or 'no finished runs'}."
    header = ["method", "seed", "accuracy", "margin to matched null (pp)", "status", "the protocol finds"]
    convention = (
        "every seed of the grid, none selected; each judged alone (binomial interval, this network only); share: "
        "Clopper-Pearson. Contested in the papers: d=512 L=2 shows 3 of 10 seeds, those in which both methods fail"
    )
    return StudyResult("seeds", QUESTION, header, rows, {"kind": "shares", "methods": figure}, conclusion, convention)
