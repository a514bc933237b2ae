"""Do the numbers of a report follow from each other? What can be computed from others in the same file is computed anew.

A report whose author changed one number and its hash is found here; one who changed all that belong together is found only by
training again, or by somebody else's evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from creditscope.errors import CreditscopeError
from creditscope.measure.alignment import aggregate_of, norm_weighted
from creditscope.measure.binomial import evaluation, wilson
from creditscope.measure.certificate import EXACT, YES, Certificate, label_of
from creditscope.measure.concentration import concentration
from creditscope.measure.facts import GROUP, Facts, LayerMeans
from creditscope.measure.reference import COSINE_EPS

CLOSE = 1e-6
Pair = tuple[str, float | None, float | None]
"""(name, as it is stated, as it follows from the others)."""
Bound = tuple[str, float | None, float, float]
"""(name, as it is stated, the least and the most that the others leave room for)."""


def check_certificate(certificate: Certificate | None, source: str) -> None:
    """One line where the label is not what the answers give, or an answer not what its number gives."""
    if certificate is None:
        return
    for name, found in certificate.answers.items():
        above = None if found.change is None or found.floor is None else found.change > found.floor
        needed = {YES: True, EXACT: False}.get(found.answer) if name in DEPENDS else None
        if None not in (above, needed) and above is not needed:
            raise CreditscopeError(
                f"{source}: the certificate answers {found.answer!r} to {found.question!r}, and a change of "
                f"{found.change:.3g} with a floor of {found.floor:.3g} does not give that"
            )
    answers = {name: found.answer for name, found in certificate.answers.items()}
    follows = dict.fromkeys(label_of(answers, signs_decide) for signs_decide in (False, True))
    if certificate.label not in follows:
        raise CreditscopeError(
            f"{source}: the certificate has the label {certificate.label!r}, and its answers give {' or '.join(follows)!r}"
        )


DEPENDS = ("between", "readout", "later_states", "backpropagation")
"""Questions whose answer follows from a change and a floor."""


def check_arithmetic(facts: Facts, source: str) -> None:
    """One line where a stated number is not what the others give, or is one that they leave no room for."""
    pairs = (_sizes, _alignment, _functional, _accuracy, _profile)
    for name, stated, follows in (pair for found in pairs for pair in found(facts)):
        if not _equal(stated, follows):
            raise CreditscopeError(
                f"{source}: {name} is {_shown(stated)}, and {_shown(follows)} follows from its other numbers"
            )
    for name, stated, least, most in _bounds(facts):
        slack = CLOSE * max(1.0, abs(least), abs(most)) if math.isfinite(most) else CLOSE
        if stated is not None and math.isfinite(stated) and not least - slack <= stated <= most + slack:
            room = f"from {least:.6g} to {most:.6g}" if math.isfinite(most) else f"not below {least:.6g}"
            raise CreditscopeError(f"{source}: {name} is {_shown(stated)}, and by its other numbers it lies {room}")


def _equal(stated: float | None, follows: float | None) -> bool:
    if stated is None or follows is None:
        return stated is follows
    if not (math.isfinite(stated) and math.isfinite(follows)):
        return stated == follows or (math.isnan(stated) and math.isnan(follows))
    return math.isclose(stated, follows, rel_tol=CLOSE, abs_tol=1e-9)


def _shown(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.6g}"


def _sizes(facts: Facts) -> Iterator[Pair]:
    means, size, groups = facts.scale.mean, facts.reference, facts.convention.n_samples // GROUP
    if all(math.isfinite(m) and m > 0 for m in means) and len(means) > 1:
        ratios = [b / a for a, b in pairwise(means)]
        largest = max(ratios)
        yield "growth", facts.scale.growth, largest
        if (at := facts.scale.growth_at) is not None:
            yield "growth at its layer", ratios[at] if 0 <= at < len(ratios) else None, largest
        yield "total growth", facts.scale.total_growth, means[-1] / means[0]
    for layer, (norm, mean) in enumerate(zip(size.per_sample, size.batch_mean_128, strict=True)):
        yield f"‖g_{layer}‖ / 128", mean, norm / GROUP
        yield f"clamp batch size at layer {layer}", size.clamp_batch_size[layer], norm / (10 * COSINE_EPS)
    yield "number of groups of the growth", len(facts.scale.growth_by_group), groups
    yield "number of groups of ‖g_L‖", len(size.deepest_by_group), groups
    if groups and groups * GROUP == facts.convention.n_samples:
        yield "mean ‖g_L‖ over its groups", _mean(size.deepest_by_group), size.per_sample[-1]


def _alignment(facts: Facts) -> Iterator[Pair]:
    aligned, total, spread = facts.alignment, facts.aggregate, facts.concentration
    if aligned is None or total is None or spread is None:
        return
    counting = aligned.counting_layers
    yield "Γ", total.headline, _mean([aligned.mean[k] for k in counting])
    yield "Γ over all layers", total.gamma_all_layers, _mean(aligned.mean)
    weights = [facts.reference.per_sample[k] for k in counting]
    yield "norm-weighted Γ", total.norm_weighted, norm_weighted([aligned.mean[k] for k in counting], weights)
    five = {name: getattr(total, name) for name in ("headline", "concat", "norm_weighted", "flattened", "clamped_128")}
    all_five = aggregate_of(five, total.gamma_all_layers)
    yield "spread of the aggregations of Γ", total.spread, all_five.spread
    yield "sign flip of the aggregations of Γ", total.sign_flips, all_five.sign_flips
    again = concentration(aligned.mean, spread.exact_layers, counting)
    for name in ("top_layer", "top_share", "deep_mean", "deep_mean_without_exact", "deep_mean_all_layers"):
        yield name.replace("_", " "), getattr(spread, name), getattr(again, name)
    for layer, (stated, follows) in enumerate(zip(spread.share, again.share, strict=True)):
        yield f"share of layer {layer}", stated, follows


def _functional(facts: Facts) -> Iterator[Pair]:
    """Deep means of ρ and of nudging; fresh-B; the decrease of the training loss."""
    exact = facts.concentration.exact_layers if facts.concentration else ()
    counting = facts.alignment.counting if facts.alignment else None
    for what, fact in (("ρ", facts.perturbation), ("nudging", facts.nudging)):
        for whose in ("credit", "reference", "random"):
            means: LayerMeans | None = getattr(fact, whose, None)
            if means is not None:
                again = concentration(means.mean, exact, counting)
                for name in ("deep_mean", "deep_mean_without_exact", "deep_mean_all_layers"):
                    yield f"{name.replace('_', ' ')} of {what} ({whose})", getattr(means, name), getattr(again, name)
    if (fresh := facts.fresh_b) is not None and fresh.draws:
        yield "fresh-B mean", fresh.mean, _mean(fresh.draws)
        if fresh.z is not None and fresh.trained is not None and fresh.mean is not None and fresh.std:
            yield "fresh-B z", fresh.z, (fresh.trained - fresh.mean) / fresh.std
    if (run := facts.training) is not None and run.loss_decrease is not None:
        yield "decrease of the training loss", run.loss_decrease, run.train_loss[-1] - run.train_loss[0]


def _bounds(facts: Facts) -> Iterator[Bound]:
    """What no network can have: a median above twice the mean, a spread of cosines beyond 1, a loss below its wrong answers."""
    n, far = facts.convention.n_samples, math.inf
    for layer, (mean, median) in enumerate(zip(facts.scale.mean, facts.scale.median, strict=True)):
        yield f"median ‖h_{layer}‖", median, 0.0, 2 * mean if math.isfinite(mean) else far
    for layer, zero in enumerate(facts.reference.zero_samples):
        yield f"samples with zero g_{layer}", zero, 0, n
    whole = len(facts.reference.deepest_by_group) * GROUP / n
    yield (
        "sum of ‖g_L‖ over its groups",
        (_mean(facts.reference.deepest_by_group) or 0.0) * whole,
        0.0,
        (facts.reference.per_sample[-1] if math.isfinite(facts.reference.per_sample[-1]) else far),
    )
    if facts.loss is not None and facts.accuracy is not None and facts.convention.loss.startswith("cross-entropy"):
        # a wrong answer has a class that is at least as likely as the right one, which has at most 1/2
        yield "loss", facts.loss, (1 - facts.accuracy) * math.log(2), far
    if (seen := facts.evaluation) is not None:
        yield "samples behind the accuracy", seen.n, n, n
        if seen.n_classes:
            yield "share of the largest class", seen.largest_class, 1 / seen.n_classes, 1.0
    if (aligned := facts.alignment) is not None:
        for layer, cosine in enumerate(aligned.mean):
            known = aligned.measurable[layer]
            yield f"measurable samples at layer {layer}", known, 0 if cosine is None else 1, 0 if cosine is None else n
            yield f"cosine at layer {layer}", cosine, -1.0, 1.0
            yield f"share under the floor at layer {layer}", aligned.under_floor[layer], 0.0, 1.0
            if cosine is not None and known > 1:
                most = math.sqrt(max(0.0, 1 - cosine**2) * known / (known - 1)) + 1e-4
                yield f"standard deviation of the cosine at layer {layer}", aligned.std[layer], 0.0, most
    if (total := facts.aggregate) is not None:
        for name in ("concat", "flattened", "clamped_128"):
            yield f"Γ, {name.replace('_', ' ')}", getattr(total, name), -1.0, 1.0


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


def _profile(facts: Facts) -> Iterator[Pair]:
    if (profile := facts.profile) is None:
        return
    last, twin = profile.curve[-1].accuracy, profile.twin[-1].accuracy
    yield "profile margin", profile.margin.pp if profile.margin else None, _difference(last, twin)
    steps = [(step, f"step {k} of the profile") for k, step in enumerate(profile.steps)]
    for k, (paired, name) in enumerate([(profile.margin, "the profile margin"), *steps]):
        if paired is None:
            continue
        if paired.low_pp > -100 and paired.high_pp < 100:
            # the interval of Agresti and Min has its middle at the difference, drawn to zero by two samples
            middle = paired.pp * profile.n_test / (profile.n_test + 2)
            yield f"the middle of the interval of {name}", (paired.low_pp + paired.high_pp) / 2, middle
        if k:
            before, after = profile.curve[k - 1 : k + 1]
            yield name, paired.pp, _difference(after.accuracy, before.accuracy)
    lost = next((k for k, step in enumerate(profile.steps) if step is not None and step.high_pp < 0), None)
    yield "the first block that takes accuracy away", profile.first_loss, lost
    raw = () if profile.raw is None else (profile.raw,)
    for name, readouts in (("readout", profile.curve), ("twin's readout", profile.twin), ("readout of the input", raw)):
        for layer, readout in enumerate(readouts):
            if readout.accuracy is not None:
                low, high = wilson(readout.accuracy, profile.n_test)
                yield f"lower end of {name} {layer}", readout.low, low
                yield f"upper end of {name} {layer}", readout.high, high


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else 100 * (a - b)
