"""Random targets: labels redrawn for every batch. Growth that appears here needs no signal at all."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.render.numbers import num, signed
from creditscope.studies.grid import BP, DFA, DFA_NONE, EP, FA, make, seeds_of
from creditscope.studies.published import RANDOM_TARGET_H
from creditscope.studies.result import Run, StudyResult, mean, names
from creditscope.training.spec import RunSpec

QUESTION = "does the stream grow where there is nothing to learn?"
GREW = 10.0
"""‖h_L‖ at the end over its start from which we say that it grew."""


def specs(preset: str) -> list[RunSpec]:
    methods = (BP, EP, FA, DFA, DFA_NONE)
    return [make(preset, m, seed, targets="random") for seed in seeds_of(preset) for m in methods]


def factor(run: Run) -> float:
    """‖h_L‖ after training over ‖h_L‖ at initialisation."""
    return float(run.trajectory[-1]["h"][-1]) / float(run.trajectory[0]["h"][-1])


def analyse(runs: Sequence[Run]) -> StudyResult:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.spec.label, []).append(run)
    rows, lines = [], []
    for label, mine in groups.items():
        last = mine[0].trajectory[-1]["epoch"]
        for epoch in sorted({0, 1, 2, 3, last} & {x["epoch"] for x in mine[0].trajectory}):
            h = mean([float(r.trajectory[epoch]["h"][-1]) for r in mine])
            applies = mine[0].spec.method == "dfa" and mine[0].spec.dataset == "cifar10"
            paper = RANDOM_TARGET_H.get(epoch) if applies else None
            cells = [num(paper.value), signed(h - paper.value, 0)] if paper else ["–", "–"]
            fired = sorted({check for r in mine for check in r.trajectory[epoch]["fired"]})
            rows.append([label, str(epoch), num(h), *cells, " ".join(fired) or "none"])
        lines += [{"label": label, "seed": r.spec.seed, "h_L": [x["h"][-1] for x in r.trajectory]} for r in mine]
    grew = [label for label, mine in groups.items() if mean([factor(r) for r in mine]) > GREW]
    told = f"{len(grew)} of {len(groups)} rules ({names(grew)})"
    conclusion = f"without any signal, ‖h_L‖ grows more than {GREW:g}-fold under {told}."
    header = ["method", "epoch", "‖h_L‖", "published", "difference", "checks that fire"]
    convention = "labels redrawn for every batch; mean over samples and seeds"
    return StudyResult(
        "random-target", QUESTION, header, rows, {"kind": "lines", "lines": lines}, conclusion, convention
    )
