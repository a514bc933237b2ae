"""Decision utility: which reporting strategy accepts which network (S0-S3, and v1's seven columns)."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.protocol.checks import Answer
from creditscope.protocol.strategies import STRATEGIES, V1_COLUMNS, Case, answers_of, decide
from creditscope.studies.audit import Group, audit, convention, n_classes, specs
from creditscope.studies.result import Run, StudyResult, mean, names

QUESTION = "which failures does a reader accept who looks at less than the whole protocol?"
__all__ = ["analyse", "specs"]

V1_ONLY = tuple(name for name in V1_COLUMNS if name not in STRATEGIES)
STRATEGY_WORDS = (
    "accepted by S0: accuracy above chance; S1: and Γ > 0; S2: and not both D1 and D2 fail; S3: and D3 does not fail; +(a) to "
    "+(d): S1 and that diagnostic does not fail (scale, reference, stability, depth); full: S1 and none of (a), (b), (d) fails, "
    "so D1 or D2 alone rejects; not decidable: what would decide is inconclusive or not measured"
)


def over_seeds(group: Group) -> dict[str, Answer]:
    """One answer per check: what all seeds say; `inconclusive` where they disagree."""
    each = [answers_of(r.verdict.checks) for r in group.reports]
    return {k: each[0][k] if len({a[k] for a in each}) == 1 else "inconclusive" for k in each[0]}


def case_of(group: Group) -> Case:
    gammas = group.values("gamma")
    return Case(
        accuracy=group.accuracies,
        chance=1 / n_classes(group.spec),
        gamma=mean(gammas) if gammas else None,
        answers=over_seeds(group),
        n_test=group.bundles[0].n_test,
    )


def analyse(runs: Sequence[Run]) -> StudyResult:
    groups = audit(runs)
    decisions = {}
    for g in groups:
        case = case_of(g)
        v1 = decide(case, V1_COLUMNS)
        decisions[g.label] = {**decide(case), **{name: v1[name] for name in V1_ONLY}}
    columns = [*STRATEGIES, *V1_ONLY]
    caught = [k for k, d in decisions.items() if d["S1"] == "accept" and d["S3"] == "reject"]
    late = [k for k in caught if decisions[k]["S2"] == "accept"]
    healthy = [k for k, d in decisions.items() if all(d[s] == "accept" for s in STRATEGIES)]
    open_ = [k for k, d in decisions.items() if d["S3"] == "not decidable"]
    conclusion = (
        f"of {len(decisions)} methods, accuracy + Γ (S1) accepts {len(caught)} that the whole protocol (S3) rejects "
        f"({names(caught)}), "
        f"{len(late)} of them only by D3{f' ({names(late)})' if late else ''}; all four strategies accept {names(healthy)}"
        + (f"; not decidable: {names(open_)}." if open_ else ".")
    )
    rows = [[label, *(d[c] for c in columns)] for label, d in decisions.items()]
    figure = {"kind": "matrix", "columns": columns, "rows": decisions}
    return StudyResult(
        "ablation", QUESTION, ["method", *columns], rows, figure, conclusion, f"{STRATEGY_WORDS}; {convention(groups)}"
    )
