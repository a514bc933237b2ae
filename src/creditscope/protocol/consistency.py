"""Does the stated accuracy fit what the network shows on the evaluation batches, and is it above chance?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from creditscope.errors import CreditscopeError
from creditscope.measure.binomial import CONSISTENT, Z_95, evaluation, wilson, z_of
from creditscope.measure.depth import more_seeds, seeds_text
from creditscope.measure.facts import Claim, DepthMargin, Evaluation, Facts
from creditscope.measure.student_t import t_975
from creditscope.protocol.intervals import accuracy_interval
from creditscope.protocol.wording import between, number

SLACK = 0.05
"""How far a network may lie from one stated number that may be a mean over seeds."""
SAME_DATA, OTHER_DATA = "same data", "other data"
"""What the stated accuracy was taken on: data of which the evaluation batches are a sample, or others."""


def make_claim(
    claimed: Sequence[float], network_acc: float | None, headline_on: str, n_test: int | None, n_eval: int | None
) -> Claim | None:
    """The stated accuracy as a fact; None where none is stated. `claimed`: one number per network."""
    if headline_on not in (SAME_DATA, OTHER_DATA):
        raise CreditscopeError(f"headline_on is {headline_on!r}; give {SAME_DATA!r} or {OTHER_DATA!r}")
    stated = tuple(claimed) or (() if network_acc is None else (network_acc,))
    if not stated:
        return None
    interval = accuracy_interval(stated, n_test or n_eval)
    if network_acc is not None:
        _require_one_of(stated, network_acc)
        low = high = network_acc
        own = "the network's own accuracy"
    elif len(stated) > 1:
        low, high, own = min(stated), max(stated), f"the range over {len(stated)} seeds"
    else:
        low, high, own = stated[0] - SLACK, stated[0] + SLACK, f"one number, {100 * SLACK:g} pp of slack"
    return Claim(
        accuracy=interval.mean,
        low=interval.low,
        high=interval.high,
        interval=interval.kind,
        own_low=low,
        own_high=high,
        own=own,
        other_data=headline_on == OTHER_DATA,
    )


def _require_one_of(claimed: Sequence[float], network_acc: float) -> None:
    """The network that is measured is one of those whose accuracy is stated."""
    low, high = min(claimed), max(claimed)
    if not low - SLACK <= network_acc <= high + SLACK:
        stated = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
        raise CreditscopeError(
            f"headline_acc is {stated}, but network_acc, the accuracy of the network that is measured, is {network_acc:.4g} "
            f"(more than {100 * SLACK:g} pp away): give the accuracy of this network and of those trained like it"
        )


def evaluation_of(facts: Facts, n_classes: int | None = None) -> Evaluation | None:
    """The accuracy on the evaluation batches; of a report from before three-check/1.1 from the facts that it holds.

    `n_classes`: the number of classes, where the facts do not hold it.
    """
    if facts.evaluation is not None or facts.accuracy is None:
        return facts.evaluation
    return evaluation(facts.accuracy, facts.convention.n_samples, n_classes, None)


def inconsistent(facts: Facts) -> str:
    """One line with both numbers where the stated accuracy does not fit the evaluation batches; "" where it does."""
    claim, seen = facts.claim, facts.evaluation
    if claim is None or seen is None or claim.other_data:
        return ""
    if claim.own_low <= seen.high and claim.own_high >= seen.low:
        return ""
    if claim.own_low == claim.own_high:
        stated = f"accuracy {claim.own_low:.4g} is stated ({claim.own})"
    elif "slack" in claim.own:
        stated = f"accuracy {claim.accuracy:.4g} is stated ({claim.own})"
    else:
        stated = f"accuracy {claim.own_low:.4g} to {claim.own_high:.4g} is stated ({claim.own})"
    return (
        f"{stated}, but the network has {seen.accuracy:.4g} on the {seen.n:,} evaluation samples "
        f"(99.9 % interval {between((seen.low, seen.high))})"
    )


def no_accuracy(facts: Facts) -> str:
    """Why the evaluation batches have no accuracy."""
    classes = facts.convention.loss.startswith("cross-entropy")  # of another loss the labels need not be classes
    return "no label of theirs is scored" if classes else "their labels are no classes"


def null_at_chance(facts: Facts, margin: DepthMargin) -> str:
    """One sentence where the null has learned nothing that as many samples as the evaluation's could tell from chance; else "".

    A null may be there after its training (random attention on a task of memory); `frozen_blocks` gives one that is there
    before it, and anything beats that.
    """
    claim, seen = facts.claim, facts.evaluation
    chance = seen.chance if seen is not None else None
    if seen is None or chance is None or claim is None or claim.other_data:
        return ""
    low, high = wilson(margin.null_accuracy, seen.n)
    if low > chance:
        return ""
    return (
        f"the null has {number(margin.null_accuracy)} {between((low, high), 0.0, 1.0)}, which is not above chance {chance:.3g}: "
        "make sure that it was trained (`frozen_blocks` gives it untrained, `run_null` trains it), or D3 says nothing about depth"
    )


def reaches_chance(facts: Facts, passing: bool = False) -> str:
    """One clause where the interval of the stated accuracy reaches chance; or where it lies above what this network shows and
    that reaches chance (its own accuracy, or the worst of several seeds, made them consistent); "" where it lies above.

    passing: a pass must be earned on the evaluation samples too, whatever data the stated accuracy is of: it is enough that what
    this network shows there reaches chance.
    """
    claim, seen = facts.claim, facts.evaluation
    chance = seen.chance if seen is not None else None
    if claim is None or seen is None or chance is None:
        return ""
    share = "" if seen.largest_class is None else f", largest class {seen.largest_class:.3g}"
    if claim.low > chance:
        if seen.low > chance or (not passing and (claim.other_data or claim.accuracy <= seen.high)):
            return ""
        return (
            f"this network has {number(seen.accuracy)} on the {seen.n:,} evaluation samples (99.9 % interval "
            f"{between((seen.low, seen.high))}), which reaches chance {chance:.3g} (1/{seen.n_classes}{share}): this network "
            "may have learned nothing"
        )
    spread = claim.accuracy > chance and seen.low > chance  # this network is above it, and the seeds lie far apart
    so = (
        "the seeds differ too much to tell their mean from chance" if spread else "the network may have learned nothing"
    )
    return (
        f"the accuracy {number(claim.accuracy)} {between((claim.low, claim.high), 0.0, 1.0)} ({claim.interval}) reaches chance "
        f"{chance:.3g} (1/{seen.n_classes}{share}): {so}"
    )


def above_chance(facts: Facts, n: int) -> str:
    """What would tell an accuracy that `reaches_chance` from chance; n: the networks behind the stated accuracy."""
    claim, seen = facts.claim, facts.evaluation
    if claim is None or seen is None or seen.chance is None:
        return ""
    chance = seen.chance
    if claim.low > chance:
        if seen.accuracy <= chance:
            return "audit a network that has the stated accuracy"
        return f"to tell it from chance, evaluate on about {_samples(seen.accuracy, chance, z_of(CONSISTENT))} samples"
    if claim.accuracy <= chance:
        return "more seeds will not help: train the network until it beats chance"
    if n == 1:
        samples = _samples(claim.accuracy, chance, Z_95)
        return f"to tell it from chance, give one accuracy per seed, or test on about {samples} samples"
    spread = (claim.high - claim.low) / 2 * math.sqrt(n) / t_975(n - 1)
    return seeds_text(more_seeds(claim.accuracy - chance, spread, n), "tell it from chance")


def _samples(accuracy: float, chance: float, z: float) -> str:
    """Samples from which on a share of `accuracy` differs from chance by z standard errors, to two digits."""
    needed = chance * (1 - chance) * (z / (accuracy - chance)) ** 2
    step = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return f"{math.ceil(needed / step) * step:,}"
