"""Depth margin: accuracy of the trained network minus accuracy of a frozen-blocks null, in percentage points.

Accuracies are fractions in [0, 1]. A sequence holds one accuracy per seed; two sequences of equal length are taken to
be in the same order of seeds, that is, paired. Intervals are 95 %.

| given | interval |
|---|---|
| both sides n >= 2, same length | paired t over the seeds |
| both sides n >= 2, different lengths | Welch t |
| one side a single network, n_test known | binomial interval of the difference (Newcombe): this network only |
| one side a single network, n_test not known | the same, with the number of evaluation samples in its place |
| none of these is known | none: point comparison |

An accuracy is a number of finite resolution u: a multiple of 1/n_test, often rounded further. Networks whose accuracies
agree to that resolution need not be equal, so an interval over seeds takes no standard deviation smaller than that of the
rounding itself: u/√12 for an accuracy, u/√6 for a difference of two.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TypeAlias

from creditscope.errors import CreditscopeError
from creditscope.measure.binomial import newcombe
from creditscope.measure.facts import PAIRED, Depth, DepthMargin
from creditscope.measure.student_t import t_975

Accuracy: TypeAlias = float | Sequence[float]
"""One accuracy, or one per seed, each in [0, 1]."""

DECIMALS = range(2, 12)
"""Decimals to which a stated accuracy may have been rounded: .5 is read as .50, and one with more was not rounded."""

MOST_SEEDS = 1000

MATCHED, BP, UNSTATED = "matched", "bp", "kind unstated"
"""Kinds of null. A bare number or list given by a user is `kind unstated`."""


def accuracies(value: object, name: str) -> tuple[float, ...]:
    """`value` (a number or one number per seed) as a tuple; a one-line error unless every entry is in [0, 1]."""
    if isinstance(value, numbers.Real) or getattr(value, "ndim", None) == 0:
        entries: tuple[object, ...] = (value,)
    elif isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping, Set)):
        entries = tuple(value)  # no set: it has no order of seeds
    else:
        raise CreditscopeError(f"{name} must be a number in [0, 1] or one per seed, got {value!r}")
    if not entries:
        raise CreditscopeError(f"{name} is an empty list: give at least one accuracy")
    return tuple(_accuracy(entry, name) for entry in entries)


def _accuracy(entry: object, name: str) -> float:
    try:
        if isinstance(entry, (bool, str, bytes)):
            raise TypeError
        number = float(entry)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise CreditscopeError(f"{name} must hold numbers in [0, 1], got {entry!r}") from None
    if math.isnan(number):
        raise CreditscopeError(f"{name} is NaN: an accuracy is a fraction of correct answers in [0, 1]")
    if not 0.0 <= number <= 1.0:
        hint = f": is it in percent? Give {number / 100:.6g}" if 1.0 < number <= 100.0 else ""
        raise CreditscopeError(f"{name} must be in [0, 1], got {number:g}{hint}")
    return number


def checked_n_test(n_test: int | None) -> int | None:
    """`n_test` if it is None or an integer >= 1, else a one-line error."""
    if n_test is None:
        return None
    try:
        if isinstance(n_test, bool):
            raise TypeError
        size = operator.index(n_test)
    except TypeError:
        raise CreditscopeError(f"n_test must be an integer (the number of test samples), got {n_test!r}") from None
    if size < 1:
        raise CreditscopeError(f"n_test must be at least 1, got {size}")
    return size


def depth_margin(
    headline: Accuracy, null: Accuracy, *, null_kind: str, n_test: int | None = None, n_eval: int | None = None
) -> DepthMargin:
    """Margin of `headline` over `null` (accuracies in [0, 1], a number or one per seed) with its 95 % interval.

    `n_test` is the number of test samples behind each accuracy; from it comes the binomial standard error of the
    difference, which is printed next to an interval over seeds and never added to it. `n_eval`, the number of evaluation
    samples, stands in for it where it is not known.
    """
    trained, frozen = accuracies(headline, "headline_acc"), accuracies(null, "frozen_baseline_acc")
    size = checked_n_test(n_test)
    samples = size or n_eval
    mean_trained, mean_frozen = _mean(trained), _mean(frozen)
    margin = mean_trained - mean_frozen
    binomial_se = None
    if size is not None:
        variance = mean_trained * (1 - mean_trained) + mean_frozen * (1 - mean_frozen)
        binomial_se = math.sqrt(max(variance, 0.0) / size)

    low: float | None
    high: float | None
    over_seeds = len(trained) >= 2 and len(frozen) >= 2
    if over_seeds:
        least = resolution((*trained, *frozen), samples) ** 2 / 12
        if len(trained) == len(frozen):
            half = _paired_half_width(trained, frozen, 2 * least)
            label = f"{PAIRED} {len(trained)} seeds"
        else:
            half = _welch_half_width(trained, frozen, least)
            label = f"Welch t, {len(trained)} against {len(frozen)} seeds (not paired)"
        low, high = margin - half, margin + half
    elif samples is not None:
        low, high = newcombe(mean_trained, mean_frozen, samples)
        label = _binomial_label(len(trained), len(frozen))
        label += "" if size else f"; n_test not given, so from the {samples:,} evaluation samples"
    else:
        low, high, label = None, None, "point comparison"

    return DepthMargin(
        null=null_kind,
        accuracy=mean_trained,
        null_accuracy=mean_frozen,
        margin_pp=_pp(margin),
        low_pp=None if low is None else _pp(low),
        high_pp=None if high is None else _pp(high),
        interval=label,
        from_evaluation=not over_seeds and size is None and n_eval is not None,
        n=len(trained),
        null_n=len(frozen) if over_seeds and len(trained) != len(frozen) else None,
        null_repeated=len(frozen) > 1 and len(set(frozen)) == 1,
        repeated=len(trained) > 1 and len(set(trained)) == 1,
        binomial_se_pp=None if binomial_se is None else _pp(binomial_se),
    )


def more_seeds(distance: float, spread: float, n: int) -> int | None:
    """Seeds beyond n until the half width of a paired t interval is below |distance|, the standard deviation over seeds staying
    at `spread`; None: more than a thousand."""
    sizes = range(n, MOST_SEEDS + 1)
    found = next((m for m in sizes if t_975(m - 1) * spread / math.sqrt(m) < abs(distance)), None)
    return None if found is None else found - n


def seeds_text(more: int | None, what: str) -> str:
    """ "2 more seeds of this spread would decide"."""
    if more is None:
        return f"it would take more than {MOST_SEEDS:,} seeds of this spread to {what}"
    return f"{more} more seed{'' if more == 1 else 's'} of this spread would {what}"


def seeds_to_decide(margin: DepthMargin, needed_pp: float) -> int | None:
    """How many more seeds would put the interval of a paired margin on one side of `needed_pp`; None: not known."""
    if not margin.paired or margin.low_pp is None or margin.high_pp is None:
        return None
    spread = (margin.high_pp - margin.low_pp) / 2 * math.sqrt(margin.n) / t_975(margin.n - 1)
    return more_seeds(margin.margin_pp - needed_pp, spread, margin.n)


def resolution(values: Sequence[float], samples: int | None) -> float:
    """The step in which these accuracies are known: 1/samples, or the last decimal that any of them shows if that is coarser."""
    shown = next((k for k in DECIMALS if all(abs(v - round(v, k)) < 1e-12 for v in values)), None)
    return max(0.0 if shown is None else 10.0**-shown, 0.0 if samples is None else 1 / samples)


def depth(
    headline: Accuracy | None,
    baselines: object,
    n_test: int | None,
    bp_acc: Accuracy | None,
    n_eval: int | None = None,
) -> Depth | None:
    """Margins of `headline` to every null given, and of backpropagation to its own null.

    `baselines` is None (nothing measured: returns None), a number or a list (`kind unstated`), or a mapping with the
    keys "matched" and/or "bp". `bp_acc` is the accuracy of backpropagation on the task (if the audited method is BP
    itself, the headline); its margin is taken to the `bp` null only.
    """
    nulls = _nulls(baselines)
    checked_n_test(n_test)
    if headline is not None:
        accuracies(headline, "headline_acc")
    if bp_acc is not None:
        accuracies(bp_acc, "bp_acc")
    if not nulls:
        return None
    if headline is None:
        raise CreditscopeError("frozen_baseline_acc was given without headline_acc: give both, or neither")
    bp_margin = None
    if bp_acc is not None and BP in nulls:
        bp_margin = depth_margin(bp_acc, nulls[BP], null_kind=BP, n_test=n_test, n_eval=n_eval)
    margins = tuple(
        depth_margin(headline, null, null_kind=kind, n_test=n_test, n_eval=n_eval) for kind, null in nulls.items()
    )
    return Depth(margins=margins, bp_margin=bp_margin)


def _nulls(baselines: object) -> dict[str, tuple[float, ...]]:
    if baselines is None:
        return {}
    if not isinstance(baselines, Mapping):
        return {UNSTATED: accuracies(baselines, "frozen_baseline_acc")}
    unknown = [key for key in baselines if key not in (MATCHED, BP)]
    if unknown:
        raise CreditscopeError(f'frozen_baseline_acc has the unknown key {unknown[0]!r}: use "matched" and/or "bp"')
    return {
        kind: accuracies(baselines[kind], f'frozen_baseline_acc["{kind}"]')
        for kind in (MATCHED, BP)
        if baselines.get(kind) is not None
    }


def _binomial_label(n_trained: int, n_frozen: int) -> str:
    if n_trained >= 2:
        return f"binomial, this null network only (accuracy: mean of {n_trained} networks)"
    if n_frozen >= 2:
        return f"binomial, this network only (null: mean of {n_frozen} networks)"
    return "binomial, this network only"


def _paired_half_width(trained: tuple[float, ...], frozen: tuple[float, ...], least: float) -> float:
    """`least`: smallest variance of a difference that the resolution of the accuracies allows to state."""
    differences = [a - b for a, b in zip(trained, frozen, strict=True)]
    n = len(differences)
    return t_975(n - 1) * math.sqrt(max(_variance(differences), least) / n)


def _welch_half_width(trained: tuple[float, ...], frozen: tuple[float, ...], least: float) -> float:
    parts = [(max(_variance(side), least) / len(side), len(side)) for side in (trained, frozen)]
    squared_se = sum(part for part, _ in parts)
    if squared_se == 0.0:
        return 0.0
    # Welch-Satterthwaite, in shares of the squared error so that tiny variances do not underflow.
    freedom = 1.0 / sum((part / squared_se) ** 2 / (n - 1) for part, n in parts)
    return t_975(freedom) * math.sqrt(squared_se)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    """Sample variance (ddof 1)."""
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _pp(fraction: float) -> float:
    """Percentage points; .36 - .34 must be 2.0, not 1.9999999999999962, or the threshold of D3 would be missed."""
    return round(100.0 * fraction, 9)
