"""The proof with runs of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.measure.facts import Proof
from creditscope.measure.loss import LossFn
from creditscope.measure.proof.differences import AT_ONCE
from creditscope.measure.proof.excerpt import Excerpt
from creditscope.measure.proof.gradient import GradientCheck, gradient_errors, in_own_dtype
from creditscope.measure.proof.native import dtype_of_stream, own_states, reference_of, require_same_logits, rounding
from creditscope.measure.proof.steps import step_errors
from creditscope.measure.proof.swaps import are_independent, is_coupled, swap_errors
from creditscope.stream.batches import SAMPLES, few_run, logits_of, run
from creditscope.stream.interface import ROUNDING, InterfaceStream, Stream, difference


def prove(
    stream: Stream,
    inputs: Any,
    y: Tensor,
    loss_fn: LossFn,
    measured: Tensor,
    later: Sequence[Excerpt] = (),
    coupled: bool = False,
) -> Proof:
    """Call inside `untouched(stream.model)`, with a batch of the measurement and the logits of its first samples there.

    later: of single samples, whose gradients are held against a finite difference as they were measured.
    coupled: samples of a later batch were seen to influence each other.

    Where a few samples get other logits by themselves, the whole batch is the example.
    """
    example, n, output = few_run(stream.model, inputs, len(y))
    logits = logits_of(output).clone()  # some models give the same memory back every time
    if difference(logits[:SAMPLES], measured) > max(rounding(logits), ROUNDING.get(dtype_of_stream(stream), 0.0)):
        if n < len(y):
            example, n, logits = inputs, len(y), logits_of(run(stream.model, inputs)).clone()
        require_same_logits(measured, logits[:SAMPLES])
    whole = n == len(y) > SAMPLES  # the model takes batches of one size only
    reference = reference_of(stream, example, y[:n], loss_fn) if in_own_dtype(stream) else None
    seen = reference and (reference.states, reference.logits)
    if seen is None and isinstance(stream, InterfaceStream) and not whole:
        seen = stream.seen
    own, states, error = own_states(stream, example, seen, logits)
    finite = all(bool(t.isfinite().all()) for t in (own, *states))
    at_once = max(n, min(AT_ONCE, len(y)))  # no run is larger than a batch of the measurement
    swaps: list[float | None] = [None] * len(states)
    beside: tuple[str, ...] = ()
    apart = None
    independent = None if coupled else are_independent(stream, example, n, own)
    if independent is None and (coupled or any(is_coupled(stream, excerpt) for excerpt in later)):
        independent = False  # the first batch does not show it
    if independent:
        if finite and not whole and n <= SAMPLES and (stream.depth + 1) * n > len(y):
            apart = step_errors(stream, example, n, states, own)
        if apart is None:
            swaps, beside = swap_errors(stream, example, n, states, own, n if whole else at_once)
        else:
            swaps = [*apart]
    held, kinks = 0, set[int]()
    if finite:
        check = GradientCheck(
            y[:n],
            loss_fn,
            coupled=independent is False,
            at_once=n if whole or independent is False else at_once,
            apart=apart is not None,
            later=() if independent is False else [excerpt for excerpt in later if excerpt.finite],
        )
        try:
            gradient, dtype, why = gradient_errors(stream, example, check, reference, states[0])
        except CreditscopeError:
            if independent and any(is_coupled(stream, excerpt) for excerpt in later):
                return prove(stream, inputs, y, loss_fn, measured, later, coupled=True)
            raise
        held, kinks = check.held, check.kinks
    else:
        gradient, dtype, why = [None] * len(states), "none", "the states or logits are not finite"
    return Proof(
        n_samples=n,
        logits=error,
        independent=independent,
        swap=tuple(swaps),
        beside=beside,
        gradient=tuple(gradient),
        gradient_dtype=dtype,
        gradient_reason=why,
        kinks=tuple(sorted(kinks)),
        later=held,
    )
