"""Checks: one fact, one threshold, one answer, and the sentence that explains it.

A check raises where even the interval of its fact lies on the wrong side of the threshold; where the interval straddles
the threshold the answer is `inconclusive`. Exactly at a threshold nothing is raised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from creditscope.measure.depth import BP, MATCHED, UNSTATED, seeds_text, seeds_to_decide
from creditscope.measure.facts import GROUP, DepthMargin, Facts, batch_mean
from creditscope.protocol.consistency import above_chance, inconsistent, reaches_chance
from creditscope.protocol.estimate import estimate
from creditscope.protocol.intervals import t_interval
from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.protocol.wording import between, compared, in_percent, null_name, number

CheckId: TypeAlias = Literal["D1", "D2", "D3", "C"]
Answer: TypeAlias = Literal["pass", "fail", "inconclusive", "not measurable", "not measured"]

DIVERGED = "diverged"
CHANCE = "interval of the accuracy reaches chance"
NULL_ORDER = (MATCHED, UNSTATED, BP)
"""Which null D3 uses: the first of these that was given."""

AT_THE_FLOOR = (
    "the reference gradient sits at the numerical floor; Γ is withheld even where a clamped and an unclamped cosine print "
    "the same number, because both are angles to a gradient that has all but vanished"
)

STABILITY_NEEDS = "needs 2 batches, 8 advised"


class Judgement(BaseModel):
    """Base of everything the protocol says: immutable, no unknown fields, non-finite floats survive JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


INTERPRETIVE = {"fail": "high", "pass": "low"}
"""The answers of C in words: neither of them is a failure or a success."""


class Check(Judgement):
    """One check, answered."""

    id: CheckId
    name: str
    source: str
    """The letter that the v1 and v2 papers gave it: (a), (b), (c), (d)."""
    answer: Answer
    value: float | None
    threshold: float
    interval: tuple[float, float] | None = None
    """95 % interval of the value, where there is one."""
    interval_kind: str
    convention: str
    """How the value was taken."""
    sentence: str
    reason: str = ""
    """Why it is not a pass, in a few words."""

    @property
    def word(self) -> str:
        """The answer as a reader gets it: C, which decides nothing, is high or low."""
        return INTERPRETIVE.get(self.answer, self.answer) if self.id == "C" else self.answer

    @property
    def diverged(self) -> bool:
        """True if NaN or Inf decided the answer."""
        return self.reason.startswith(DIVERGED)


NAMES: Mapping[CheckId, tuple[str, str]] = {
    "D1": ("scale stability", "(a)"),
    "D2": ("reference validity", "(b)"),
    "D3": ("depth utility", "(d)"),
    "C": ("direction stability", "(c)"),
}
"""`name` and `source` of each check."""


def _check(
    id_: CheckId,
    answer: Answer,
    value: float | None,
    threshold: float,
    convention: str,
    sentence: str,
    reason: str,
    interval: tuple[float, float] | None,
    interval_kind: str,
) -> Check:
    name, source = NAMES[id_]
    return Check(
        id=id_,
        name=name,
        source=source,
        answer=answer,
        value=value,
        threshold=threshold,
        interval=interval,
        interval_kind=interval_kind,
        convention=convention,
        sentence=sentence,
        reason=reason,
    )


def non_finite(facts: Facts) -> tuple[str, ...]:
    """Where NaN or Inf was met: what the measurement noted, plus every judged number that is not finite."""
    return tuple(dict.fromkeys((*facts.non_finite, *_non_finite_values(facts))))


def _non_finite_values(facts: Facts) -> Iterator[str]:
    scale, reference = facts.scale, facts.reference
    judged: dict[str, tuple[float | None, ...]] = {
        "accuracy": (facts.accuracy,),
        "‖h‖": scale.mean,
        "growth": () if _zero_state(facts) else (scale.growth, scale.total_growth, *scale.growth_by_group),
        "‖g‖": (*reference.per_sample, *reference.batch_mean_128, *reference.deepest_by_group),
        "cosine": facts.alignment.mean if facts.alignment else (),
        "headline Γ": (facts.aggregate.headline,) if facts.aggregate else (),
        "stability": (facts.stability.deepest,),
    }
    for name, values in judged.items():
        if any(value is not None and not math.isfinite(value) for value in values):
            yield name


def _zero_state(facts: Facts) -> bool:
    """Is some h_l = 0 for every sample? Growth out of it is infinite (or 0/0), on a network that is finite."""
    means = facts.scale.mean
    return 0.0 in means and all(map(math.isfinite, means))


