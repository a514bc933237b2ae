"""The walk-back chain: from the claim that accuracy and Γ invite to what the evidence carries, in four steps."""

from __future__ import annotations

from collections.abc import Mapping

from creditscope.errors import CreditscopeError
from creditscope.measure.facts import Facts
from creditscope.protocol.checks import Check, Judgement, chosen_margin
from creditscope.protocol.policies import Verdict
from creditscope.protocol.wording import other_reading, signed

EVIDENCE = ("temporal", "intervention", "cross-architecture")
"""Kinds of evidence on which mode it is; each is one sentence, from a study."""


class ChainStep(Judgement):
    """One step of the chain."""

    title: str
    answer: str
    sentence: str


def walk_back_chain(
    facts: Facts,
    verdict: Verdict,
    *,
    headline_acc: float | None = None,
    seeds: int = 1,
    evidence: Mapping[str, str] | None = None,
) -> tuple[ChainStep, ChainStep, ChainStep, ChainStep]:
    """The four steps. `headline_acc` defaults to the accuracy of the depth margin, then of the evaluation samples.

    `seeds`: how many accuracies `headline_acc` is the mean of. `evidence` maps "temporal", "intervention",
    "cross-architecture" to one sentence each; all are optional.
    """
    checks: dict[str, Check] = {check.id: check for check in verdict.checks}
    return (
        _claim(facts, headline_acc, seeds),
        _reference(checks["D2"], verdict.gamma_withheld),
        _blocks(checks["D3"]),
        _mode(verdict, evidence or {}),
    )


def _claim(facts: Facts, headline_acc: float | None, seeds: int) -> ChainStep:
    margin = chosen_margin(facts)
    accuracy = headline_acc if headline_acc is not None else margin.accuracy if margin else facts.accuracy
    gamma = facts.aggregate.headline if facts.aggregate else None
    parts = []
    if accuracy is not None:
        parts.append(f"accuracy {accuracy:.4g}" + (f" (mean over {seeds} seeds)" if seeds > 1 else ""))
    if gamma is not None:
        behind = facts.alignment.layers_behind if facts.alignment else ""
        behind += other_reading(facts.aggregate) if facts.aggregate else ""
        parts.append(f"Γ = {signed(gamma)}{behind}" + (" (this network)" if seeds > 1 else ""))
    if gamma is None:
        answer, claim = "no claim on credit", "Γ was not measured, so nothing is claimed about credit"
    elif gamma > 0:
        answer, claim = "credit aligned", "taken alone they would claim that the credit is aligned with the BP gradient"
    else:
        answer, claim = "credit not aligned", "taken alone they would not claim alignment with the BP gradient"
    return ChainStep(
        title="What accuracy and Γ would claim",
        answer=answer,
        sentence=": ".join([*([" and ".join(parts)] if parts else []), claim]),
    )


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
    return ChainStep(
        title="Which mode is it?",
        answer=verdict.mode or "no audited failure found",
        sentence="; ".join(given)
        or "by the checks alone; no temporal, intervention or cross-architecture evidence was given",
    )
