"""First epoch at which a check fires, accuracy then and at the end, and what stopping there would have saved."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from creditscope.render.numbers import num
from creditscope.studies.audit import specs
from creditscope.studies.result import Run, StudyResult, mean, span

QUESTION = "how early do the checks fire, and what would stopping there have saved?"
__all__ = ["analyse", "first_epoch", "specs", "timing"]

GAIN_PP = 2.0
"""A stop is false if accuracy still rises by more than this afterwards, or if Mode 1 is not there at the end."""


def first_epoch(trajectory: Sequence[dict[str, Any]], *checks: str) -> int | None:
    """First trained epoch at which all these checks have fired together."""
    return next(
        (line["epoch"] for line in trajectory if line["epoch"] >= 1 and set(checks) <= set(line["fired"])), None
    )


def timing(run: Run) -> dict[str, Any]:
    d1, d2, both = (first_epoch(run.trajectory, *c) for c in (("D1",), ("D2",), ("D1", "D2")))
    epochs = run.trajectory[-1]["epoch"]
    at = None if both is None else next(line["accuracy"] for line in run.trajectory if line["epoch"] == both)
    at_end = {"D1", "D2"} <= set(run.trajectory[-1]["fired"])
    gain = None if at is None else round(100 * (run.accuracy - at), 9)
    return {
        "label": run.spec.label,
        "epochs": epochs,
        "seed": run.spec.seed,
        "D1": d1,
        "D2": d2,
        "both": both,
        "accuracy_at_firing": at,
        "final_accuracy": run.accuracy,
        "saved": None if both is None else 1 - both / epochs,
        "false_stop": None if gain is None else (not at_end or gain > GAIN_PP),
    }


def analyse(runs: Sequence[Run]) -> StudyResult:
    items = [timing(run) for run in runs if not run.spec.frozen]
    fired = [t for t in items if t["both"] is not None]
    wrong = [t for t in fired if t["false_stop"]]
    if fired:
        by_label: dict[str, list[int]] = {}
        for t in fired:
            by_label.setdefault(t["label"], []).append(t["both"])
        told = ", ".join(f"{label} {span(epochs)}" for label, epochs in by_label.items())
        conclusion = (
            f"Mode 1 (D1 and D2) fires in {len(fired)} of {len(items)} runs, at epoch "
            f"{statistics.median(t['both'] for t in fired):g} in the median ({told}); stopping there saves "
            f"{100 * mean([t['saved'] for t in fired]):.0f} % of a run's epochs on average, with {len(wrong)} false stops."
        )
    else:
        first = [t for t in items if t["D1"] is not None or t["D2"] is not None]
        conclusion = (
            f"Mode 1 (D1 and D2 together) fires in none of {len(items)} runs; one of the two fires in {len(first)} of them, "
            "so early stopping on Mode 1 would have saved nothing."
        )
    rows = [
        [
            t["label"],
            str(t["epochs"]),
            str(t["seed"]),
            *("–" if t[k] is None else str(t[k]) for k in ("D1", "D2", "both")),
            num(t["accuracy_at_firing"]),
            num(t["final_accuracy"]),
            "–" if t["saved"] is None else f"{t['saved']:.0%}",
            "–" if t["false_stop"] is None else "yes" if t["false_stop"] else "no",
        ]
        for t in items
    ]
    header = [
        "method",
        "epochs",
        "seed",
        "D1 from epoch",
        "D2",
        "both",
        "accuracy then",
        "at the end",
        "epochs saved",
        "false stop",
    ]
    lines = [
        {
            "label": r.spec.label,
            "seed": r.spec.seed,
            "epoch": [x["epoch"] for x in r.trajectory],
            "accuracy": [x["accuracy"] for x in r.trajectory],
            "growth": [x["growth"] for x in r.trajectory],
            "g_128": [float(x["g_per_sample"][-1]) / 128 for x in r.trajectory],
        }
        for r in runs
        if not r.spec.frozen
    ]
    convention = (
        "checks on the evaluation samples after every epoch; a check fires where the whole interval of its fact (t over the "
        "evaluation batches) is beyond the threshold; a false stop: Mode 1 not there at the end, or accuracy still "
        f"rises by more than {GAIN_PP:g} pp; published DFA: D2 at epoch 3-4 (batch size inferred ≈ 1024, not 128), "
        "D1 at epoch 8-11 of 100"
    )
    return StudyResult(
        "temporal", QUESTION, header, rows, {"kind": "lines", "lines": lines, "fired": items}, conclusion, convention
    )
