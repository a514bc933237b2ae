"""Proof by what the measurement sees anyway."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.measure.facts import Proof
from creditscope.measure.loss import LossFn
from creditscope.measure.proof.differences import GRADIENT, SEED, STEPS, STEPS_FLOAT32, within, worst
from creditscope.measure.proof.excerpt import Excerpt
from creditscope.measure.proof.gradient import decided, why_not_float64
from creditscope.measure.proof.native import dtype_of_stream, rounding, too_large
from creditscope.measure.proof.steps import slope_errors, slope_errors_ahead, step_errors
from creditscope.measure.proof.swaps import error_alone, is_coupled
from creditscope.stream.batches import SAMPLES, Batches, first_tokens, logits_of, map_samples, run
from creditscope.stream.hooks import HookedStream
from creditscope.stream.interface import Stream, difference

IN_PASSING = {
    torch.float32: (1e-3, STEPS_FLOAT32[0][1], GRADIENT),
    torch.float64: (1e-6, STEPS[0][1], GRADIENT / 10),
}
"""Of the check one step at a time on the network itself: step to one side, step to both sides, largest error."""
LATER = 8
"""Batches of which a sample is looked at that the proof does not see otherwise, at the most."""


class Seen:
    """What the measurement sees of a few samples, so that the proof looks at the very numbers that are told.

    Of the first batch of a large network that can be proved one step at a time: of the samples of the proof. Of the last batch
    and of others that are drawn: of one sample that is drawn, behind the first ones where there are more.
    """

    def __init__(self, stream: Stream, batches: Batches, loss_fn: LossFn) -> None:
        self._stream, self._loss_fn = stream, loss_fn
        n, self._last = len(batches[0][1]), len(batches) - 1
        self.quick = n > 1 and bool(too_large(stream)) and isinstance(stream, HookedStream) and stream.apart
        order = torch.randperm(max(0, self._last - 1), generator=torch.Generator().manual_seed(SEED)) + 1
        self._drawn = (
            {*order.tolist()[: LATER - 1], self._last} - {0} if dtype_of_stream(stream) in IN_PASSING else set()
        )
        if not self.quick and n > SAMPLES and dtype_of_stream(stream) in IN_PASSING:
            self._drawn.add(0)
        self._first: Excerpt | None = None
        self._found: Proof | None = None
        self._later_alone = self.quick and bool(self._drawn) and len(batches[-1][1]) == n
        """A sample of the last batch, which is not its first one, is run by itself: at a place that the first has as well."""
        self.coupled = False
        """A sample of a later batch has other logits by itself."""
        self._short: tuple[Any, Tensor] | None = self._shortest(*batches[0]) if self.quick and self._last else None
        self._later: list[list[float | None]] = []
        self._kinks: set[int] = set()
        self.open: list[Excerpt] = []
        """Of one sample each: what is not proved yet."""

    def _shortest(self, inputs: Any, y: Tensor) -> tuple[Any, Tensor]:
        """A run that is cheap to repeat, with its logits: the first sample; of a language model the first few tokens of it; the
        whole batch where the model takes neither."""
        one, label = map_samples(inputs, len(y), lambda t: t[:1]), y[:1]
        for part in (first_tokens(one, label), one):
            if part is not None:
                with suppress(CreditscopeError):  # too few for the model
                    return part, logits_of(run(self._stream.model, part)).clone()
        return inputs, logits_of(run(self._stream.model, inputs)).clone()

    def excerpt(self, number: int, inputs: Any, y: Tensor) -> Excerpt | None:
        """To be shown the batch of that number; None: nothing of it is looked at."""
        n = len(y)
        low = SAMPLES if n > SAMPLES else int(n > 1)
        sample = int(torch.randint(low, n, (1,), generator=torch.Generator().manual_seed(SEED + number)))
        if self.quick and not number:
            # the gradient of the last one is looked at; of a few that is the first, which no later one is
            samples = [*range(SAMPLES - 1), sample] if n > SAMPLES else [*range(1, n), 0]
            self._first = Excerpt(self._stream, inputs, y, samples, True)
            return self._first
        return Excerpt(self._stream, inputs, y, [sample], self.quick) if number in self._drawn else None

    @torch.no_grad()
    def look(self, excerpt: Excerpt) -> None:
        """After its batch was measured: prove what was seen, and forget it; no later batch is measured beside it."""
        if excerpt is self._first:
            self._first, self._found = None, self._seen_right(excerpt)
            if self._found is None and dtype_of_stream(self._stream) in IN_PASSING:
                self.open.append(excerpt.last())
            return
        errors, alone = self._slope(excerpt) if self.quick else (None, False)
        if errors is not None:
            self._later.append([*errors])
        else:
            self.open.append(excerpt)
        if self.quick and not alone and excerpt.batch_size > 1:
            error = error_alone(self._stream, excerpt, 0)
            self.coupled |= rounding(excerpt.logits) < error < float("inf")
            self._found = self._found if error <= rounding(excerpt.logits) else None

    @torch.no_grad()
    def proof(self) -> Proof | None:
        """The proof with the runs that the measurement has made already. None: something does not come out; the proof with runs
        of its own decides."""
        if self._short is not None:
            inputs, before = self._short
            again = difference(logits_of(run(self._stream.model, inputs)), before)
            if again > rounding(before):
                raise CreditscopeError(
                    f"the model gives other logits for a sample after the last batch than before the first (relative difference "
                    f"{again:.2g}): it changes from call to call; keep its state fixed in eval mode"
                )
        if self._found is None:
            return None
        later = [*self._later]
        for excerpt in self.open:
            try:
                later.append(decided(self._stream, excerpt, self._loss_fn, self._kinks))
            except CreditscopeError:
                self.coupled = is_coupled(self._stream, excerpt)
                if not self.coupled:
                    raise
                return None
        found = {"gradient": worst(self._found.gradient, *later), "later": len(later)}
        return self._found.model_copy(update=found | {"kinks": tuple(sorted(self._kinks))})

    @property
    def proved(self) -> bool:
        """Is the first batch proved by what was seen of it?"""
        return self._found is not None

    def _seen_right(self, first: Excerpt) -> Proof | None:
        """Samples are run by themselves, without hooks: the logits are the model's own, and no sample influences another, if they
        are those of the measurement. The first sample is, and one behind it: of this batch or, so that nothing is run twice,
        of a later one."""
        stream, n = self._stream, len(first.samples)
        if not first.finite:
            return None
        alone = [first.samples.index(0)] if self._later_alone else range(n)
        errors = [error_alone(stream, first, k) for k in alone]
        if max(errors) > rounding(first.logits):
            return None
        dtype, slope = dtype_of_stream(stream), None
        if dtype in IN_PASSING:
            step, _, most = IN_PASSING[dtype]
            slope = first.slope(stream, n - 1, self._loss_fn, step)
        swaps = step_errors(stream, first.example, n, first.states, first.logits, slope)
        if swaps is None:
            return None
        gradient: list[float | None] = [None] * len(swaps)
        if slope is not None:
            found = slope.errors()
            if found and within(found, most):
                gradient = [*found]
            else:
                gradient = decided(stream, first.last(), self._loss_fn, self._kinks)
        return Proof(
            n_samples=n,
            logits=max(errors),
            independent=True,
            swap=tuple(swaps),
            gradient=tuple(gradient),
            gradient_dtype=str(dtype).removeprefix("torch."),
            gradient_reason=why_not_float64(dtype, too_large(stream)),
        )

    def _slope(self, excerpt: Excerpt) -> tuple[list[float] | None, bool]:
        """The error of each step of one sample, to one side, else to both, None where it is not small; and whether it tells that
        the sample has the states of the measurement by itself as well (from both sides, that cancels)."""
        step, longer, most = IN_PASSING[dtype_of_stream(self._stream)]
        slope = excerpt.slope(self._stream, 0, self._loss_fn, step)
        found = slope_errors_ahead(slope, excerpt.example, excerpt.logits)
        if within(found, most):
            return found, True
        found = slope_errors(excerpt.slope(self._stream, 0, self._loss_fn, longer), excerpt.example, 1)
        return (found if within(found, most) else None), False
