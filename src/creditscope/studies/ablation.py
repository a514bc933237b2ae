"""Decision utility: which reporting strategy accepts which network (S0-S3, and v1's seven columns)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from creditscope.protocol.strategies import STRATEGIES, V1_COLUMNS, Case, Decision, decide
from creditscope.runs.groups import Group, audit
from creditscope.runs.record import Record
from creditscope.studies.audit import specs
from creditscope.studies.study import METHOD, Study, judged
from creditscope.tables import Cell, Column, Plot, Row, Table, state

COLUMNS = {
    "S0": "accepted if accuracy is above chance",
    "S1": "S0, and Γ > 0: what papers report",
    "S2": "S1, and not both D1 and D2",
    "S3": "S2, and not D3: the three-check protocol",
    "+(a)": "S1 and D1 alone",
    "+(b)": "S1 and D2 alone",
    "+(c)": "S1 and C alone",
    "+(d)": "S1 and D3 alone",
    "full": "S1, and none of D1, D2 and D3",
}


def over_seeds(group: Group) -> dict[str, Any]:
    """One answer per check: what all seeds say; `inconclusive` where they disagree."""
    return {check: group.answer(check, "inconclusive") for check in group.reports[0].checks}


def case_of(group: Group) -> Case:
    return replace(group.case, answers=over_seeds(group))


def decisions(group: Group) -> dict[str, Decision]:
    case = case_of(group)
    return {**decide(case, V1_COLUMNS), **decide(case)}


def build(study: Study, records: Sequence[Record]) -> Table:
    groups = audit(records)
    decided = {g.label: decisions(g) for g in groups}
    caught = [k for k, d in decided.items() if (d["S1"], d["S3"]) == ("accept", "reject")]
    conclusion = state(
        "ablation",
        groups=len(groups),
        caught=caught,
        late=[k for k in caught if decided[k]["S2"] == "accept"],
        healthy=[k for k, d in decided.items() if all(d[s] == "accept" for s in STRATEGIES)],
        open=[k for k, d in decided.items() if d["S3"] == "not decidable"],
    )
    rows = [
        Row({"method": Cell(g.label), **{k: Cell(v, n=len(g.seeds)) for k, v in decided[g.label].items()}}, g.hashes)
        for g in groups
    ]
    columns = [METHOD.column, *(Column(k, about=about) for k, about in COLUMNS.items())]
    by_strategy = tuple(
        Row({"method": Cell(label), "strategy": Cell(name), "decision": Cell(decided[label][name])})
        for label in decided
        for name in COLUMNS
    )
    drawn = Table("decisions", study.question, (METHOD.column, Column("strategy"), Column("decision")), by_strategy)
    plots = (Plot("method", "decision", "strategy", drawn),)
    return study.made(columns, rows, conclusion, convention=(state("strategies"), *judged(groups)), plots=plots)


STUDY = Study(
    "ablation", "which failures do you accept if you look at less than the whole protocol?", specs, build=build
)
