"""Where the loss has no derivative: states on a kink, losses that are a staircase, gradients that two lengths contradict."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from creditscope.errors import CreditscopeError
from creditscope.measure.proof.coarse import Coarse
from creditscope.measure.proof.differences import GRADIENT, SEED, Differences, error_between, worst
from creditscope.measure.proof.excerpt import given_inputs
from creditscope.measure.proof.geometry import TINY, direction, norms, rows, scaled
from creditscope.measure.proof.native import states_of, where
from creditscope.measure.proof.steps import AGREE, COMMON
from creditscope.stream.interface import Stream

STRAIGHT = 0.5
"""At a kink the loss bends as much over a short step as over a long one; elsewhere it bends by less than this share of it."""
SHORT = (1e-3, 1e-4)
"""Steps, relative to ‖h_l‖, over which a loss without stairs is straight."""


def require_smooth(held: Differences, best: Sequence[float | None], kinked: Collection[int] = ()) -> None:
    """Refused: a layer whose gradient agrees with a long step of the finite difference, roughly, and not with a short one.

    So it is where a network rounds its states and lets gradients pass as if it did not (fake quantisation, or any other
    straight-through estimator): the loss is a staircase, and a long step passes over many stairs. A kink is met by a long
    step as well. What is seen to be rounded to half precision is let pass; where an operation hides that, or where digits
    of float32 cancel, the gradient cannot be told from a wrong one, and is refused too.
    """
    rough = [k for k, error in enumerate(best) if error is not None and error > GRADIENT]
    if held.tolerance <= GRADIENT or not rough:
        return
    sizes, directions = held.sizes(), held.directions
    resolutions = held.resolutions(sizes, torch.float32)
    for k in kinked:
        directions[k] = directions[k] * (held.states[k] != 0)
    stairs = dict.fromkeys(rough, (0.0, 0.0))
    """The largest error of a short step, and by how many times it is more than rounding may make."""
    for step in SHORT:
        lengths = held.lengths("state", step, sizes)
        for k, (change, foretold) in zip(rough, held.slopes(rough, directions, lengths), strict=True):
            resolution = resolutions[k] / (2 * lengths[k].double())
            change, foretold, resolution = held.summed(change, foretold, resolution)
            off = (change - foretold).abs()
            error = float((off / torch.maximum(change.abs(), foretold.abs()).clamp_min(TINY)).median())
            if not error > held.tolerance:
                stairs.pop(k, None)
            elif k in stairs:
                beyond = float((off / resolution).median())
                stairs[k] = max(stairs[k][0], error), max(stairs[k][1], beyond)
    found = {k: error for k, (error, beyond) in stairs.items() if beyond > 1}
    if found and not computes_in_half(held):
        raise _rounded(held.stream, min(found), found[min(found)], best[min(found)])


def contradicted(held: Differences, layers: Sequence[int]) -> dict[int, float]:
    """Those of the layers at which two lengths of the step agree with each other, and with g_l not, along every one of three
    directions (kinks agree by chance along one), and the relative error; in the middle one of the samples."""
    if held.tolerance <= GRADIENT or not layers:
        return {}
    found: dict[int, float] = {}
    sizes = held.sizes()
    resolutions = held.resolutions(sizes, torch.float32)
    for draw in range(3):
        rng = torch.Generator().manual_seed(SEED + draw)
        drawn = (direction(held.stream, g, rng) for g in held.grads)
        directions = [v * (h != 0) for v, h in zip(drawn, held.states, strict=True)]  # at 0 there may be a kink
        lengths = [held.lengths(scale, step, sizes) for scale, step in held.steps[:2]]
        one, other = (held.slopes(layers, directions, each) for each in lengths)
        found = {}
        for k, (long, foretold), (short, _) in zip(layers, one, other, strict=True):
            noise = resolutions[k] / (2 * lengths[1][k].double())
            long, foretold, short, noise = held.summed(long, foretold, short, noise)
            off = torch.minimum((long - foretold).abs(), (short - foretold).abs())
            least = torch.maximum(GRADIENT * foretold.abs(), COMMON * noise)
            sure = (off > least) & ((long - short).abs() * AGREE < off)
            if 2 * int(sure.sum()) > len(sure):
                found[k] = float((off / torch.maximum(long.abs(), foretold.abs()).clamp_min(TINY)).median())
        layers = list(found)
        if not layers:
            break
    return {} if found and computes_in_half(held) else found


def bent(held: Differences, layers: Collection[int]) -> set[int]:
    """Those of the layers whose state lies on a kink: some of it is exactly zero (one ReLU gave it, the next takes it as it
    is), and the loss bends as much over a short step as over a long one."""
    stream, states = held.stream, held.states
    found = [layer for layer in layers if bool((states[layer] == 0).any())]
    if not found:
        return set()
    directions = held.directions
    bends = []
    for step in [length for scale, length in held.steps if scale == "state"][:2]:
        lengths = {k: held.length(step * norms(stream, states[k])) for k in found}
        moved = [(k, scaled(stream, directions[k], lengths[k])) for k in found]
        both = held.on_both_sides(moved)
        bends.append(
            [
                float(((up + down - 2 * held.losses).double() / lengths[k]).abs().sum())
                for k, up, down in zip(found, both[::2], both[1::2], strict=True)
            ]
        )
    return {k for k, long, short in zip(found, *bends, strict=True) if short > STRAIGHT * long > 0}


def at_zeros(held: Differences, layers: Collection[int]) -> list[float | None]:
    """Relative error of g_l where the state is exactly zero and the loss has a kink: how far <g_l, v>, v >= 0, lies outside
    the slopes of the loss ahead of the state and behind it. None as in `compared`, and at other layers.

    Zeros at which g_l is positive, negative and zero are moved by themselves: what g_l holds there does not cancel.
    """
    stream, states, grads, losses = held.stream, held.states, held.grads, held.losses
    best: list[float | None] = [None] * len(states)
    sizes = held.sizes()
    resolutions = held.resolutions(sizes)
    rng = torch.Generator().manual_seed(SEED)
    for k in sorted(layers):
        drawn = torch.rand(grads[k].shape, generator=rng).to(grads[k])
        for part in (grads[k] > 0, grads[k] < 0, grads[k] == 0):
            v = drawn * (part & (states[k] == 0))
            v = scaled(stream, v, 1 / norms(stream, v).clamp_min(TINY))
            foretold = (rows(stream, grads[k]) * rows(stream, v)).sum(1).double()
            found: list[float] = []
            for scale, step in held.steps:
                length = held.lengths(scale, step, sizes)[k]
                up, down = held.on_both_sides([(k, scaled(stream, v, length))])
                slopes = [change.double() / length for change in (up - losses, losses - down)]
                error = error_between(slopes, foretold, resolutions[k] / length, held.coupled, held.tolerance)
                if error is not None:
                    found.append(error)
                    if error <= held.tolerance / 100:
                        break
            best[k] = worst([best[k]], [min(found, default=None)])[0]
    return best


def no_gradient(stream: Stream, layer: int, error: float) -> CreditscopeError:
    return CreditscopeError(
        f"g_{layer} is not the gradient of the loss ({where(stream, layer)}): it differs from a finite "
        f"difference by a relative {error:.2g}. A layer or a hook has a backward pass of its own; diagnose an "
        "ordinary network of the same weights (credit_from_grads makes the method's backward pass the credit)"
    )


def _rounded(stream: Stream, layer: int, short: float | None, long: float | None) -> CreditscopeError:
    return CreditscopeError(
        f"g_{layer} is not the gradient of the loss ({where(stream, layer)}): it agrees with a long finite difference to a "
        f"relative {long:.2g}, and differs from a short one by {short:.2g}. The network rounds its states and its backward pass "
        "does not (fake quantisation, a straight-through estimator): switch the rounding off, or make that backward pass the "
        "credit (credit_from_grads). Or digits are lost: half precision inside a compiled or custom operation, or large numbers "
        "that cancel in float32; diagnose model.double()"
    )


def computes_in_half(held: Differences) -> bool:
    """Does the network, or its loss, compute in half precision inside?"""
    coarse = Coarse(given_inputs(held.example))
    with torch.no_grad(), coarse:
        held.loss_fn(states_of(held.stream, held.example)[1], held.y)
    return coarse.seen in ("float16", "bfloat16")


def not_between(stream: Stream, layer: int, error: float) -> CreditscopeError:
    return CreditscopeError(
        f"g_{layer} is not the gradient of the loss where h_{layer} is exactly 0, at a bend ({where(stream, layer)}): it lies "
        f"outside the slopes on both sides by a relative {error:.2g}. A layer or a hook has a backward pass of its own, or bends "
        "up and down meet in one zero; diagnose an ordinary network of the same weights, or inputs without exact zeros"
    )
