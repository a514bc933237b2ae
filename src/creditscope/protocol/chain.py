"""The walk-back chain: from accuracy and Γ to what the evidence carries, in four steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from creditscope.errors import CreditscopeError
from creditscope.measure.facts import Facts
from creditscope.protocol.checks import DIVERGED, Check, Judgement, chosen_margin
from creditscope.protocol.policies import (
    DEPTH_UNUSED,
    MODE_1,
    MODE_1_DRIFT,
    MODE_1_NOISE,
    MODE_2,
    SCALE_EXPLODES,
    Status,
    Verdict,
)
from creditscope.protocol.strategies import STRATEGIES, Case, Decision
from creditscope.protocol.wording import number, other_reading, signed

EVIDENCE = ("temporal", "intervention", "cross-architecture")
"""Kinds of evidence on which failure it is; each is one sentence, from a study."""
MEANINGS = {
    DIVERGED: "NaN or Inf was met",
    **dict.fromkeys(
        (MODE_1, MODE_1_DRIFT, MODE_1_NOISE),
        "the gradient at the last block has all but vanished, so Γ compares with next to nothing",
    ),
    SCALE_EXPLODES: "the hidden state explodes across a block",
    DEPTH_UNUSED: "random blocks do nearly as well as the trained ones, or better",
    MODE_2: "one layer carries most of Γ, so read the cosines layer by layer",
}
"""What the modes of a verdict mean, in plain words."""
WARNINGS = (MODE_2,)
"""Modes that are no failure."""
NOTHING_FAILED: Mapping[Status, str] = {
    "pass": "a minimum bar, not an endorsement",
    "inconsistent": "the stated accuracy does not fit the evaluation batches, so D3 was not judged",
}
"""What stands beside a verdict without a failure; of other statuses, that the verdict names what is open."""
NO_EVIDENCE = "no temporal, intervention or cross-architecture evidence was given"

S1_WORDS: Mapping[Decision, str] = {
    "accept": "accepts",
    "reject": "rejects",
    "not decidable": "cannot decide",
}
"""What strategy S1 does."""


class ChainStep(Judgement):
    """One step of the chain."""

    title: str
    answer: str
    sentence: str


def walk_back_chain(
    facts: Facts,
    verdict: Verdict,
    *,
    headline_acc: Sequence[float] = (),
    n_test: int | None = None,
    evidence: Mapping[str, str] | None = None,
) -> tuple[ChainStep, ChainStep, ChainStep, ChainStep]:
    """The four steps. `headline_acc`: one accuracy per seed; by default that of the depth margin, then of the evaluation samples.

    `n_test`: samples behind each of them. `evidence` maps "temporal", "intervention",
    "cross-architecture" to one sentence each; all are optional.
    """
    checks: dict[str, Check] = {check.id: check for check in verdict.checks}
    return (
        _claim(facts, tuple(headline_acc), n_test),
        _reference(checks["D2"], verdict.gamma_withheld),
        _blocks(checks["D3"]),
        _mode(verdict, evidence or {}),
    )


def _claim(facts: Facts, headline_acc: tuple[float, ...], n_test: int | None) -> ChainStep:
    stated = _accuracies(facts, headline_acc)
    gamma = facts.aggregate.headline if facts.aggregate else None
    parts = []
    if stated:
        seeds = len(stated)
        parts.append(f"accuracy {number(sum(stated) / seeds)}" + (f" (mean over {seeds} seeds)" if seeds > 1 else ""))
    if gamma is None:
        parts.append("Γ was not measured")
    else:
        behind = facts.alignment.layers_behind if facts.alignment else ""
        behind += other_reading(facts.aggregate) if facts.aggregate else ""
        parts.append(f"Γ = {signed(gamma)}{behind}" + (" (this network)" if len(stated) > 1 else ""))
    decision = S1_WORDS[s1(facts, headline_acc, n_test)]
    return ChainStep(
        title="Accuracy and Γ alone",
        answer=f"S1 {decision}",
        sentence=f"{' and '.join(parts)}: strategy S1 (accuracy above chance and Γ > 0) {decision}",
    )


def _accuracies(facts: Facts, headline_acc: tuple[float, ...]) -> tuple[float, ...]:
    margin = chosen_margin(facts)
    other = margin.accuracy if margin else facts.accuracy
    return headline_acc or (() if other is None or not math.isfinite(other) else (other,))


def s1(facts: Facts, headline_acc: Sequence[float] = (), n_test: int | None = None) -> Decision:
    """What strategy S1 decides on a network: its accuracy interval lies above chance, and Γ > 0.

    Arguments as in `walk_back_chain`. Without `n_test` the evaluation samples give the interval; without the classes of the
    labels there is no chance to compare with, and S1 cannot accept.
    """
    seen = facts.evaluation
    case = Case(
        accuracy=_accuracies(facts, tuple(headline_acc)) or None,
        chance=seen.chance if seen else None,
        gamma=facts.aggregate.headline if facts.aggregate else None,
        n_test=n_test or facts.convention.n_samples,
    )
    return STRATEGIES["S1"](case)


def _reference(d2: Check, withheld: bool) -> ChainStep:
    answer = {"pass": "yes", "fail": "no"}.get(d2.answer, d2.answer)
    gamma = "Γ is not interpretable here" if withheld else "Γ can be read" if answer == "yes" else "Γ needs care"
    return ChainStep(title="Is the reference measurable?", answer=answer, sentence=f"{d2.sentence}; {gamma}")


def _blocks(d3: Check) -> ChainStep:
    answer = {"pass": "yes", "fail": "no"}.get(d3.answer, d3.answer)
    return ChainStep(title="Do trained blocks beat random blocks?", answer=answer, sentence=d3.sentence)


def _mode(verdict: Verdict, evidence: Mapping[str, str]) -> ChainStep:
    unknown = [kind for kind in evidence if kind not in EVIDENCE]
    if unknown:
        raise CreditscopeError(f"unknown kind of evidence {unknown[0]!r}: use {', '.join(EVIDENCE)}")
    given = [f"{kind}: {evidence[kind]}" for kind in EVIDENCE if evidence.get(kind)]
    failures = [mode for mode in verdict.modes if mode not in WARNINGS]
    meanings = [MEANINGS[mode] for mode in failures]
    if not failures:
        meanings = [NOTHING_FAILED.get(verdict.status, "the verdict says what is open")]
    meanings += [f"warning, {mode}: {MEANINGS[mode]}" for mode in verdict.modes if mode in WARNINGS]
    return ChainStep(
        title="What failed?",
        answer="; ".join(failures) or _nothing(verdict),
        sentence="; ".join((*meanings, *(given or [NO_EVIDENCE]))),
    )


def _nothing(verdict: Verdict) -> str:
    if verdict.status == "pass":
        return "no audited failure found"
    return f"{' and '.join(verdict.warned)} alone, which does not decide" if verdict.warned else "nothing so far"
