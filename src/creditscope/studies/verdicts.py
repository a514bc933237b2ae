"""Published verdicts held against ours: passes or fails, of a network as a whole, of one check or of a strategy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from creditscope.protocol.report import DiagnosticReport
from creditscope.protocol.strategies import V1_COLUMNS
from creditscope.studies.ablation import case_of
from creditscope.studies.audit import Group, audit
from creditscope.studies.claims import about, epochs
from creditscope.studies.published import UNSTATED
from creditscope.studies.published_verdicts import MODE_1, PublishedVerdict, published_verdicts
from creditscope.studies.reproduction import (
    NOT_COMPARABLE,
    NOT_ONE_RUN,
    NOT_REPRODUCED,
    NOT_RUN,
    ONE_NORM,
    ONE_RUN,
    REPRODUCED,
    other_length,
)
from creditscope.studies.result import Run

INCONCLUSIVE = "inconclusive"
ONE_OPEN = "reproduced with one norm, inconclusive with the other"
NOT_ONE_OPEN = "not reproduced with one norm, inconclusive with the other"
CHECK = re.compile(r"\bD[123]\b")
WORDS = {"pass": "passes", "fail": "fails", "inconclusive": "inconclusive"}


@dataclass(frozen=True)
class Judged:
    """Our networks under one credit norm ("" where none applies), one per seed."""

    norm: str
    answers: tuple[str, ...]
    hashes: tuple[str, ...]
    trained: int
    failed: str = ""
    """The checks that failed, of a whole verdict."""

    def agrees(self, passes: bool) -> bool | None:
        """True if every seed says so, False if every seed says the contrary, else None."""
        wanted, other = ("pass", "fail") if passes else ("fail", "pass")
        return {frozenset([wanted]): True, frozenset([other]): False}.get(frozenset(self.answers))

    @property
    def text(self) -> str:
        told = {a: WORDS.get(a, "not measured") for a in dict.fromkeys(self.answers)}
        n = len(self.answers)
        if len(told) == 1:
            return f"{next(iter(told.values()))} ({self.failed + '; ' if self.failed else ''}n={n})"
        return ", ".join(f"{word} in {self.answers.count(a)} of {n} seeds" for a, word in told.items())


def judged(said: PublishedVerdict, groups: Sequence[Group]) -> list[Judged]:
    """Our networks that the verdict is about, by norm; of several lengths of training the one nearest to the published."""
    nearest: dict[str, Group] = {}
    for g in groups:
        norm = g.spec.credit_norm or ""
        if about(said.runs, g.spec) and (norm not in nearest or _far(said, g) < _far(said, nearest[norm])):
            nearest[norm] = g
    return [
        Judged(
            norm,
            _answers(said.check, g),
            tuple(b.spec.hash for b in g.bundles),
            g.spec.epochs or 0,
            ""
            if said.check
            else ", ".join(sorted({d for r in g.reports for f in r.verdict.failed for d in CHECK.findall(f)})),
        )
        for norm, g in sorted(nearest.items())
    ]


def _answers(check: str, group: Group) -> tuple[str, ...]:
    """One per seed; a strategy decides on all seeds together, as a reader does."""
    if check in V1_COLUMNS:
        decided = {"accept": "pass", "reject": "fail", "not decidable": "inconclusive"}[
            V1_COLUMNS[check](case_of(group))
        ]
        return (decided,) * len(group.reports)
    return tuple(_answer(check, r) for r in group.reports)


def _answer(check: str, report: DiagnosticReport) -> str:
    if check != MODE_1:
        return report.checks[check].answer if check else report.status
    answers = {report.checks[d].answer for d in ("D1", "D2")}
    return "fail" if answers == {"fail"} else "pass" if "pass" in answers else "inconclusive"


def _far(said: PublishedVerdict, group: Group) -> int:
    return abs((group.spec.epochs or 0) - epochs(said.runs))


def state(said: PublishedVerdict, ours: Sequence[Judged]) -> tuple[str, str]:
    """(kind, statement): from the answers alone."""
    if not ours:
        return NOT_RUN, NOT_RUN
    if said.because:
        return NOT_COMPARABLE, f"not comparable because {said.because}"
    wanted = epochs(said.runs)
    comparable = [o for o in ours if o.trained == wanted]
    if not comparable:
        answers = {o.agrees(said.passes) for o in ours}
        told = " (the same verdict)" if answers == {True} else " (another verdict)" if answers == {False} else ""
        why = other_length((o.trained for o in ours), wanted, UNSTATED not in said.note)
        return NOT_COMPARABLE, f"not comparable because {why}{told}"
    by_answer: dict[bool | None, list[str]] = {}
    for o in comparable:
        by_answer.setdefault(o.agrees(said.passes), []).append(o.norm)
    if len(by_answer) == 1:
        ((answer, norms),) = by_answer.items()
        kind = {True: REPRODUCED, False: NOT_REPRODUCED, None: INCONCLUSIVE}[answer]
        if norms not in (["none"], ["rms"]):
            return kind, kind
        if answer:
            return ONE_RUN, f"reproduced with credit_norm={norms[0]}; the other was not run"
        return NOT_ONE_RUN if answer is False else kind, f"{kind} (only credit_norm={norms[0]} was run)"
    kind = ONE_NORM if None not in by_answer else ONE_OPEN if True in by_answer else NOT_ONE_OPEN
    words = {True: "reproduced", None: "inconclusive", False: "not reproduced"}
    return kind, "; ".join(f"{word} with credit_norm={by_answer[a][0]}" for a, word in words.items() if a in by_answer)


@dataclass(frozen=True)
class VerdictOutcome:
    said: PublishedVerdict
    ours: tuple[Judged, ...]
    kind: str
    statement: str


def verdict_outcomes(runs: Sequence[Run]) -> list[VerdictOutcome]:
    groups = audit(runs)
    found = []
    for said in published_verdicts():
        ours = judged(said, groups)
        found.append(VerdictOutcome(said, tuple(ours), *state(said, ours)))
    return found
