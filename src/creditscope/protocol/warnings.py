"""Warnings: what a reader must know beside the verdict, one sentence each, in the order in which they weigh."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from creditscope.measure.concentration import concentrated, near_zero
from creditscope.measure.facts import GROUP, Facts
from creditscope.measure.reference import SURE
from creditscope.protocol.checks import Check, chosen_margin, floor_by_scale
from creditscope.protocol.consistency import no_accuracy, null_at_chance
from creditscope.protocol.estimate import disagreement
from creditscope.protocol.thresholds import DiagnosticThresholds, changed
from creditscope.protocol.wording import compared, null_name, number, signed

LARGEST_QUOTED_BATCH = 1024
"""Papers quote ‖g‖ and Γ at batch sizes from 128 to about 1,024."""

GROUPS_ADVISED = 8
FEW_SAMPLES, ADVISED = 32, GROUPS_ADVISED * GROUP
"""Evaluation samples: under the first number a warning names the second."""

SOME_REPEATED = 0.01
"""Share of the evaluation samples that may be equal to others without a word: data sets hold a few such pairs."""
COARSE_GRADIENT = 1e-3
"""Relative error of g_l above which it is told: a coarse finite difference may miss a part of that size, and the network's own
float32 may round by as much."""
SWAP_ROUNDING = 1e-3
"""Relative difference of logits above which a state does not carry everything (float32 rounds at 1e-7, bfloat16 at 1e-2)."""


def warnings_for(
    facts: Facts,
    thresholds: DiagnosticThresholds,
    checks: Mapping[str, Check],
    decided: tuple[str, ...],
    earned: bool = True,
) -> tuple[str, ...]:
    """All warnings.

    `decided` are the ids of the checks that already fail the verdict: they are reasons, not warnings. `earned`
    (three-check/1.1): cosines near zero have neither a layer that carries them nor a sign.
    """
    return (
        *_proof(facts),
        *_sample(facts),
        *_lone_checks(checks, decided),
        *_tokens(facts, thresholds),
        *_concentration(facts, thresholds, earned),
        *_equal_to_gradient(facts),
        *_aggregations(facts, earned),
        *_clamp(facts),
        *filter(None, [floor_by_scale(facts, thresholds)]),
        *_dtype(facts, thresholds),
        *_changed(thresholds),
        *_claim(facts),
        *_depth(facts, thresholds, checks["D3"]),
        *_input(facts, checks["D3"]),
        *_stability(facts, checks["C"]),
        *_unmeasurable(facts),
    )


def _proof(facts: Facts) -> Iterator[str]:
    """What the proof of the stream could not settle."""
    proof, total = facts.proof, facts.convention.n_samples
    if proof is not None:
        if proof.independent is False:
            yield (
                "samples influence each other through the batch: h_l and g_l of a sample depend on the batch that it stands in; "
                "every number here belongs to these batches"
            )
        around = {layer: e for layer, e in enumerate(proof.swap) if e is not None and e > SWAP_ROUNDING}
        if around:
            layers = ", ".join(f"h_{layer}" for layer in around)
            yield (
                f"something goes around {layers}: put into the run of another sample, the state does not bring its logits along "
                f"(relative difference up to {number(max(around.values()))}); what goes around it is not seen at that layer"
            )
        if proof.beside:
            yield f"beside the stream the network is given {', '.join(proof.beside)}; it is held fixed where h_l is moved"
        unproved = [layer for layer, e in enumerate(proof.gradient) if e is None]
        if unproved and not facts.non_finite:
            why = proof.gradient_reason or "the change of the loss is below its resolution"
            layers = ", ".join(f"g_{layer}" for layer in unproved)
            yield f"{layers} could not be held against a finite difference: {why}"
        coarse = {layer: e for layer, e in enumerate(proof.gradient) if e is not None and e > COARSE_GRADIENT}
        if coarse:
            layers = ", ".join(f"g_{layer}" for layer in coarse)
            yield (
                f"{layers} {'agree' if len(coarse) > 1 else 'agrees'} with the gradient to a relative "
                f"{number(max(coarse.values()))} only (proof in {proof.gradient_dtype}): rounding, or a missing part of that size"
            )
        if kinks := proof.kinks:
            states, grads = (", ".join(f"{name}_{layer}" for layer in kinks) for name in "hg")
            yield (
                f"part of {states} is exactly 0, at the bend of a ReLU, where the loss has no derivative: there, {grads} "
                f"{'hold' if len(kinks) > 1 else 'holds'} what torch chooses between the slopes on both sides"
            )
    zero = {layer: n for layer, n in enumerate(facts.reference.zero_samples) if n}
    if zero and not facts.non_finite:
        counts = ", ".join(f"g_{layer}: {n:,}" for layer, n in zero.items())
        yield f"the reference is exactly zero in some of {total:,} samples ({counts}): their loss does not depend on that state"


def _sample(facts: Facts) -> Iterator[str]:
    """What the numbers are not of: blocks that were left out, and samples beyond a few."""
    stream, n = facts.stream, facts.convention.n_samples
    if stream.left_out:
        several, first = len(stream.left_out) > 1, stream.blocks[0]
        names = ", ".join(stream.left_out[:4]) + (", ..." if len(stream.left_out) > 4 else "")
        yield (
            f"{names} {'are' if several else 'is'} of the same class as the blocks, in the same list, and not among them: every "
            f"number is of the {stream.depth} blocks that were named, and h_0 is the input of {first}"
        )
    if n < FEW_SAMPLES:
        yield f"{n:,} evaluation sample{'s' * (n != 1)}: every number is a mean over them; {ADVISED:,} are advised"
    if (repeated := facts.convention.repeated) > SOME_REPEATED * n:
        yield (
            f"{repeated:,} of {n:,} evaluation samples are equal to an earlier one, to the bit: unless samples of this task "
            "repeat by chance, every interval that counts them is too narrow; give each sample once"
        )


def _lone_checks(checks: Mapping[str, Check], decided: tuple[str, ...]) -> Iterator[str]:
    d1, d2 = checks["D1"], checks["D2"]
    if d1.answer == "fail" and "D1" not in decided:
        if d2.answer == "pass":
            times = f"{number(d1.value)}-fold" if d1.value is not None and math.isfinite(d1.value) else "without bound"
            yield f"D1 alone: D2 passes, so the reference can be used, but the stream grows {times} within one block"
        else:
            yield "D1 fails and D2 is open: whether Γ can be read is not decided"
    if d2.answer == "fail" and "D2" not in decided:
        if d1.answer == "pass":
            yield "D2 alone: a degenerate reference without growth is a warning, not a failure"
        else:
            yield "D2 fails and D1 is open: whether it is Mode 1 is not decided"


def _tokens(facts: Facts, thresholds: DiagnosticThresholds) -> Iterator[str]:
    """Where D1 depends on which tokens ‖h_l‖ is of."""
    limit, read, whole = thresholds.h_norm_explosion_ratio, facts.scale.growth, facts.scale.growth_all_tokens
    if whole is not None and math.isfinite(read) and (read > limit) != (whole > limit):
        yield (
            f"D1 depends on the reading: growth is {compared(read, limit)} at the {facts.stream.vector}, which the head reads, "
            f"and {compared(whole, limit)} over all tokens"
        )


def _concentration(facts: Facts, thresholds: DiagnosticThresholds, earned: bool) -> Iterator[str]:
    fact = facts.concentration
    if fact is not None and fact.top_share is not None and concentrated(facts, thresholds.concentration_share, earned):
        exact = " (its credit is exact by construction)" if fact.top_layer in fact.exact_layers else ""
        versus = compared(abs(fact.top_share), thresholds.concentration_share)
        yield (
            f"Mode 2: layer {fact.top_layer}{exact} carries a share of {versus} of Σ|cos_l|: "
            "read the per-layer cosines, not Γ"
        )


def _equal_to_gradient(facts: Facts) -> Iterator[str]:
    """Layers where the credit turned out to be the gradient, though the rule does not say so (a callable, arrays)."""
    if facts.alignment is None or facts.concentration is None:
        return
    means, counting = facts.alignment.mean, facts.alignment.counting_layers
    equal = [k for k in facts.alignment.equal_to_gradient if k not in facts.concentration.exact_layers]
    if not equal:
        return
    named = ("layer " if len(equal) == 1 else "layers ") + ", ".join(map(str, equal))
    rest = [means[k] for k in counting if k not in (*equal, *facts.concentration.exact_layers)]
    known = [cosine for cosine in rest if cosine is not None]
    without = f"Γ without such layers is {signed(sum(known) / len(known))}" if known else "no other layer has a cosine"
    yield f"{named}: the credit equals the BP gradient to round-off (cosine 1); {without}"


def _aggregations(facts: Facts, earned: bool) -> Iterator[str]:
    fact = facts.aggregate
    if fact is None or not fact.sign_flips:
        return
    named = fact.measured
    if not (earned and near_zero(named.values())):
        values = ", ".join(f"{name} {signed(value)}" for name, value in named.items())
        yield f"the sign of Γ depends on the aggregation: {values}"


def _clamp(facts: Facts) -> Iterator[str]:
    sizes = dict(enumerate(facts.reference.clamp_batch_size))
    touched = {layer: size for layer, size in sizes.items() if size < LARGEST_QUOTED_BATCH}
    if not touched:
        return
    layer = min(touched, key=lambda key: touched[key])
    size = touched[layer]
    where = f"from batch size {math.floor(size) + 1:,} on" if size >= 1 else "at any batch size"
    yield f"clamp: {where}, the eps (1e-8) of F.cosine_similarity may distort layer {layer}'s cosine"


def _dtype(facts: Facts, thresholds: DiagnosticThresholds) -> Iterator[str]:
    dtype = facts.convention.dtype
    floor = thresholds.floor_for(dtype)
    if floor > thresholds.g_norm_floor:
        yield (
            f"{dtype}: the floor of D2 is raised from {number(thresholds.g_norm_floor)} to {number(floor)} "
            "(10 x the smallest subnormal); the reference may underflow in this dtype, measure in float32"
        )


def _changed(thresholds: DiagnosticThresholds) -> Iterator[str]:
    if own := changed(thresholds):
        named = ", ".join(f"{name} {number(here)} ({number(there)})" for name, (here, there) in own.items())
        yield f"thresholds that are not the protocol's (its own in brackets): {named}"


def _claim(facts: Facts) -> Iterator[str]:
    if facts.claim is None:
        return
    if facts.claim.other_data:
        seen = "" if facts.evaluation is None else f" (accuracy {number(facts.evaluation.accuracy)} there)"
        yield f"the stated accuracy is of other data than the evaluation batches{seen}: the two are not compared"
    elif facts.evaluation is None:
        yield f"the stated accuracy could not be compared with the evaluation batches: {no_accuracy(facts)}"


def _depth(facts: Facts, thresholds: DiagnosticThresholds, check: Check) -> Iterator[str]:
    margin = chosen_margin(facts)
    if margin is None or facts.depth is None:
        return
    if margin.null == "kind unstated":
        yield "D3 uses a null of unstated kind: how its embedding was trained changes its accuracy"
    elif margin.null != "matched":
        yield f"D3 uses the {null_name(margin.null)}: no matched null was given"
    if margin.n == 1:
        kind = margin.interval.replace(", this network only", "")
        how = "a point comparison without an interval" if margin.low_pp is None else f"interval: {kind}"
        yield f"D3 speaks of this network only: n = 1 ({how})"
    elif margin.low_pp is None:
        yield f"D3 is a point comparison without an interval: {margin.n} networks against one null"
    if margin.null_n is not None:
        yield f"D3 is not paired over seeds, so its interval is wider: {margin.n} against {margin.null_n} seeds"
    if margin.repeated:
        yield (
            f"every trained network has the accuracy {margin.accuracy:.4g}: if they are one network, D3 counts it several times; "
            "state one number for each seed"
        )
    if margin.null_repeated:
        yield (
            f"every {null_name(margin.null)} has the accuracy {margin.null_accuracy:.4g}: if they are one network, D3 counts it "
            "several times; draw each with a seed of its own (frozen_blocks(..., seed=1), run_null(seeds=...))"
        )
    needed = thresholds.frozen_acc_margin_pp
    if check.value is not None and (untrained := null_at_chance(facts, margin)):
        yield untrained
    if check.value is not None and (apart := disagreement(facts, margin, needed)):
        yield apart
    for other in facts.depth.margins:
        below = other.margin_pp < needed
        if other is not margin and check.value is not None and below != (check.value < needed):
            yield (
                f"the null decides D3: {compared(check.value, needed, ' pp')} over the {null_name(margin.null)}, "
                f"{compared(other.margin_pp, needed, ' pp')} over the {null_name(other.null)}"
            )


def _input(facts: Facts, check: Check) -> Iterator[str]:
    """Where a linear readout of the raw input does as well as the network, and better than chance."""
    raw = None if facts.profile is None else facts.profile.raw
    own = facts.claim.accuracy if facts.claim and not facts.claim.other_data else facts.accuracy
    chance = facts.evaluation.chance if facts.evaluation else None
    if raw is None or raw.accuracy is None or raw.low is None or own is None or raw.accuracy < own:
        return
    if chance is None or raw.low > chance:
        conclusion = "it is not shown that this network makes use of its depth"
        if raw.low >= own:  # its whole interval
            passed = ", and D3 shows only that trained blocks lose less than random ones"
            conclusion = f"this network makes no use of its depth{passed if check.answer == 'pass' else ''}"
        yield f"a linear readout of the raw input has {number(raw.accuracy)}, the network {number(own)}: {conclusion}"


def _stability(facts: Facts, check: Check) -> Iterator[str]:
    if check.answer == "fail" and facts.aggregate is not None:
        yield "C: Γ may measure alignment to a drift that all samples share"
    if check.answer in ("pass", "fail") and facts.stability.groups < GROUPS_ADVISED:
        yield f"C rests on {facts.stability.groups} groups, {GROUPS_ADVISED} advised"


def _unmeasurable(facts: Facts) -> Iterator[str]:
    if facts.alignment is None:
        return
    total = facts.convention.n_samples
    counting = facts.alignment.counting_layers
    found = enumerate(facts.alignment.measurable)
    missing = {layer: total - n for layer, n in found if n < total and (n or layer in counting)}
    if missing:
        counts = ", ".join(f"layer {layer}: {n:,}" for layer, n in missing.items())
        yield f"samples without a measurable cosine (zero or not finite), left out of {total:,}: {counts}"
    if rounded := facts.reference.rounded_samples:
        yield (
            f"the loss of {rounded:,} of {total:,} samples is under {number(SURE)}: float32 rounds their gradient by 5 % or "
            "more, and their cosine with it; diagnose model.double()"
        )
