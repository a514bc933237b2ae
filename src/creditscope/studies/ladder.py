"""Ladder: only the last k blocks are trained. Where does training a further block stop helping?"""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.protocol.intervals import t_interval
from creditscope.render.numbers import signed
from creditscope.studies.audit import network
from creditscope.studies.grid import BP, DFA, FA, make, seeds_of, unique
from creditscope.studies.published import audit_accuracy
from creditscope.studies.result import Run, StudyResult, beside, mean, pm, shared_seeds
from creditscope.training.spec import RunSpec

QUESTION = "how many of the last blocks are worth training?"


def specs(preset: str) -> list[RunSpec]:
    full = make(preset, BP, seeds_of(preset)[0])
    rungs = range((full.depth or 0) + 1)
    return unique(
        make(preset, m, seed, train_last=k, intervention=True)
        for seed in seeds_of(preset)
        for m in (BP, FA, DFA)
        for k in rungs
    )


def rung(spec: RunSpec) -> int:
    """Number of trained blocks."""
    return (spec.depth or 0) if spec.train_last is None else spec.train_last


def _gains(these: Sequence[Run], those: Sequence[Run]) -> list[float]:
    """Differences of accuracy in percentage points, of the seeds that both have."""
    here, there = ({r.spec.seed: r.accuracy for r in rung_runs} for rung_runs in (these, those))
    return [100 * (here[s] - there[s]) for s in shared_seeds({"these": here, "those": there})]


def _gain(these: Sequence[Run], those: Sequence[Run]) -> float | None:
    gains = _gains(these, those)
    return mean(gains) if gains else None


def _interval(gains: Sequence[float]) -> str:
    """Paired 95 % t-interval, where there are two seeds or more."""
    found = t_interval(gains)
    return f" [{signed(found[0], 1)}, {signed(found[1], 1)}]" if found else ""


def analyse(runs: Sequence[Run]) -> StudyResult:
    methods: dict[str, dict[int, list[Run]]] = {}
    for run in runs:
        name = f"{run.spec.method}({run.spec.credit_norm})" if run.spec.credit_norm else run.spec.method
        methods.setdefault(name, {}).setdefault(rung(run.spec), []).append(run)
    rows, parts, points = [], [], []
    for name, steps in methods.items():
        before: int | None = None
        best = max(steps, key=lambda k: mean([r.accuracy for r in steps[k]]))
        for k in sorted(steps):
            accuracies = [r.accuracy for r in steps[k]]
            gain = None if before is None else _gain(steps[k], steps[before])
            before = k
            published = beside(audit_accuracy(steps[k][0].spec), mean(accuracies))
            rows.append([name, str(k), pm(accuracies), *published, signed(gain, 1)])
            points.append({"method": name, "trained_blocks": k, "accuracy": accuracies})
        lowest = min(steps)
        gains = _gains(steps[best], steps[lowest])
        tried = [] if len(steps) > 4 else [f"of {', '.join(map(str, sorted(steps)))}"]
        over_lowest = (
            []
            if best == lowest
            else [f"{signed(mean(gains) if gains else None, 1)} pp{_interval(gains)} over {lowest}"]
        )
        told = "; ".join([*tried, *over_lowest])
        parts.append(f"{name} is best with {best} trained blocks" + (f" ({told})" if told else ""))
    header = ["method", "trained blocks", "accuracy", "published", "difference", "gain over the rung before (pp)"]
    conclusion = f"{'; '.join(parts) or 'no finished runs'}."
    lengths = ", ".join(sorted({network(r.spec) for r in runs}))
    convention = (
        f"{lengths}; 0 = frozen-blocks null trained by the same rule; mean ± sample standard deviation over seeds; a gain is "
        "over the seeds that both rungs have (in brackets: paired 95 % t-interval); best: the largest mean"
    )
    return StudyResult("ladder", QUESTION, header, rows, {"kind": "lines", "points": points}, conclusion, convention)
