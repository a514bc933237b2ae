"""Cosine and ρ side by side: with a degenerate reference the two part, with a healthy one they agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from creditscope.render.numbers import signed
from creditscope.studies.grid import DFA, make, seeds_of
from creditscope.studies.published import DEEP_COSINE, DEEP_RHO, EARLY_DFA
from creditscope.studies.result import Run, StudyResult, beside, deep_cosine, deep_rho, known, mean
from creditscope.training.spec import RunSpec

QUESTION = "do the cosine and the perturbation correlation ρ tell the same, early, converged and penalised?"
PENALTY = 1e-2
EARLY = 1


def specs(preset: str) -> list[RunSpec]:
    found = []
    for seed in seeds_of(preset):
        found.append(make(preset, DFA, seed, checkpoint_epochs=(EARLY,), intervention=True))
        found.append(make(preset, DFA, seed, penalty=PENALTY, intervention=True))
    return found


def states(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Facts of level full of every state, over seeds."""
    found: dict[str, list[Any]] = {"early": [], "converged": [], "penalised": []}
    for run in runs:
        if run.spec.penalty:
            found["penalised"].append(run.full(None))
        else:
            found["early"].append(run.full(run.spec.checkpoint_epochs[0]))
            found["converged"].append(run.full(None))
    return {name: facts for name, facts in found.items() if facts}


def analyse(runs: Sequence[Run]) -> StudyResult:
    rows, figure, values = [], [], {}
    label = " and ".join(sorted({f"dfa({run.spec.credit_norm})" for run in runs})) or "dfa"
    keys = {"converged": ("dfa", 0.0), "penalised": ("dfa", PENALTY)}
    applies = all(run.spec.dataset == "cifar10" for run in runs)
    controls: dict[str, list[float]] = {"reference": [], "random": []}
    for name, facts in states(runs).items():
        cosine, rho = known(map(deep_cosine, facts)), known(map(deep_rho, facts))
        for kind in controls:
            means = [getattr(f.perturbation, kind) for f in facts if f.perturbation]
            controls[kind] += known(m.deep_mean_all_layers for m in means if m is not None)
        c, r = (mean(cosine) if cosine else None), (mean(rho) if rho else None)
        values[name] = (c, r)
        key = keys.get(name)
        published = (DEEP_COSINE.get(key), DEEP_RHO.get(key)) if key else (EARLY_DFA["cosine"], EARLY_DFA["rho"])
        of_cosine, of_rho = published if applies else (None, None)
        rows.append([f"{label} {name}", signed(c), *beside(of_cosine, c), signed(r), *beside(of_rho, r)])
        figure.append({"state": name, "cosine": cosine, "rho": rho})
    for kind, what in (("reference", "control a = g"), ("random", "control a = random")):
        ours = mean(controls[kind]) if controls[kind] else None
        rows.append([what, "–", "–", "–", signed(ours), "–", "–"])  # the published controls are of another network
        figure.append({"state": what, "rho": controls[kind]})
    told = [f"{n} {signed(c, 2)} / {signed(r, 2)}" for n, (c, r) in values.items()]
    ranked = {n: r for n, (_, r) in values.items() if r is not None}
    best = max(ranked, key=lambda n: ranked[n], default="none")
    conclusion = f"deep cosine / ρ of {label}: {', '.join(told)}"
    conclusion += f"; the credit predicts loss changes best in the {best} state." if len(ranked) > 1 else "."
    header = ["state", "deep cosine", "published", "difference", "deep ρ", "published", "difference"]
    convention = (
        f"early = after epoch {EARLY}; penalised: λ = {PENALTY:g}; layers of 1..L that count, mean over seeds; "
        "controls of ρ on the same "
        "networks, all layers 1..L (published ones, +.997 and +.006, on a network trained by BP)"
    )
    return StudyResult(
        "triangulation", QUESTION, header, rows, {"kind": "points", "points": figure}, conclusion, convention
    )
