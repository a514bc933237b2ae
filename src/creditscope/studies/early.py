"""Mode 2 before Mode 1: is the headline Γ one layer's cosine already while the reference can still be measured?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from creditscope.measure.alignment import LEAST_LAYERS
from creditscope.protocol import DiagnosticThresholds
from creditscope.render.numbers import num, signed
from creditscope.studies.grid import DFA, DFA_NONE, FA, FA_RMS, make, seeds_of
from creditscope.studies.result import Run, StudyResult, counting_layers, mean
from creditscope.studies.temporal import first_epoch
from creditscope.training.spec import RunSpec

QUESTION = "does one layer carry Γ (Mode 2) before the measurement degenerates (Mode 1)?"
EPOCHS = 5


def specs(preset: str) -> list[RunSpec]:
    return [make(preset, method, seed) for seed in seeds_of(preset) for method in (FA, FA_RMS, DFA, DFA_NONE)]


def _cosines(run: Run, line: dict[str, Any]) -> list[float | None]:
    """The cosines of the layers that count."""
    stream = run.facts.stream
    layers = counting_layers(run.spec, stream.depth, stream.kind)
    return [line["cosine"][layer] for layer in layers] if line["cosine"] else []


def share_of_top(cosines: Sequence[float | None] | None) -> float | None:
    """Largest |cos_l| / Σ|cos|; None below three layers."""
    if len(cosines or ()) < LEAST_LAYERS:
        return None
    sizes = [abs(float(c)) for c in cosines or () if c is not None]
    return max(sizes) / sum(sizes) if sizes and sum(sizes) > 0 else None


def first_mode2(run: Run, limit: float) -> int | None:
    for line in run.trajectory:
        share = share_of_top(_cosines(run, line))
        if line["epoch"] >= 1 and share is not None and share > limit:
            return int(line["epoch"])
    return None


def _top_is_exact(run: Run, epoch: int) -> bool:
    """Is the layer with the largest cosine then one whose credit is the gradient itself?"""
    sizes = [-1.0 if c is None else abs(float(c)) for c in _cosines(run, run.trajectory[epoch])]
    concentration = run.facts.concentration
    return concentration is not None and sizes.index(max(sizes)) in concentration.exact_layers


def analyse(runs: Sequence[Run]) -> StudyResult:
    limit = DiagnosticThresholds().concentration_share
    rows, points, before, with_mode2, exact = [], [], 0, 0, 0
    for run in runs:
        mode2, mode1 = first_mode2(run, limit), first_epoch(run.trajectory, "D1", "D2")
        with_mode2 += mode2 is not None
        exact += mode2 is not None and _top_is_exact(run, mode2)
        before += mode2 is not None and (mode1 is None or mode2 < mode1)
        for line in run.trajectory:
            if not 1 <= line["epoch"] <= EPOCHS or not line["cosine"]:
                continue
            deep = [float(c) for c in _cosines(run, line)[1:] if c is not None]
            share = share_of_top(_cosines(run, line))
            fired = " ".join(line["fired"]) or "none"
            first = line["cosine"][0]
            deep_mean = mean(deep) if deep else None
            rows.append(
                [
                    run.spec.label,
                    str(run.spec.seed),
                    str(line["epoch"]),
                    signed(first),
                    signed(deep_mean),
                    num(share, 2),
                    fired,
                ]
            )
            points.append(
                {
                    "label": run.spec.label,
                    "seed": run.spec.seed,
                    "epoch": line["epoch"],
                    "share": share,
                    "layer0": first,
                }
            )
    conclusion = (
        f"Mode 2 (one layer has more than {limit:g} of Γ) appears in {with_mode2} of {len(runs)} runs, and in {before} of them "
        "before Mode 1 or without it"
        + (f"; in {exact} of them the layer is one whose credit is exact by construction (FA: L)." if exact else ".")
    )
    header = [
        "method",
        "seed",
        "epoch",
        "cosine at layer 0",
        "mean of deeper layers",
        "largest share",
        "checks that fire",
    ]
    figure = {"kind": "lines", "points": points, "limit": limit}
    convention = (
        f"epochs 1-{EPOCHS}; share = |cos_l| / Σ|cos| over the layers that count; published DFA: "
        "layer 0 .42-.44 from the start, deep ≈ 0"
    )
    return StudyResult("early", QUESTION, header, rows, figure, conclusion, convention)
