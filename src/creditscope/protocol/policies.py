"""Verdict policies: named, versioned rules that turn the answers of the checks into one line.

A policy reads answers, never numbers. A pass means "no audited failure found", a minimum bar. To add a policy, write
one `Policy` and put it in `POLICIES`; a change of rule is a new version string.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from pydantic import model_validator

from creditscope.errors import CreditscopeError
from creditscope.measure.concentration import concentrated
from creditscope.measure.facts import Facts
from creditscope.protocol.checks import (
    DIVERGED,
    Check,
    Judgement,
    chosen_margin,
    floor_by_scale,
    non_finite,
    run_checks,
)
from creditscope.protocol.consistency import inconsistent, no_accuracy, null_at_chance
from creditscope.protocol.estimate import disagreement, estimate
from creditscope.protocol.thresholds import DiagnosticThresholds, changed
from creditscope.protocol.warnings import warnings_for

Status: TypeAlias = Literal["pass", "fail", "inconsistent", "inconclusive", "incomplete"]

MODE_1 = "Mode 1: measurement degenerate"
MODE_1_DRIFT = f"{MODE_1} (drift-dominated)"
MODE_1_NOISE = f"{MODE_1} (noise-dominated)"
MODE_2 = "Mode 2: alignment concentrated in one layer"
SCALE_EXPLODES = "scale explodes"
DEPTH_UNUSED = "depth unused"

MOSTLY = 0.5
"""Share of the evaluation samples that repeat others from which on the verdict names it."""
VERDICT = "VERDICT: "
"""How the line of a verdict begins."""
JUDGED = ("D1", "D2", "D3")
"""The checks that a verdict rests on; C is interpretive."""


@dataclass(frozen=True)
class Findings:
    """What a policy concludes from the answers: what fails, and what could still turn the verdict."""

    failed: tuple[str, ...] = ()
    """Readable names of the failures, as they stand in the verdict line."""
    open: tuple[str, ...] = ()
    """Readable names of the inconclusive checks that could turn a pass into a failure."""
    deciding: tuple[str, ...] = ()
    """Ids of the checks behind `failed`."""
    mode: tuple[str, ...] = ()


@dataclass(frozen=True)
class Policy:
    """A named, versioned verdict rule over the checks by id."""

    name: str
    version: str
    rule: str
    """The rule in one sentence."""
    find: Callable[[Mapping[str, Check]], Findings]
    without_depth: bool = False
    """Also give the reading that leaves D3 out."""
    earned: bool = False
    """`trustworthy` must be earned: all checks measured, D3 with an interval, the stated accuracy confirmed and above chance."""


class Verdict(Judgement):
    """The judgement of one network under one policy."""

    policy: str
    """Version of the policy, e.g. three-check/1.1."""
    status: Status
    line: str
    """The last line that is printed: `VERDICT: ...`."""
    failed: tuple[str, ...] = ()
    """What failed, in the words of the line."""
    warned: tuple[str, ...] = ()
    """What the line names as a warning, in its words."""
    reasons: tuple[str, ...] = ()
    """The sentences of the checks that decided the failure, each with number, threshold and convention."""
    warnings: tuple[str, ...] = ()
    gamma_withheld: bool = False
    """True where Γ is not interpretable: the reference is at the numerical floor, or the network diverged."""
    mode: str = ""
    """Which failure it is (Mode 2 is a warning on Γ, not a failure of the verdict); "" where nothing was found."""
    modes: tuple[str, ...] = ()
    """The same, one by one."""
    alternative: str | None = None
    """The same policy without D3 (four-diagnostic only)."""
    checks: tuple[Check, ...]

    @property
    def conclusion(self) -> str:
        """The line without its first word."""
        return self.line.removeprefix(VERDICT)

    @model_validator(mode="after")
    def _every_check_once(self) -> Verdict:
        if sorted(check.id for check in self.checks) != ["C", "D1", "D2", "D3"]:
            raise ValueError("checks must be D1, D2, D3 and C, each once")
        return self


def _three_check(checks: Mapping[str, Check]) -> Findings:
    d1, d2, d3 = checks["D1"], checks["D2"], checks["D3"]
    failed: list[str] = []
    undecided: list[str] = []
    deciding: list[str] = []
    mode: list[str] = []
    raised = {d1.answer, d2.answer}
    if raised == {"fail"}:
        failed.append(f"{_d_name(d1)} + {_d_name(d2)} (Mode 1)")
        deciding += ["D1", "D2"]
        mode.append(MODE_1)
    elif raised <= {"fail", "inconclusive"}:
        undecided += [_d_name(check) for check in (d1, d2) if check.answer == "inconclusive"]
    if d3.answer == "fail":
        failed.append(_d_name(d3))
        deciding.append("D3")
        mode.append(DEPTH_UNUSED)
    elif d3.answer == "inconclusive":
        undecided.append(_d_name(d3))
    return Findings(tuple(failed), tuple(undecided), tuple(deciding), tuple(mode))


def _four_diagnostic(checks: Mapping[str, Check]) -> Findings:
    letters = {"D1": "(a) scale", "D2": "(b) reference", "D3": "(d) depth"}
    answers = {id_: checks[id_].answer for id_ in letters if id_ in checks}
    deciding = tuple(id_ for id_, answer in answers.items() if answer == "fail")
    mode = []
    if "D2" in deciding:
        mode.append({"fail": MODE_1_DRIFT, "pass": MODE_1_NOISE}.get(checks["C"].answer, MODE_1))
    elif "D1" in deciding:
        mode.append(SCALE_EXPLODES)
    if "D3" in deciding:
        mode.append(DEPTH_UNUSED)
    return Findings(
        failed=tuple(letters[id_] for id_ in deciding),
        open=tuple(letters[id_] for id_, answer in answers.items() if answer == "inconclusive"),
        deciding=deciding,
        mode=tuple(mode),
    )


def _d_name(check: Check) -> str:
    return f"{check.id} {check.name}"


_THREE_CHECK = "fails if D1 and D2 (Mode 1: measurement degenerate) or D3 (depth unused)"

_EARNED = (
    f"{_THREE_CHECK}; a pass needs D1, D2 and D3 measured, D3 with an interval, and an accuracy that the evaluation "
    "batches confirm and that is above chance"
)
_OLD = f"{_THREE_CHECK}; for reports from before 1.1"
_FOUR = "walked back if any of (a) scale, (b) reference, (d) depth; (c) names the sub-mode"
_ALL = (
    Policy("three-check", "three-check/1.1", _EARNED, _three_check, earned=True),
    Policy("three-check/1.0", "three-check/1.0", _OLD, _three_check),
    Policy("four-diagnostic", "four-diagnostic/1.0", _FOUR, _four_diagnostic, without_depth=True),
)
POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _ALL})
"""The policies by name. `three-check` (final paper) is the default."""


def get_policy(name: str) -> Policy:
    """The policy of this name (`three-check`) or version (`three-check/1.0`)."""
    for policy in POLICIES.values():
        if name in (policy.name, policy.version):
            return policy
    raise CreditscopeError(f"unknown protocol {name!r}: use one of {', '.join(POLICIES)}")


def judge(facts: Facts, thresholds: DiagnosticThresholds, policy: str | Policy = "three-check") -> Verdict:
    """Run the checks on `facts` and judge them under `policy` (a Policy, or its name)."""
    if isinstance(policy, str):
        policy = get_policy(policy)
    checks = run_checks(facts, thresholds, policy.earned)
    by_id: dict[str, Check] = {check.id: check for check in checks}
    findings = policy.find(by_id)
    diverged = non_finite(facts) or by_id["D3"].diverged
    mode = findings.mode
    if diverged:
        deciding = tuple(check.id for check in checks if check.answer == "fail" and check.diverged)
        findings = Findings(failed=(DIVERGED,), deciding=deciding)
        mode = (DIVERGED,)
    if not diverged and concentrated(facts, thresholds.concentration_share, policy.earned):
        mode = (*mode, MODE_2)
    judged = [by_id[id_] for id_ in JUDGED]
    if policy.earned:
        status, conclusion, warned = _conclude_earned(findings, judged, facts, thresholds)
    else:
        (status, conclusion), warned = _conclude(findings, judged), ()
    alternative = None
    if policy.without_depth:
        without = findings if diverged else policy.find({id_: c for id_, c in by_id.items() if id_ != "D3"})
        alternative = f"without (d): {_conclude(without, [by_id[id_] for id_ in JUDGED if id_ != 'D3'])[1]}"
    return Verdict(
        policy=policy.version,
        status=status,
        line=f"{VERDICT}{conclusion}" + (f" (warning: {', '.join(warned)})" if warned else ""),
        failed=findings.failed,
        warned=warned,
        reasons=tuple(by_id[id_].sentence for id_ in findings.deciding),
        warnings=warnings_for(facts, thresholds, by_id, findings.deciding, policy.earned),
        gamma_withheld=bool(diverged) or by_id["D2"].answer == "fail",
        mode="; ".join(mode),
        modes=mode,
        alternative=alternative,
        checks=checks,
    )


def _conclude(findings: Findings, checks: Sequence[Check]) -> tuple[Status, str]:
    """Status and the words after `VERDICT: `; one of the checks without an answer leaves a pass incomplete."""
    if findings.failed:
        return "fail", f"needs walk-back: {', '.join(findings.failed)}"
    unknown = [f"{check.id} {check.answer}" for check in checks if check.answer in ("not measured", "not measurable")]
    missing = f" ({', '.join(unknown)})" if unknown else ""
    if findings.open:
        return "inconclusive", f"inconclusive: {', '.join(findings.open)}{missing}"
    return ("incomplete" if missing else "pass"), f"trustworthy{missing}"


def _conclude_earned(
    findings: Findings, checks: Sequence[Check], facts: Facts, thresholds: DiagnosticThresholds
) -> tuple[Status, str, tuple[str, ...]]:
    """The same for a policy under which `trustworthy` must be earned, and the warnings that stand behind the words.

    A D1 or D2 that failed by itself stands behind every verdict that is not a failure. What the checkpoint says about D3 stands
    beside a D3 that was not measured, and behind a pass that it contradicts; it changes no status.
    """
    needed = thresholds.frozen_acc_margin_pp
    contradiction, claim, estimated = inconsistent(facts), facts.claim, estimate(facts)
    if findings.failed:
        return "fail", f"needs walk-back: {', '.join(findings.failed)}", ()
    warned = [_d_name(check) for check in checks if check.answer == "fail"]
    if contradiction:
        return "inconsistent", f"inconsistent: {contradiction}", tuple(warned)
    missing = [
        f"{_d_name(c)} {c.answer}"
        + (f"; {estimated}" if estimated and (c.id, c.answer) == ("D3", "not measured") else "")
        for c in checks
        if c.answer in ("not measured", "not measurable")
    ]
    missing += [f"{_d_name(c)} without an interval" for c in checks if c.id == "D3" and _point_only(c)]
    if claim is not None and not claim.other_data and facts.accuracy is None:
        missing.append(f"stated accuracy not compared with the evaluation batches ({no_accuracy(facts)})")
    if findings.open:
        unknown = f" ({', '.join(missing)})" if missing else ""
        return "inconclusive", f"inconclusive: {', '.join(findings.open)}{unknown}", tuple(warned)
    if missing:
        so_far = "no failure that decides" if warned else "no failure found"
        return "incomplete", f"incomplete: {', '.join(missing)} ({so_far} so far)", tuple(warned)
    if claim is not None and claim.other_data:
        warned.append("the stated accuracy is of other data")
    margin = chosen_margin(facts)
    if margin is not None and null_at_chance(facts, margin):
        warned.append("the null is at chance")
    if margin is not None and disagreement(facts, margin, needed):
        warned.append("the depth profile contradicts the null")
    if facts.convention.repeated > MOSTLY * facts.convention.n_samples:
        warned.append("repeated samples")
    if floor_by_scale(facts, thresholds):
        warned.append("the scale of the loss")
    if changed(thresholds):
        warned.append("own thresholds")
    return "pass", "trustworthy", tuple(warned)


def _point_only(check: Check) -> bool:
    return check.answer in ("pass", "fail") and check.interval is None
