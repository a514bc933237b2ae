"""Fresh-B null: is the alignment specific to the feedback matrices that the network was trained with?"""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.render.numbers import num, signed
from creditscope.studies.grid import DFA, FA, make, seeds_of
from creditscope.studies.published import FRESH_B
from creditscope.studies.result import Run, StudyResult, beside, names
from creditscope.training.spec import RunSpec

QUESTION = "does the deep cosine survive when the feedback matrices are redrawn?"
PENALTY = 1e-2
Z = 3.0
PUBLISHED_SEED = 42


def specs(preset: str) -> list[RunSpec]:
    return [
        make(preset, method, seed, penalty=PENALTY, intervention=True)
        for seed in seeds_of(preset)
        for method in (FA, DFA)
    ]


def analyse(runs: Sequence[Run]) -> StudyResult:
    rows, points, specific, measured = [], [], [], 0
    samples: set[int] = set()
    for run in runs:
        fact = run.full(None).fresh_b
        if fact is None or fact.trained is None:
            rows.append(
                [
                    run.spec.label,
                    str(run.spec.seed),
                    "–",
                    "–",
                    "–",
                    "–",
                    "–",
                    "–",
                    fact.reason if fact else "not measured",
                ]
            )
            continue
        measured += 1
        samples.add(fact.n_samples)
        if fact.z is not None and abs(fact.z) > Z:
            specific.append(f"{run.spec.label} s{run.spec.seed}")
        applies = (run.spec.dataset, run.spec.method, run.spec.seed) == ("cifar10", "dfa", PUBLISHED_SEED)
        rows.append(
            [
                run.spec.label,
                str(run.spec.seed),
                signed(fact.trained),
                *beside(FRESH_B["trained"] if applies else None, fact.trained),
                f"{signed(fact.mean)} ± {num(fact.std, 2)}",
                FRESH_B["mean"].text if applies else "–",
                signed(fact.z, 2),
                fact.reason,
            ]
        )
        points.append(
            {"label": run.spec.label, "seed": run.spec.seed, "trained": fact.trained, "draws": list(fact.draws)}
        )
    conclusion = (
        f"in {len(specific)} of {measured} runs ({names(specific)}) the trained matrices lie more than {Z:g} standard deviations "
        "from redrawn ones: there, the alignment is with these matrices, not with any that are drawn alike."
    )
    header = ["method", "seed", "trained", "published", "difference", "redrawn (20)", "published", "z", "note"]
    convention = (
        f"deep mean cosine without exact layers, λ = {PENALTY:g}, the same {' or '.join(map(str, sorted(samples)))} samples for "
        "both; z = (trained - mean of the redrawn) / their standard deviation; each row one network"
    )
    return StudyResult("freshb", QUESTION, header, rows, {"kind": "strips", "points": points}, conclusion, convention)
