"""The same runs under three-check/1.0 and 1.1: which verdicts change and why, and what 1.1 asks for that a run does not hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from creditscope.protocol.report import DiagnosticReport
from creditscope.protocol.wording import READINGS_DIFFER
from creditscope.render.numbers import signed
from creditscope.studies.audit import Group, audit, network, place
from creditscope.studies.result import NotMeasured, Run, mean

OLD, NEW = "three-check/1.0", "three-check/1.1"
CHANGE_HEADER = ["method", "network", "seeds", OLD, NEW, "why"]
GAP_HEADER = ["what 1.1 takes", "networks without it", "why"]
GAMMA_HEADER = ["method", "network", "Γ of the layers that count", "Γ of all layers", "layers that count"]


@dataclass(frozen=True)
class Rejudged:
    judged: int
    """Networks that were judged."""
    statuses: Counter[str]
    """Of 1.1."""
    changes: list[list[str]]
    gammas: list[list[str]]
    """Methods whose Γ differs between the readings by more than .02."""
    gaps: list[list[str]]


def rejudged(runs: Sequence[Run]) -> Rejudged:
    """Compare the two versions over every trained network among the runs."""
    pairs = list(zip(audit(runs, protocol=OLD), audit(runs, protocol=NEW), strict=True))
    pairs.sort(key=lambda pair: place(pair[1].spec))
    reports = [r for _, new in pairs for r in new.reports]
    changes, gammas = [], []
    for old, new in pairs:
        if reasons := _why(old, new):
            seeds = str(len(new.seeds))
            changes.append([new.label, network(new.spec), seeds, old.finding, new.finding, "; ".join(reasons)])
        value, all_layers = new.values("gamma"), new.values("gamma_all_layers")
        if value and all_layers and abs(mean(value) - mean(all_layers)) > READINGS_DIFFER:
            aligned = new.reports[0].facts.alignment
            counting = ", ".join(map(str, aligned.counting_layers)) if aligned else "–"
            gammas.append([new.label, network(new.spec), signed(mean(value), 2), signed(mean(all_layers), 2), counting])
    statuses: Counter[str] = Counter(r.status for r in reports)
    return Rejudged(len(reports), statuses, changes, gammas, _gaps(runs, reports))


def _why(old: Group, new: Group) -> list[str]:
    """What made the lines differ, from the answers of the checks; empty where they are the same."""
    found: dict[str, None] = {}
    for a, b in zip(old.reports, new.reports, strict=True):
        if a.verdict.line == b.verdict.line:
            continue
        d3 = b.checks["D3"]
        if b.status == "inconsistent":
            found["the accuracy is not confirmed by the evaluation batches"] = None
        elif a.checks["D3"].answer != d3.answer:
            found[f"D3 {a.checks['D3'].answer} -> {d3.answer}: {d3.reason or 'its interval'}"] = None
        elif a.status != b.status:
            found[f"status {a.status} -> {b.status}"] = None
        else:
            found[f"the word only: D3 is {d3.answer}" if b.status == "incomplete" else "the words only"] = None
    return list(found)


def _gaps(runs: Sequence[Run], reports: Sequence[DiagnosticReport]) -> list[list[str]]:
    """Quantities of 1.1 that the runs do not hold."""
    by_hash = {r.spec.hash: r for r in runs}
    chance = [r for r in reports if r.facts.evaluation is None or r.facts.evaluation.largest_class is None]
    concat = [r for r in reports if r.facts.aggregate is not None and r.facts.aggregate.concat is None]
    fresh = [r for r in reports if _fresh_of_idle_layers(by_hash[r.run])]
    old = "not available under 1.1: measured before it"
    rows = [
        ("share of the largest class, for chance", chance, f"{old}; chance is 1/C there"),
        ("Γ concatenated, flattened and clamped over the layers that count", concat, old),
        ("fresh-B null over the layers that count", fresh, f"{old}; the values shown are over layers 1..L"),
    ]
    return [[what, f"{len(which)} of {len(reports)}", why] for what, which, why in rows if which]


def _fresh_of_idle_layers(run: Run) -> bool:
    """Was its fresh-B null taken over a layer that does not count?"""
    try:
        full = run.full(None)
    except (NotMeasured, LookupError):
        return False
    fresh, aligned = full.fresh_b, full.alignment
    return bool(fresh and fresh.trained is not None and aligned and set(fresh.layers) - set(aligned.counting_layers))