def check_scale(facts: Facts, thresholds: DiagnosticThresholds) -> Check:
    """D1, raised if growth = max_l mean‖h_{l+1}‖ / mean‖h_l‖ > `h_norm_explosion_ratio`."""
    limit, value = thresholds.h_norm_explosion_ratio, facts.scale.growth
    interval = t_interval(facts.scale.growth_by_group)
    of = f" of the {facts.stream.vector}" if facts.stream.vector else ""
    convention = f"raw norms{of}, mean over {facts.convention.n_samples:,} samples, {facts.convention.dtype}"
    broken = non_finite(facts)
    if broken:
        answer: Answer = "fail"
        sentence, reason = _diverged(f"growth = {number(value)}", broken)
    elif math.isnan(value):
        answer, reason = "not measurable", "every state is zero"
        sentence = f"growth not measurable (threshold {number(limit)}): {reason}"
    else:
        answer = _answer(value, interval, lambda growth: growth > limit)
        at = "" if facts.scale.growth_at is None else f" at l = {facts.scale.growth_at}"
        finding, reason = {
            "pass": ("the scale of the stream is stable", ""),
            "fail": ("the stream explodes within one block", "growth above the threshold"),
        }.get(answer, _straddles(interval))
        if value == math.inf:
            finding = reason = f"h_{facts.scale.growth_at} is zero for every sample, so growth out of it is infinite"
        sentence = f"growth max_l ‖h_l+1‖/‖h_l‖ = {compared(value, limit)}{at} ({convention}): {finding}"
    kind = _group_kind(facts, facts.scale.growth_by_group, interval)
    return _check("D1", answer, value, limit, convention, sentence, reason, interval, kind)


def check_reference(facts: Facts, thresholds: DiagnosticThresholds) -> Check:
    """D2, raised if mean per-sample ‖g_L‖ / 128 < `floor_for(dtype)`."""
    dtype = facts.convention.dtype
    floor, value = thresholds.floor_for(dtype), facts.reference.batch_mean_128[-1]
    interval = t_interval(list(map(batch_mean, facts.reference.deepest_by_group)))
    convention = f"batch-mean convention, B = {GROUP}, {dtype}"
    broken = non_finite(facts)
    if broken:
        answer: Answer = "fail"
        sentence, reason = _diverged(f"mean per-sample ‖g_L‖ / {GROUP} = {number(value)}", broken)
    else:
        answer = _answer(value, interval, lambda norm: norm < floor)
        finding, reason = {
            "pass": ("the reference gradient is above the numerical floor", ""),
            "fail": (AT_THE_FLOOR, "reference under the floor"),
        }.get(answer, _straddles(interval))
        sentence = f"mean per-sample ‖g_L‖ / {GROUP} = {compared(value, floor)} ({convention}): {finding}"
    kind = _group_kind(facts, facts.reference.deepest_by_group, interval)
    return _check("D2", answer, value, floor, convention, sentence, reason, interval, kind)


def floor_by_scale(facts: Facts, thresholds: DiagnosticThresholds) -> str:
    """One sentence where D2 passes only because the loss is larger than a cross-entropy can be; else ""."""
    scale, value = facts.reference.loss_scale, facts.reference.batch_mean_128[-1]
    floor = thresholds.floor_for(facts.convention.dtype)
    if scale is None or scale <= 1 or not value / scale < floor <= value:
        return ""
    return (
        f"the scale of the loss decides D2: its gradient at the logits is {number(scale)} times the most that a cross-entropy "
        f"has, and ‖g_L‖ / {GROUP} over that is {compared(value / scale, floor)}"
    )


def chosen_margin(facts: Facts) -> DepthMargin | None:
    """The depth margin that D3 judges: to the `matched` null, else `kind unstated`, else `bp`; None without a null."""
    by_null = {margin.null: margin for margin in (facts.depth.margins if facts.depth else ())}
    return next((by_null[null] for null in NULL_ORDER if null in by_null), None)


def check_depth(facts: Facts, thresholds: DiagnosticThresholds, earned: bool = True) -> Check:
    """D3, raised if the depth margin < `frozen_acc_margin_pp`; not measurable where BP itself does not clear it.

    `earned` (three-check/1.1): not judged where the stated accuracy does not fit the evaluation batches, inconclusive where
    it reaches chance, and the evaluation samples give an interval where no test set does; where no null was trained, the
    estimate from the checkpoint stands in the sentence. Without it a margin whose interval
    comes from the evaluation samples is a point comparison, as in three-check/1.0.
    """
    needed = thresholds.frozen_acc_margin_pp
    margin = chosen_margin(facts)
    bp = facts.depth.bp_margin if facts.depth else None
    answer: Answer
    value: float | None
    interval: tuple[float, float] | None
    if margin is None:
        value, interval, kind, convention = None, None, "none", "no null"
        answer, reason = "not measured", "no null (random-blocks baseline) was given"
        sentence = f"depth margin not measured (threshold {number(needed)} pp): {reason}"
        if earned and (estimated := estimate(facts)):
            sentence += f"; {estimated}"
    elif earned and (contradiction := inconsistent(facts)):
        value, interval, kind, convention = None, None, "none", null_name(margin.null)
        answer, reason = "not measurable", "not judged: the accuracies are inconsistent"
        sentence = f"depth margin not judged (threshold {number(needed)} pp): {contradiction}"
    else:
        value, kind, interval = margin.margin_pp, margin.interval, margin.ends
        if margin.from_evaluation and not earned:
            interval, kind = None, "point comparison"
        convention = f"{null_name(margin.null)}; {kind}"
        difference = f"accuracy {in_percent(margin.accuracy)} - null {in_percent(margin.null_accuracy)}"
        answer = _answer(value, interval, lambda pp: pp < needed)
        if not all(math.isfinite(v) for v in (value, *(interval or ()))):
            answer = "fail"
            sentence, reason = _diverged(f"depth margin = {number(value)} pp", ("depth margin",))
        elif bp is not None and not bp.margin_pp >= needed:
            answer, reason = "not measurable", f"BP itself does not beat its null by {number(needed)} pp"
            sentence = (
                f"{difference} = {number(value)} pp ({convention}), but backpropagation has only "
                f"{compared(bp.margin_pp, needed, ' pp')} over its own null: the task cannot show depth utility"
            )
        elif earned and (chance := reaches_chance(facts, passing=answer == "pass")):
            answer, reason = "inconclusive", CHANCE
            sentence = (
                f"{difference} = {number(value)} pp ({convention}), but {chance}; {above_chance(facts, margin.n)}"
            )
        else:
            finding, reason = {
                "pass": ("the trained blocks beat random blocks", ""),
                "fail": ("the trained blocks do not beat random blocks", "margin below the threshold"),
            }.get(answer, _straddles(interval, 100.0))
            sentence = f"{difference} = {compared(value, needed, ' pp')} ({convention}): {finding}"
            if earned and answer == "inconclusive":
                sentence += f"; {_decides(margin, needed)}"
    return _check("D3", answer, value, needed, convention, sentence, reason, interval, kind)


