"""Credit norm: is the published contrast between FA and DFA one between normalisations?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from creditscope.protocol.intervals import t_interval
from creditscope.studies.audit import Group, audit
from creditscope.studies.compared import compared
from creditscope.studies.grid import DFA, DFA_NONE, FA, FA_RMS, make, seeds_of, with_nulls
from creditscope.studies.published import audit_accuracy
from creditscope.studies.result import Run, StudyResult, geometric, named, over, shared_seeds
from creditscope.training.spec import RunSpec

QUESTION = "is the contrast between FA and DFA one of methods or of normalisations?"


def specs(preset: str) -> list[RunSpec]:
    cells = (FA, FA_RMS, DFA_NONE, DFA)
    first = seeds_of(preset)[0]
    sites = (make(preset, m, first, intervention=True, credit_site=site) for m in cells for site in ("input", "output"))
    return with_nulls([*(make(preset, m, seed) for seed in seeds_of(preset) for m in cells), *sites])


def contrasts(growth: Mapping[tuple[str, str], float]) -> tuple[list[float], list[float]]:
    """Factors of growth from none to rms (FA, DFA), and from FA to DFA (none, rms)."""
    by_norm = [growth[m, "rms"] / growth[m, "none"] for m in ("fa", "dfa")]
    return by_norm, [growth["dfa", n] / growth["fa", n] for n in ("none", "rms")]


def weighed(cells: Mapping[tuple[str, str], Group], shared: Sequence[int]) -> str:
    """Which changes growth more: the effect of the method over that of the norm is DFA none / FA rms, seed by seed."""
    by_seed = [
        dict(zip(cells[key].seeds, cells[key].values("growth"), strict=True))
        for key in (("dfa", "none"), ("fa", "rms"))
    ]
    ratios = [by_seed[0][s] / by_seed[1][s] for s in shared]
    told = f"the method's factor is {geometric(ratios):.2g} times the norm's"
    interval = t_interval([math.log(r) for r in ratios])
    if interval is None:
        return f"{told}; one seed does not decide which is larger"
    low, high = map(math.exp, interval)
    larger = (
        "the method's is larger"
        if low > 1
        else "the norm's is larger"
        if high < 1
        else "which is larger is not decided"
    )
    return f"{told} (95 % interval {low:.2g} to {high:.2g}, paired t of the logarithms): {larger}"


def analyse(runs: Sequence[Run]) -> StudyResult:
    groups = audit(runs)
    longest = max((g.spec.epochs or 0 for g in groups), default=0)
    cells = {
        (g.spec.method, str(g.spec.credit_norm)): g
        for g in groups
        if g.spec.credit_site == "input" and g.spec.epochs == longest
    }
    if len(cells) == 4 and (shared := shared_seeds({k: g.seeds for k, g in cells.items()})):
        by_norm, by_method = contrasts(
            {k: over(shared, g.seeds, g.values("growth"), geometric) for k, g in cells.items()}
        )
        conclusion = (
            f"over {named(shared)}, rms instead of none multiplies growth by {by_norm[0]:.2g} (FA) and {by_norm[1]:.2g} (DFA); "
            f"DFA instead of FA by {by_method[0]:.2g} (none) and {by_method[1]:.2g} (rms): {weighed(cells, shared)}."
        )
    else:
        conclusion = f"{len(cells)} of the 4 cells are there; the comparison needs all, with a seed in common."
    return compared(
        "credit-norm",
        QUESTION,
        groups,
        "norm",
        lambda g: str(g.spec.credit_norm),
        lambda g: audit_accuracy(g.spec),
        conclusion,
    )
