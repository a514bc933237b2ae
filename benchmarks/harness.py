"""Interleaved timing: every round runs each case, in an order of its own; best round and median of the rounds are kept."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Timing:
    rounds: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.rounds)


def interleaved(cases: Mapping[str, Callable[[], object]], rounds: int, repeat: int = 1) -> dict[str, Timing]:
    """Processor seconds of one call of each case (one thread: other processes on the machine count as little as possible)."""
    for call in cases.values():
        call()  # what is set up once is no part of it
    taken: dict[str, list[float]] = {name: [] for name in cases}
    order, shuffle = list(cases), random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            call = cases[name]
            call()  # the caches are its own before the clock starts
            start = time.process_time()
            for _ in range(repeat):
                call()
            taken[name].append((time.process_time() - start) / repeat)
    return {name: Timing(tuple(t)) for name, t in taken.items()}


@dataclass(frozen=True)
class Row:
    """One ratio: `case` over `against`, measured in the same run."""

    group: str
    case: str
    against: str
    best: float
    median: float
    target: float | None
    """Upper bound (lower bound where `at_least`); None: no target, shown for information."""
    at_least: bool = False
    note: str = ""

    @property
    def holds(self) -> bool | None:
        if self.target is None:
            return None
        return self.median >= self.target if self.at_least else self.median <= self.target


def ratio(
    group: str,
    times: Mapping[str, Timing],
    case: str,
    against: str,
    target: float | None = None,
    at_least: bool = False,
) -> Row:
    """`case` over `against` (`at_least`: how many times faster `case` is): of the best rounds, and the median over rounds of the
    ratio within the round, which a slower minute of the machine does not change."""
    a, b = times[case], times[against]
    if at_least:
        a, b = b, a
    median = statistics.median(x / y for x, y in zip(a.rounds, b.rounds, strict=True))
    return Row(group, case, against, a.best / b.best, median, target, at_least)


def text(rows: list[Row]) -> str:
    lines = [f"{'case':<46} {'against':<30} {'best':>7} {'median':>7} {'target':>8}"]
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            lines.append(f"-- {group}")
        sign = ">=" if row.at_least else "<="
        target = "" if row.target is None else f"{sign}{row.target:g}"
        verdict = {None: "", True: "  holds", False: "  MISSED"}[row.holds]
        note = f"  ({row.note})" if row.note else ""
        lines.append(f"{row.case:<46} {row.against:<30} {row.best:>7.3f} {row.median:>7.3f} {target:>8}{verdict}{note}")
    return "\n".join(lines)


def markdown(rows: list[Row]) -> str:
    lines = ["| what | against | best | median | target | |", "|---|---|---|---|---|---|"]
    for row in rows:
        target = "" if row.target is None else f"{'≥' if row.at_least else '≤'} {row.target:g}"
        verdict = {None: "", True: "holds", False: "**missed**"}[row.holds]
        note = f" ({row.note})" if row.note else ""
        lines.append(
            f"| {row.group}: {row.case} | {row.against} | {row.best:.3f} | {row.median:.3f} | {target} | {verdict}{note} |"
        )
    return "\n".join(lines)


def as_json(rows: list[Row]) -> list[dict[str, Any]]:
    return [{**asdict(row), "holds": row.holds} for row in rows]


def from_json(row: dict[str, Any]) -> Row:
    return Row(**{key: value for key, value in row.items() if key != "holds"})
