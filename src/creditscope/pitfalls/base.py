"""What a pitfall is: a mistake with a name, a reproducer that shows it, and detectors that find it elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from torch import Tensor, nn

    from creditscope.measure.facts import Facts
    from creditscope.pitfalls.evidence import Evidence
    from creditscope.pitfalls.source import Source
else:  # only annotations name them: the scanner needs the standard library alone
    Evidence = Facts = Tensor = nn = Any

__all__ = [
    "NO_COSINE", "NO_REPORT", "Answer", "Evidence", "Facts", "Numbers", "Pitfall", "Reproduction", "Spot", "Tensor", "clear",
    "found", "from_facts", "nn", "times", "unknown",
]  # fmt: skip

Status = Literal["clear", "found", "cannot be told"]
Numbers = dict[str, Any]
"""What a reproducer gives: `wrong`, `right`, and what else the sentence of the catalogue shows."""


@dataclass(frozen=True)
class Reproduction:
    """One pitfall as it happens: the same thing measured wrongly and rightly."""

    what: str
    """What the two numbers are, with their unit."""
    wrong: float
    right: float
    sentence: str

    @property
    def factor(self) -> float:
        """How many times larger the larger of the two is, by size; infinite where one of them is zero."""
        return times(self.wrong, self.right)


def times(one: float, other: float) -> float:
    """Larger size over smaller size: 1 where they are equal, infinite where only one is zero."""
    small, large = sorted((abs(one), abs(other)))
    if small == large:
        return 1.0
    return large / small if small > 0 else math.inf


@dataclass(frozen=True)
class Spot:
    """A place in a file where a rule fires; rows from 1, columns from 1, counted in characters."""

    line: int
    col: int
    end_line: int
    message: str
    """What is wrong here."""


@dataclass(frozen=True)
class Answer:
    """What the files of a bundle say about one pitfall."""

    status: Status
    sentence: str


clear, found, unknown = (partial(Answer, status) for status in get_args(Status))
NO_REPORT, NO_COSINE = unknown("report.json cannot be read"), unknown("no cosine was measured")


def from_facts(judge: Callable[[Facts], Answer]) -> Callable[[Evidence], Answer]:
    """The audit of a pitfall that the facts of the report decide."""

    def audit(evidence: Evidence) -> Answer:
        return NO_REPORT if evidence.facts is None else judge(evidence.facts)

    return audit


@dataclass(frozen=True)
class Pitfall:
    """One entry of the catalogue: its words (catalogue.json) and what its module does."""

    number: int
    title: str
    why: str
    fix: str
    measured: str
    """What the two numbers of the reproducer are, with their unit."""
    shown: str
    """The sentence about them; both are filled in with the reproducer's numbers."""
    numbers: Callable[[], Numbers]
    audit: Callable[[Evidence], Answer]
    """Reads the files of a bundle."""
    code: Callable[[Source], Iterator[Spot]] | None = None
    """Reads a user's Python; None where source code alone cannot show the mistake."""
    tensors: Callable[..., str | None] | None = None
    """Looks at a user's own values: one sentence where the pitfall is met, None where it is not."""

    @property
    def id(self) -> str:
        return f"PF{self.number:02d}"

    def reproduce(self) -> Reproduction:
        n = self.numbers()
        return Reproduction(self.measured.format(**n), n["wrong"], n["right"], self.shown.format(**n))
