"""Credit norm: is the contrast between FA and DFA one between normalisations?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from creditscope.protocol.intervals import t_interval
from creditscope.runs.groups import Group
from creditscope.studies.grid import DFA, DFA_NONE, FA, FA_RMS, grid, make, seeds_of, with_nulls
from creditscope.studies.study import METHOD, Axis, Study, mean_over, of_seeds, shared_seeds
from creditscope.tables import Cell, Statement, Table, geometric_mean, state
from creditscope.training.spec import RunSpec

Cells = Mapping[tuple[str, str], Group]
"""(method, norm) -> group."""


def specs(preset: str) -> list[RunSpec]:
    cells = (FA, FA_RMS, DFA_NONE, DFA)
    first = seeds_of(preset)[0]
    sites = (make(preset, m, first, intervention=True, credit_site=site) for m in cells for site in ("input", "output"))
    return with_nulls([*grid(preset, cells), *sites])


def contrasts(growth: Mapping[tuple[str, str], float]) -> tuple[list[float], list[float]]:
    """Factors of growth from none to rms (FA, DFA), and from FA to DFA (none, rms)."""
    by_norm = [growth[m, "rms"] / growth[m, "none"] for m in ("fa", "dfa")]
    return by_norm, [growth["dfa", n] / growth["fa", n] for n in ("none", "rms")]


def method_over_norm(cells: Cells, seeds: Sequence[int]) -> Cell:
    """The method's factor over the norm's, DFA none / FA rms, seed by seed: above 1 the method changes growth more.

    The interval is the paired t of the logarithms.
    """
    dfa, fa = (of_seeds(cells[key], "growth", seeds) for key in (("dfa", "none"), ("fa", "rms")))
    ratios = [a / b for a, b in zip(dfa, fa, strict=True)]
    ends = t_interval([math.log(r) for r in ratios])
    low, high = map(math.exp, ends) if ends else (None, None)
    return Cell(geometric_mean(ratios), low, high, len(ratios), values=tuple(ratios))


def weighed(cells: Cells, seeds: Sequence[int]) -> Statement:
    ratio = method_over_norm(cells, seeds)
    if ratio.low is None or ratio.high is None:
        return state("weighed by one seed", ratio=ratio.value)
    larger = "method" if ratio.low > 1 else "norm" if ratio.high < 1 else "open"
    return state(f"weighed: {larger}", ratio=ratio.value, low=ratio.low, high=ratio.high)


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    longest = max((g.spec.epochs or 0 for g in groups), default=0)
    cells = {
        (g.spec.method, str(g.spec.credit_norm)): g
        for g in groups
        if g.spec.credit_site == "input" and g.spec.epochs == longest
    }
    shared = shared_seeds(*(g.seeds for g in cells.values()))
    if len(cells) < 4 or not shared:
        yield state("cells missing", cells=len(cells))
        return
    by_norm, by_method = contrasts({k: mean_over(g, "growth", shared) for k, g in cells.items()})
    yield state("credit-norm", seeds=shared, by_norm=by_norm, by_method=by_method, weighed=weighed(cells, shared))


STUDY = Study(
    "credit-norm",
    "do FA and DFA differ by method or by normalisation?",
    specs,
    axes=(Axis("norm", "credit_norm", lambda s: s.credit_norm), METHOD),
    conclude=conclude,
)