def what_decides(facts: Facts, check: Check) -> str:
    """What the user can do about an inconclusive D3; "" where it is not."""
    margin = chosen_margin(facts)
    if check.answer != "inconclusive" or margin is None:
        return ""
    return above_chance(facts, margin.n) if check.reason == CHANCE else _decides(margin, check.threshold)


def _decides(margin: DepthMargin, needed: float) -> str:
    if margin.n == 1:
        return "to decide, train more seeds and give one accuracy for each"
    if not margin.paired:
        return "to decide, give network and null the same seeds"
    return seeds_text(seeds_to_decide(margin, needed), "decide")


def check_stability(facts: Facts, thresholds: DiagnosticThresholds) -> Check:
    """C, raised (drift-dominated) if stability > `stability_drift_ceiling`. Interpretive: it decides no verdict."""
    ceiling, fact = thresholds.stability_drift_ceiling, facts.stability
    convention = f"deepest layer, {fact.groups} groups of {facts.convention.group_size} samples"
    broken = non_finite(facts)
    answer: Answer
    if broken:
        answer = "not measurable"
        sentence, reason = _diverged("direction stability not measurable", broken)
    elif fact.deepest is None:
        answer = "not measured" if fact.groups < 2 else "not measurable"
        reason = fact.reason or (STABILITY_NEEDS if fact.groups < 2 else "a group has no gradient direction")
        sentence = f"direction stability {answer} ({convention}): {reason}"
    else:
        answer = "fail" if fact.deepest > ceiling else "pass"
        reason = "drift-dominated" if answer == "fail" else ""
        finding = "drift-dominated" if answer == "fail" else "noise-dominated or sample-specific"
        sentence = (
            f"direction stability = {compared(fact.deepest, ceiling)} ({convention}): "
            f"the reference direction is {finding} (interpretive only)"
        )
    kind = "none" if fact.deepest is None else "point comparison"
    return _check("C", answer, fact.deepest, ceiling, convention, sentence, reason, None, kind)


def run_checks(facts: Facts, thresholds: DiagnosticThresholds, earned: bool = True) -> tuple[Check, ...]:
    """D1, D2, D3, C, in this order; `earned`: see `check_depth`."""
    return (
        check_scale(facts, thresholds),
        check_reference(facts, thresholds),
        check_depth(facts, thresholds, earned),
        check_stability(facts, thresholds),
    )


def _answer(value: float, interval: tuple[float, float] | None, raised: Callable[[float], bool]) -> Answer:
    """fail (pass) where the value and both ends of its interval are raised (not raised); otherwise inconclusive."""
    flags = {raised(point) for point in (value, *(interval or ()))}
    if len(flags) == 2:
        return "inconclusive"
    return "fail" if flags == {True} else "pass"


def _straddles(interval: tuple[float, float] | None, most: float = math.inf) -> tuple[str, str]:
    """`most`: the largest size that is possible."""
    where = "" if interval is None else f" {between(interval, -most, most)}"
    return f"the 95 % interval{where} does not decide", "interval straddles the threshold"


def _diverged(subject: str, broken: tuple[str, ...]) -> tuple[str, str]:
    where = ", ".join(broken)
    return f"{subject}: NaN or Inf was met in {where}; nothing was measured on a finite network", f"{DIVERGED}: {where}"


def _group_kind(facts: Facts, groups: Sequence[float], interval: tuple[float, float] | None) -> str:
    size = facts.convention.group_size
    return "point comparison" if interval is None else f"t over {len(groups)} groups of {size} samples"
