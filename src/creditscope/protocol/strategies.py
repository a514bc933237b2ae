"""Reporting strategies for the ablation: what a reader would accept who looks at less than the whole protocol.

| strategy | accepts if |
|---|---|
| S0 | the accuracy interval lies above chance |
| S1 | S0 and headline Γ > 0 |
| S2 | S1 and not (D1 and D2) |
| S3 | S2 and not D3 |

v1's seven columns: S0, S1, then S1 with one diagnostic each, +(a) +(b) +(c) +(d), and `full` = S1 and none of (a), (b),
(d), as the four-diagnostic policy has it ((c) only names the sub-mode). A check that is inconclusive, not measurable or
not measured leaves a strategy `not decidable`, unless another part already rejects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

from creditscope.errors import CreditscopeError
from creditscope.measure.depth import Accuracy
from creditscope.protocol.checks import Answer
from creditscope.protocol.intervals import accuracy_interval

Decision: TypeAlias = Literal["accept", "reject", "not decidable"]


@dataclass(frozen=True)
class Case:
    """One audited method as a reader sees it. `accuracy` is a number or one per seed; `chance` is None where it is not known;
    `answers` maps D1, D2, D3, C."""

    accuracy: Accuracy | None
    chance: float | None
    gamma: float | None = None
    answers: Mapping[str, Answer] = field(default_factory=dict)
    n_test: int | None = None


# A condition is True, False, or None where it cannot be decided.
Condition: TypeAlias = bool | None


def above_chance(case: Case) -> Condition:
    """S0's condition: the accuracy interval lies above chance (an interval that touches chance does not)."""
    if case.chance is None:
        return None
    if not 0.0 <= case.chance <= 1.0:
        raise CreditscopeError(f"chance must be in [0, 1], got {case.chance!r}")
    return None if case.accuracy is None else accuracy_interval(case.accuracy, case.n_test).low > case.chance


def positive_gamma(case: Case) -> Condition:
    """S1's condition: headline Γ > 0 (a NaN is not)."""
    return None if case.gamma is None else case.gamma > 0


def clear(*ids: str) -> Callable[[Case], Condition]:
    """Condition: not all of these checks are raised."""

    def condition(case: Case) -> Condition:
        raised = [{"fail": True, "pass": False}.get(case.answers.get(id_, "not measured")) for id_ in ids]
        if False in raised:
            return True
        return None if None in raised else False

    return condition


def all_of(*conditions: Callable[[Case], Condition]) -> Callable[[Case], Decision]:
    """Reject if one condition is False, accept if all are True, otherwise not decidable."""

    def decide(case: Case) -> Decision:
        results = [condition(case) for condition in conditions]
        if False in results:
            return "reject"
        return "not decidable" if None in results else "accept"

    return decide


_S1 = (above_chance, positive_gamma)

STRATEGIES: Mapping[str, Callable[[Case], Decision]] = MappingProxyType(
    {
        "S0": all_of(above_chance),
        "S1": all_of(*_S1),
        "S2": all_of(*_S1, clear("D1", "D2")),
        "S3": all_of(*_S1, clear("D1", "D2"), clear("D3")),
    }
)

V1_COLUMNS: Mapping[str, Callable[[Case], Decision]] = MappingProxyType(
    {
        "S0": STRATEGIES["S0"],
        "S1": STRATEGIES["S1"],
        "+(a)": all_of(*_S1, clear("D1")),
        "+(b)": all_of(*_S1, clear("D2")),
        "+(c)": all_of(*_S1, clear("C")),
        "+(d)": all_of(*_S1, clear("D3")),
        "full": all_of(*_S1, clear("D1"), clear("D2"), clear("D3")),
    }
)


def decide(case: Case, strategies: Mapping[str, Callable[[Case], Decision]] = STRATEGIES) -> dict[str, Decision]:
    """The decision of every strategy on one case, in order."""
    return {name: strategy(case) for name, strategy in strategies.items()}
