"""Do the numbers of a report follow from each other? What can be computed from others in the same file is computed anew.

A report whose author changed one number and its hash is found here; one who changed all that belong together is found only by
training again, or by somebody else's evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from creditscope.errors import CreditscopeError
from creditscope.measure.alignment import concentration
from creditscope.measure.binomial import evaluation, wilson
from creditscope.measure.certificate import (
    BACKPROPAGATION,
    GLOBAL,
    LATER,
    LOCAL,
    SIGNS,
    TRANSPORT,
    UNDETERMINED,
    Certificate,
)
from creditscope.measure.facts import GROUP, DepthProfile, Facts, Readout

CLOSE = 1e-6
Pair = tuple[str, float | None, float | None]
"""(name, as it is stated, as it follows from the others)."""


def check_certificate(certificate: Certificate | None, source: str) -> None:
    """One line where the label is not what the answers give."""
    if certificate is None:
        return
    follows = _labels({name: found.answer for name, found in certificate.answers.items()})
    if certificate.label not in follows:
        raise CreditscopeError(
            f"{source}: the certificate has the label {certificate.label!r}, and its answers give {' or '.join(follows)!r}"
        )


def _labels(answers: dict[str, str]) -> tuple[str, ...]:
    """The labels that these answers allow, as `certify` chooses them."""
    between, readout, teaching, later = (answers.get(k, "") for k in ("between", "readout", "teaching", "later_states"))
    if answers.get("backpropagation", "").startswith("yes") and between != "no":
        return (BACKPROPAGATION,)
    if between == "yes":
        return (TRANSPORT, SIGNS)
    if between == UNDETERMINED:
        return (UNDETERMINED,)
    if readout == "yes" or teaching in ("the output error", "logits without labels"):
        return (GLOBAL,)
    if UNDETERMINED in (readout, teaching, later):
        return (UNDETERMINED,)
    return (LATER,) if later == "yes" else (LOCAL,)


def check_arithmetic(facts: Facts, source: str) -> None:
    """One line where a stated number is not what the others give."""
    for name, stated, follows in (*_sizes(facts), *_alignment(facts), *_accuracy(facts), *_profile(facts.profile)):
        if not _equal(stated, follows):
            raise CreditscopeError(
                f"{source}: {name} is {_shown(stated)}, and {_shown(follows)} follows from its other numbers"
            )


def _equal(stated: float | None, follows: float | None) -> bool:
    if stated is None or follows is None:
        return stated is follows
    if not (math.isfinite(stated) and math.isfinite(follows)):
        return stated == follows or (math.isnan(stated) and math.isnan(follows))
    return math.isclose(stated, follows, rel_tol=CLOSE, abs_tol=1e-9)


def _shown(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.6g}"


def _sizes(facts: Facts) -> Iterator[Pair]:
    means, size = facts.scale.mean, facts.reference
    if all(math.isfinite(m) and m > 0 for m in means) and len(means) > 1:
        ratios = [b / a for a, b in pairwise(means)]
        yield "growth", facts.scale.growth, max(ratios)
        yield "total growth", facts.scale.total_growth, means[-1] / means[0]
    for layer, (norm, mean) in enumerate(zip(size.per_sample, size.batch_mean_128, strict=True)):
        yield f"‖g_{layer}‖ / 128", mean, norm / GROUP


def _alignment(facts: Facts) -> Iterator[Pair]:
    aligned, total, spread = facts.alignment, facts.aggregate, facts.concentration
    if aligned is None or total is None or spread is None:
        return
    yield "Γ", total.headline, _mean([aligned.mean[k] for k in aligned.counting_layers])
    yield "Γ over all layers", total.gamma_all_layers, _mean(aligned.mean)
    again = concentration(aligned.mean, spread.exact_layers, aligned.counting_layers)
    for name in ("top_share", "deep_mean", "deep_mean_without_exact", "deep_mean_all_layers"):
        yield name.replace("_", " "), getattr(spread, name), getattr(again, name)


def _mean(values: tuple[float | None, ...] | list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return math.fsum(known) / len(known) if known else None


def _accuracy(facts: Facts) -> Iterator[Pair]:
    seen = facts.evaluation
    if seen is not None:
        again = evaluation(seen.accuracy, seen.n, seen.n_classes, seen.largest_class)
        yield "accuracy on the evaluation samples", seen.accuracy, facts.accuracy
        yield "its lower end", seen.low, again.low
        yield "its upper end", seen.high, again.high


def _profile(profile: DepthProfile | None) -> Iterator[Pair]:
    if profile is None:
        return
    last, twin = profile.curve[-1].accuracy, profile.twin[-1].accuracy
    yield "profile margin", profile.margin.pp if profile.margin else None, _difference(last, twin)
    if (margin := profile.margin) is not None and margin.low_pp > -100 and margin.high_pp < 100:
        # the interval of Agresti and Min has its middle at the difference, drawn to zero by two samples
        middle = margin.pp * profile.n_test / (profile.n_test + 2)
        yield "the middle of the profile margin's interval", (margin.low_pp + margin.high_pp) / 2, middle
    for k, step in enumerate(profile.steps):
        before, after = profile.curve[k : k + 2]
        yield f"step {k} of the profile", step.pp if step else None, _difference(after.accuracy, before.accuracy)
    for name, readouts in (("readout", profile.curve), ("twin's readout", profile.twin)):
        for layer, readout in enumerate(readouts):
            yield from _readout(f"{name} {layer}", readout, profile.n_test)


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else 100 * (a - b)


def _readout(name: str, readout: Readout, n: int) -> Iterator[Pair]:
    if readout.accuracy is not None:
        low, high = wilson(readout.accuracy, n)
        yield f"lower end of {name}", readout.low, low
        yield f"upper end of {name}", readout.high, high
