"""Is g_l the gradient of the loss?"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.measure.loss import LossFn
from creditscope.measure.proof.coarse import Coarse
from creditscope.measure.proof.differences import (
    AT_ONCE,
    GRADIENT,
    GRADIENT_FLOAT32,
    LONGEST,
    RESOLUTION_STEPS,
    SEED,
    STEPS,
    STEPS_FLOAT32,
    Differences,
    Steps,
    sample_errors,
    within,
    worst,
)
from creditscope.measure.proof.excerpt import Excerpt, alike, doubled, given_inputs, joined
from creditscope.measure.proof.geometry import TINY, direction, norms, rows, scaled
from creditscope.measure.proof.kinks import at_zeros, bent, contradicted, no_gradient, not_between, require_smooth
from creditscope.measure.proof.native import (
    Reference,
    dtype_of_stream,
    reference_of,
    states_of,
    too_large,
    variant_logits,
    where,
)
from creditscope.measure.proof.steps import ALONG, Slope, slope_errors
from creditscope.stream.eager import eagerly
from creditscope.stream.hooks import HookedStream
from creditscope.stream.interface import InterfaceStream, Stream
from creditscope.stream.ranks import recover

MISSING = 5e-2
"""Error of one step, at every length and in every sample, beyond which g_l misses a part of the gradient through it."""


def in_own_dtype(stream: Stream) -> bool:
    """Is the gradient checked on the network itself: in float64, or too large for a copy in float32?"""
    dtype = dtype_of_stream(stream)
    return dtype == torch.float64 or (dtype == torch.float32 and bool(too_large(stream)))


def why_not_float64(dtype: torch.dtype, reason: str) -> str:
    """Why the gradient is not checked in float64, or not at all."""
    if dtype == torch.float64:
        return ""
    name = str(dtype).removeprefix("torch.")
    return reason if dtype == torch.float32 else f"{reason}; {name} is too coarse for a finite difference"


def gradient_errors(
    stream: Stream, example: Any, check: GradientCheck, reference: Reference | None, h: Tensor
) -> tuple[list[float | None], str, str]:
    """(relative error per layer, dtype of the check, why not everywhere).

    reference: states and gradients of the network itself, where they are known; h: its h_0, from where the copy runs.
    """
    own_dtype = dtype_of_stream(stream)
    if own_dtype == torch.float64:
        return check.all_errors(stream, example, STEPS, GRADIENT, reference, own=stream), "float64", ""
    if not (reason := too_large(stream)):
        example64, start = doubled(example), h.double()
        coarse = Coarse(given_inputs(example64), start)
        try:
            lifted = _lifted(stream)
            with eagerly(lifted.model):
                with torch.no_grad(), coarse:
                    states, logits = states_of(lifted, example64, start)
                    check.loss_fn(logits, check.y)
                lifted_reference = reference_of(lifted, example64, check.y, check.loss_fn, states)
        except Exception as error:  # it cannot be copied, or has float32 written into its code
            reason = f"the network does not run as a float64 copy ({' '.join(str(error).split())[:120]})"
        else:
            steps, tolerance = (STEPS_FLOAT32, GRADIENT_FLOAT32) if coarse.seen else (STEPS, GRADIENT)
            why = f"the network computes in {coarse.seen} inside, whatever its dtype" if coarse.seen else ""
            with eagerly(lifted.model):
                return (
                    check.all_errors(lifted, example64, steps, tolerance, lifted_reference, own=stream),
                    coarse.seen or "float64",
                    why,
                )
    if own_dtype != torch.float32:
        name = str(own_dtype).removeprefix("torch.")
        return [None] * (stream.depth + 1), name, why_not_float64(own_dtype, reason)
    return check.all_errors(stream, example, STEPS_FLOAT32, GRADIENT_FLOAT32, reference, own=stream), "float32", reason


def _lifted(stream: Stream) -> Stream:
    """The stream in float64."""
    if isinstance(stream, InterfaceStream):
        return stream.doubled()
    assert isinstance(stream, HookedStream)
    return stream.on(copy.deepcopy(stream.model).double())


@dataclass
class GradientCheck:
    """Holds the gradients of a stream against finite differences of the loss."""

    y: Tensor
    loss_fn: LossFn
    coupled: bool
    at_once: int
    """As in `Differences`."""
    apart: bool = False
    """The steps were seen to depend on nothing but their state: one step after the other may be checked."""
    later: Sequence[Excerpt] = ()
    """Single samples of the measurement, to be checked as well."""
    held: int = 0
    """How many of them were."""
    kinks: set[int] = field(default_factory=set)
    """Layers whose state was found to lie on a kink of the loss."""

    def all_errors(
        self,
        stream: Stream,
        example: Any,
        steps: Steps,
        tolerance: float,
        reference: Reference | None = None,
        *,
        own: Stream,
    ) -> list[float | None]:
        """`errors`, with those of later samples on the whole way from h_0; own: the stream that was measured, `stream` or one of
        another dtype."""
        found = self.errors(stream, example, steps, tolerance, reference)
        dtype = torch.float32 if reference is None else reference.states[0].dtype
        for group in alike(self.later):
            errors = self.of_each(stream, joined(group, dtype), steps, tolerance)
            for excerpt, error in zip(group, errors, strict=True):
                if error > tolerance and error < float("inf"):
                    error = self._by_itself(stream, joined([excerpt], dtype), steps, tolerance)
                if error > MISSING and error < float("inf"):
                    require_same(own, excerpt, self.loss_fn)  # then its dtype has no room for the gradient
                if error < float("inf"):
                    found[0] = worst([found[0]], [error])[0]
                    self.held += 1
        return found

    def errors(
        self, stream: Stream, example: Any, steps: Steps, tolerance: float, reference: Reference | None = None
    ) -> list[float | None]:
        """Relative error per layer; one above the tolerance is refused."""
        states, found, losses, logits = reference or reference_of(stream, example, self.y, self.loss_fn)
        for layer, g in enumerate(found):
            if g is None:
                raise CreditscopeError(
                    f"no gradient of the loss arrives at h_{layer} ({where(stream, layer)}); name blocks that the logits "
                    "depend on"
                )
        grads = [g for g in found if g is not None]
        held = Differences(
            stream,
            example,
            states,
            grads,
            losses,
            logits,
            self.y,
            self.loss_fn,
            steps,
            tolerance,
            self.coupled,
            self.at_once,
        )
        if self.apart and isinstance(stream, HookedStream):
            quick = self.by_steps(held)
            if quick is not None:
                require_smooth(held, [*quick])
                return [*quick]
        best, rough = held.compared()
        off = {
            layer: error for layer, error in enumerate(best) if error is not None and error > min(tolerance, GRADIENT)
        }
        kinked = bent(held, off) if off else set()
        sure = contradicted(held, [layer for layer in rough if layer not in kinked])
        if sure:
            raise no_gradient(stream, min(sure), sure[min(sure)])
        if kinked:
            still, _ = held.compared(kinked)
            at_zero = at_zeros(held, kinked)
            for layer, error in enumerate(at_zero):
                if error is not None and error > tolerance:
                    raise not_between(stream, layer, error)
            best = [both if layer in kinked else best[layer] for layer, both in enumerate(worst(still, at_zero))]
            self.kinks |= kinked
        for layer, wrong in enumerate(best):
            if wrong is not None and wrong > tolerance:
                raise no_gradient(stream, layer, off[layer])
        require_smooth(held, best, kinked)
        return best

    def _by_itself(self, stream: Stream, excerpt: Excerpt, steps: Steps, tolerance: float) -> float:
        """Relative difference of the measured g_0 of a sample from that of the sample by itself, proved to be a gradient.

        A finite difference that does not agree may be one of a network that rounds; what is wrong is then told from it.
        """
        exact = reference_of(stream, excerpt.example, excerpt.y, self.loss_fn)
        alone = GradientCheck(excerpt.y, self.loss_fn, coupled=False, at_once=AT_ONCE, kinks=self.kinks)
        alone.errors(stream, excerpt.example, steps, tolerance, exact)
        g = exact.grads[0]
        assert g is not None  # `errors` has looked
        return relative_difference(stream, excerpt, g)

    def by_steps(self, held: Differences) -> list[float] | None:
        """Relative error per layer, one step at a time; None: it does not tell.

        Refused: a step whose error is large at every length and in every sample, and one at which two lengths agree with each
        other and not with g_l; not where the state lies on a kink.
        """
        stream, steps, tolerance = held.stream, held.steps, held.tolerance
        assert isinstance(stream, HookedStream)
        lengths = [length for scale, length in steps if scale == "state"]
        lengths.append(lengths[0] / 100)
        wrong: set[int] | None = None
        close: list[float] | None = None

        def tried(sample: int, length: float, draw: int = 0) -> tuple[Slope, list[float] | None]:
            slope = Slope(stream, sample, self.y, self.loss_fn, held.states, held.grads, length, draw)
            return slope, slope_errors(slope, held.example, len(self.y))

        for k, length in enumerate(lengths):  # a kink is met by one sample, at some lengths
            slope, errors = tried(k % len(self.y), length)
            if errors is None:
                return close
            if within(errors, min(tolerance / 10, GRADIENT)):
                return errors
            if not k and tolerance > GRADIENT:
                again, known = tried(0, lengths[1])
                sure = {} if known is None else slope.contradicted(again, GRADIENT)
                for draw in (1, 2) if sure else ():  # kinks agree by chance, not along every direction
                    one, other = (tried(0, each, draw)[0] for each in lengths[:2])
                    sure = {layer: off for layer, off in sure.items() if one.agrees(other, layer, off)}
                if sure:
                    if bent(held, sure) >= set(sure):
                        return None
                    raise no_gradient(stream, max(sure), errors[max(sure)])
            if within(errors, tolerance / 10):
                close = errors if close is None else min(close, errors, key=max)
            wrong = slope.wrong(MISSING) if wrong is None else wrong & slope.wrong(MISSING)
            if not wrong and close is None:
                return None
        if wrong and errors is not None:
            if bent(held, wrong) >= wrong:
                return None
            raise no_gradient(stream, max(wrong), errors[max(wrong)])
        return close

    @torch.no_grad()
    def of_each(self, stream: Stream, excerpt: Excerpt, steps: Steps, tolerance: float) -> list[float]:
        """The error of g_0 of each sample of an excerpt, the best of all lengths; infinite where none can be told, or the model
        does not take these samples together."""
        (h, *_), g = excerpt.states, excerpt.grads[0]
        wide = ALONG / (g.numel() / len(excerpt.y)) ** 0.5 if tolerance <= GRADIENT else 1.0
        v = direction(stream, g, torch.Generator().manual_seed(SEED), wide)
        losses = self.loss_fn(excerpt.logits, excerpt.y)
        size = (
            torch.maximum(losses.abs(), excerpt.logits.abs().reshape(len(excerpt.y), -1).amax(1))
            .clamp_min(1.0)
            .double()
        )
        long, steep = norms(stream, h), norms(stream, g)
        resolution = RESOLUTION_STEPS * torch.finfo(h.dtype).eps * (size + long * steep)
        foretold = (rows(stream, g).double() * rows(stream, v).double()).sum(1)
        best = torch.full_like(foretold, float("inf"))
        for scale, step in (*steps, (steps[0][0], steps[0][1] / 100)):  # behind a kink
            length = step * long if scale == "state" else torch.minimum(step / steep.clamp_min(TINY), LONGEST * long)
            moved = scaled(stream, v, length.clamp(TINY, 1 / TINY))
            try:
                logits = variant_logits(stream, [(0, h + moved), (0, h - moved)], excerpt.example, self.at_once)
                up, down = (self.loss_fn(each, excerpt.y) for each in logits)
            except Exception:  # it is the user's code: it may take batches of some sizes only
                recover(stream.model)
                break
            change = (up - down).double() / (2 * length)
            best = torch.minimum(best, sample_errors(change, foretold, resolution / (2 * length), tolerance))
            if bool((best <= min(tolerance / 10, GRADIENT)).all()):
                break
        return best.tolist()


def require_same(own: Stream, excerpt: Excerpt, loss_fn: LossFn) -> None:
    """A sample by itself, on the network that was measured, must have the gradient that it had in its batch."""
    g = reference_of(own, excerpt.example, excerpt.y, loss_fn).grads[0]
    off = float("inf") if g is None else relative_difference(own, excerpt, g)
    if not off <= MISSING:
        raise CreditscopeError(
            f"g_0 of sample {excerpt.samples[0]} of a batch of {excerpt.batch_size} is not the gradient of its loss: by itself "
            f"the sample has another one (relative difference {off:.2g}). The backward pass depends on where a sample stands"
        )


def relative_difference(stream: Stream, excerpt: Excerpt, g: Tensor) -> float:
    """Relative difference of the g_0 that was measured from this one."""
    return float((norms(stream, excerpt.grads[0] - g) / norms(stream, g).clamp_min(TINY)).max())


def decided(stream: Stream, excerpt: Excerpt, loss_fn: LossFn, kinks: set[int]) -> list[float | None]:
    """The errors of the gradients of one sample that does not depend on others, on the network itself; refused where they are
    none. Layers on a kink are added to `kinks`."""
    steps, tolerance = (
        (STEPS, GRADIENT) if dtype_of_stream(stream) == torch.float64 else (STEPS_FLOAT32, GRADIENT_FLOAT32)
    )
    at_once = min(AT_ONCE, excerpt.batch_size)
    check = GradientCheck(excerpt.y, loss_fn, coupled=False, at_once=at_once, apart=True, kinks=kinks)
    return check.errors(stream, excerpt.example, steps, tolerance, excerpt.reference(loss_fn))
