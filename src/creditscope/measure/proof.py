"""Proof that a network is seen rightly, on a few samples at every measurement; what cannot be proved is refused or marked.

Refused: logits that are not the model's own, a state that cannot be replaced by itself, a reference that is no gradient.
Marked: samples that influence each other, states that do not carry everything.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from torch.utils.weak import WeakIdKeyDictionary

from creditscope.errors import CreditscopeError
from creditscope.measure.facts import Proof
from creditscope.measure.loss import LossFn
from creditscope.measure.steps import (
    AGREE,
    ALONG,
    COMMON,
    TINY,
    Slope,
    direction,
    norms,
    rows,
    scaled,
    slope_errors,
    slope_errors_ahead,
    step_errors,
)
from creditscope.stream.batches import (
    SAMPLES,
    Arguments,
    Batches,
    call_model,
    few_run,
    first_tokens,
    logits_of,
    map_samples,
    run,
    tensors_of,
)
from creditscope.stream.blocks import Path, spelled, tensors_in
from creditscope.stream.devices import dtype_in
from creditscope.stream.eager import eagerly
from creditscope.stream.hooks import HookedStream
from creditscope.stream.interface import ROUNDING, InterfaceStream, Stream, difference
from creditscope.stream.ranks import recover

_Reference = tuple[list[Tensor], list[Tensor | None], Tensor, Tensor]
"""Native states and gradients of l = 0..L, losses, logits."""
LARGEST_COPY = 50_000_000
"""Parameters up to which the gradient is checked on a float64 copy."""
STEPS = (("state", 1e-5), ("state", 1e-7), ("state", 1e-3), ("state", 1e-2), ("loss", 1e-3), ("loss", 1e-5))
"""Length of the finite difference: relative to ‖h_l‖ of the sample, or such that the loss changes by that much as g_l foretells.
The next one is tried where one does not agree."""
STEPS_FLOAT32 = (("state", 1e-2), ("state", 1e-3), ("state", 1e-1), ("loss", 1e-2))
Steps = tuple[tuple[str, float], ...]
GRADIENT = 1e-3
"""Largest relative error of <g_l, v> against the finite difference on a float64 copy."""
GRADIENT_FLOAT32 = 5e-2
MISSING = 5e-2
"""Error of one step, at every length and in every sample, beyond which g_l misses a part of the gradient through it."""
IN_PASSING = {
    torch.float32: (1e-3, STEPS_FLOAT32[0][1], GRADIENT),
    torch.float64: (1e-6, STEPS[0][1], GRADIENT / 10),
}
"""Of the check one step at a time on the network itself: step to one side, step to both sides, largest error."""
LATER = 8
"""Batches of which a sample is looked at that the proof does not see otherwise, at the most."""
LONGEST = 1e-2
"""The longest step, relative to ‖h_l‖."""
AT_ONCE = 128
"""Samples in one run of several moved states, at the most."""
RESOLUTION_STEPS = 100
"""A change of the loss below so many rounding steps is not measurable."""
STRAIGHT = 0.5
"""At a kink the loss bends as much over a short step as over a long one; elsewhere it bends by less than this share of it."""
SHORT = (1e-3, 1e-4)
"""Steps, relative to ‖h_l‖, over which a loss without stairs is straight."""
SEED = 20261117


def own_states(
    stream: Stream, example: Any, seen: tuple[list[Tensor], Tensor] | None = None, own: Tensor | None = None
) -> tuple[Tensor, list[Tensor], float]:
    """The model's own logits, the states of the stream, and how far its logits are from the model's; refused beyond rounding.

    seen: states and logits of the stream, where a run has them already; own: the model's.
    """
    with torch.no_grad():
        own = logits_of(call_model(stream.model, example)) if own is None else own
        states, logits = seen or _states(stream, example)
    return own, states, _same_logits(logits, own)


def _same_logits(seen: Tensor, own: Tensor) -> float:
    """Their relative difference; refused beyond rounding."""
    error = difference(seen, own)
    if error > _rounding(own):
        raise CreditscopeError(
            f"the logits seen through the stream are not the model's own (relative difference {error:.2g}); a model must give "
            "the same logits twice: switch off what is random in eval mode"
        )
    return error


class Record:
    """What the measurement sees of some samples of one batch: native states and gradients of l = 0..L (not deep: of
    0), logits."""

    def __init__(self, stream: Stream, number: int, inputs: Any, y: Tensor, samples: Sequence[int], deep: bool) -> None:
        """number: of the batch; samples: their numbers in it."""
        self.number, self.samples, self.deep = number, list(samples), deep
        self.batch_size, self.dim, self.inputs = len(y), stream.batch_dim, inputs
        self.example = map_samples(inputs, len(y), lambda t: self._few(t, 0))
        self.y = self._few(y, 0)
        self.states: list[Tensor] = []
        self.grads: dict[int, Tensor] = {}
        self.logits: Tensor = y

    def add_state(self, layer: int, h: Tensor) -> None:
        if self.deep or not layer:
            self.states.append(self._few(h, self.dim))

    def add_gradient(self, layer: int, g: Tensor) -> None:
        if self.deep or not layer:
            self.grads[layer] = self._few(g, self.dim)

    def add_logits(self, logits: Tensor) -> None:
        self.logits = self._few(logits, 0)

    def _few(self, t: Tensor, dim: int) -> Tensor:
        return torch.cat([t.narrow(dim, k, 1) for k in self.samples], dim)

    @property
    def finite(self) -> bool:
        return all(bool(t.isfinite().all()) for t in (self.logits, *self.states, *self.grads.values()))

    def reference(self, loss_fn: LossFn) -> _Reference:
        return self.states, [*self._ascending()], loss_fn(self.logits, self.y), self.logits

    def slope(self, stream: Stream, sample: int, loss_fn: LossFn, step: float) -> Slope:
        assert isinstance(stream, HookedStream)
        return Slope(stream, sample, self.y, loss_fn, self.states, self._ascending(), step)

    def _ascending(self) -> list[Tensor]:
        return [self.grads[layer] for layer in sorted(self.grads)]

    def last(self) -> Record:
        """Of the last of the samples."""
        n, other = len(self.samples), copy.copy(self)
        other.samples = self.samples[-1:]
        other.example = map_samples(self.example, n, lambda t: t[n - 1 :])
        other.y, other.logits = self.y[n - 1 :], self.logits[n - 1 :]
        other.states = [t.narrow(self.dim, n - 1, 1) for t in self.states]
        other.grads = {layer: t.narrow(self.dim, n - 1, 1) for layer, t in self.grads.items()}
        return other


class Seen:
    """What the measurement sees of a few samples, so that the proof looks at the very numbers that are told.

    Of the first batch of a large network that can be proved one step at a time: of the samples of the proof. Of the last batch
    and of others that are drawn: of one sample that is drawn, behind the first ones where there are more.
    """

    def __init__(self, stream: Stream, batches: Batches, loss_fn: LossFn) -> None:
        self._stream, self._loss_fn = stream, loss_fn
        n, self._last = len(batches[0][1]), len(batches) - 1
        self.quick = n > 1 and _size(stream) > LARGEST_COPY and isinstance(stream, HookedStream) and stream.apart
        order = torch.randperm(max(0, self._last - 1), generator=torch.Generator().manual_seed(SEED)) + 1
        self._drawn = {*order.tolist()[: LATER - 1], self._last} - {0} if _dtype(stream) in IN_PASSING else set()
        if not self.quick and n > SAMPLES and _dtype(stream) in IN_PASSING:
            self._drawn.add(0)
        self._first: Record | None = None
        self._found: Proof | None = None
        self._later_alone = self.quick and bool(self._drawn) and len(batches[-1][1]) == n
        """A sample of the last batch, which is not its first one, is run by itself: at a place that the first has as well."""
        self.coupled = False
        """A sample of a later batch has other logits by itself."""
        self._short: tuple[Any, Tensor] | None = self._shortest(*batches[0]) if self.quick and self._last else None
        self._later: list[list[float | None]] = []
        self._kinks: set[int] = set()
        self.open: list[Record] = []
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

    def record(self, number: int, inputs: Any, y: Tensor) -> Record | None:
        """To be shown the batch of that number; None: nothing of it is looked at."""
        n = len(y)
        low = SAMPLES if n > SAMPLES else int(n > 1)
        sample = int(torch.randint(low, n, (1,), generator=torch.Generator().manual_seed(SEED + number)))
        if self.quick and not number:
            # the gradient of the last one is looked at; of a few that is the first, which no later one is
            samples = [*range(SAMPLES - 1), sample] if n > SAMPLES else [*range(1, n), 0]
            self._first = Record(self._stream, number, inputs, y, samples, True)
            return self._first
        return Record(self._stream, number, inputs, y, [sample], self.quick) if number in self._drawn else None

    @torch.no_grad()
    def look(self, record: Record) -> None:
        """After its batch was measured: prove what was seen, and forget it; no later batch is measured beside it."""
        if record is self._first:
            self._first, self._found = None, self._seen_right(record)
            if self._found is None and _dtype(self._stream) in IN_PASSING:
                self.open.append(record.last())
            return
        errors, alone = self._slope(record) if self.quick else (None, False)
        if errors is not None:
            self._later.append([*errors])
        else:
            self.open.append(record)
        if self.quick and not alone and record.batch_size > 1:
            error = _error_alone(self._stream, record, 0)
            self.coupled |= _rounding(record.logits) < error < float("inf")
            self._found = self._found if error <= _rounding(record.logits) else None

    @torch.no_grad()
    def proof(self) -> Proof | None:
        """The proof with the runs that the measurement has made already. None: something does not come out; the proof with runs
        of its own decides."""
        if self._short is not None:
            inputs, before = self._short
            again = difference(logits_of(run(self._stream.model, inputs)), before)
            if again > _rounding(before):
                raise CreditscopeError(
                    f"the model gives other logits for a sample after the last batch than before the first (relative difference "
                    f"{again:.2g}): it changes from call to call; keep its state fixed in eval mode"
                )
        if self._found is None:
            return None
        later = [*self._later]
        for record in self.open:
            try:
                later.append(_decided(self._stream, record, self._loss_fn, self._kinks))
            except CreditscopeError:
                self.coupled = _is_coupled(self._stream, record)
                if not self.coupled:
                    raise
                return None
        found = {"gradient": _worst(self._found.gradient, *later), "later": len(later)}
        return self._found.model_copy(update=found | {"kinks": tuple(sorted(self._kinks))})

    @property
    def proved(self) -> bool:
        """Is the first batch proved by what was seen of it?"""
        return self._found is not None

    def _seen_right(self, first: Record) -> Proof | None:
        """Samples are run by themselves, without hooks: the logits are the model's own, and no sample influences another, if they
        are those of the measurement. The first sample is, and one behind it: of this batch or, so that nothing is run twice,
        of a later one."""
        stream, n = self._stream, len(first.samples)
        if not first.finite:
            return None
        alone = [first.samples.index(0)] if self._later_alone else range(n)
        errors = [_error_alone(stream, first, k) for k in alone]
        if max(errors) > _rounding(first.logits):
            return None
        dtype, slope = _dtype(stream), None
        if dtype in IN_PASSING:
            step, _, most = IN_PASSING[dtype]
            slope = first.slope(stream, n - 1, self._loss_fn, step)
        swaps = step_errors(stream, first.example, n, first.states, first.logits, slope)
        if swaps is None:
            return None
        gradient: list[float | None] = [None] * len(swaps)
        if slope is not None:
            found = slope.errors()
            if found and _within(found, most):
                gradient = [*found]
            else:
                gradient = _decided(stream, first.last(), self._loss_fn, self._kinks)
        return Proof(
            n_samples=n,
            logits=max(errors),
            independent=True,
            swap=tuple(swaps),
            gradient=tuple(gradient),
            gradient_dtype=str(dtype).removeprefix("torch."),
            gradient_reason=_why(dtype, _too_large(stream)),
        )

    def _slope(self, record: Record) -> tuple[list[float] | None, bool]:
        """The error of each step of one sample, to one side, else to both, None where it is not small; and whether it tells that
        the sample has the states of the measurement by itself as well (from both sides, that cancels)."""
        step, longer, most = IN_PASSING[_dtype(self._stream)]
        slope = record.slope(self._stream, 0, self._loss_fn, step)
        found = slope_errors_ahead(slope, record.example, record.logits)
        if _within(found, most):
            return found, True
        found = slope_errors(record.slope(self._stream, 0, self._loss_fn, longer), record.example, 1)
        return (found if _within(found, most) else None), False


@torch.no_grad()
def _error_alone(stream: Stream, record: Record, k: int) -> float:
    """Relative difference of the logits of a sample, run by itself without hooks, to those of the measurement."""
    try:
        example = map_samples(record.example, len(record.samples), lambda t: t[k : k + 1])
        alone = logits_of(call_model(stream.model, example))
    except Exception:  # it is the user's code: it may take no sample by itself
        recover(stream.model)
        return float("inf")
    return difference(alone, record.logits[k : k + 1])


def _is_coupled(stream: Stream, record: Record) -> bool:
    """Do samples of the batch of a record influence each other?"""
    logits = logits_of(run(stream.model, record.inputs)).clone()
    return _independent(stream, record.inputs, record.batch_size, logits) is False


def _decided(stream: Stream, record: Record, loss_fn: LossFn, kinks: set[int]) -> list[float | None]:
    """The errors of the gradients of one sample that does not depend on others, on the network itself; refused where they are
    none. Layers on a kink are added to `kinks`."""
    steps, tolerance = (STEPS, GRADIENT) if _dtype(stream) == torch.float64 else (STEPS_FLOAT32, GRADIENT_FLOAT32)
    at_once = min(AT_ONCE, record.batch_size)
    check = GradientCheck(record.y, loss_fn, coupled=False, at_once=at_once, apart=True, kinks=kinks)
    return check.errors(stream, record.example, steps, tolerance, record.reference(loss_fn))


def _worst(*errors: Sequence[float | None]) -> tuple[float | None, ...]:
    """Per layer; None where every one is."""
    return tuple(max((e for e in each if e is not None), default=None) for each in zip(*errors, strict=True))


def _within(errors: list[float] | None, most: float) -> bool:
    return errors is not None and max(errors) <= most


def prove(
    stream: Stream,
    inputs: Any,
    y: Tensor,
    loss_fn: LossFn,
    measured: Tensor,
    later: Sequence[Record] = (),
    coupled: bool = False,
) -> Proof:
    """Call inside `untouched(stream.model)`, with a batch of the measurement and the logits of its first samples there.

    later: of single samples, whose gradients are held against a finite difference as they were measured.
    coupled: samples of a later batch were seen to influence each other.

    Where a few samples get other logits by themselves, the whole batch is the example.
    """
    example, n, output = few_run(stream.model, inputs, len(y))
    logits = logits_of(output).clone()  # some models give the same memory back every time
    if difference(logits[:SAMPLES], measured) > max(_rounding(logits), ROUNDING.get(_dtype(stream), 0.0)):
        if n < len(y):
            example, n, logits = inputs, len(y), logits_of(run(stream.model, inputs)).clone()
        _same_logits(measured, logits[:SAMPLES])
    whole = n == len(y) > SAMPLES  # the model takes batches of one size only
    reference = _reference(stream, example, y[:n], loss_fn) if _in_own_dtype(stream) else None
    seen = reference and (reference[0], reference[3])
    if seen is None and isinstance(stream, InterfaceStream) and not whole:
        seen = stream.seen
    own, states, error = own_states(stream, example, seen, logits)
    finite = all(bool(t.isfinite().all()) for t in (own, *states))
    at_once = max(n, min(AT_ONCE, len(y)))  # no run is larger than a batch of the measurement
    swaps: list[float | None] = [None] * len(states)
    beside: tuple[str, ...] = ()
    apart = None
    independent = None if coupled else _independent(stream, example, n, own)
    if independent is None and (coupled or any(_is_coupled(stream, record) for record in later)):
        independent = False  # the first batch does not show it
    if independent:
        if finite and not whole and n <= SAMPLES and (stream.depth + 1) * n > len(y):
            apart = step_errors(stream, example, n, states, own)
        if apart is None:
            swaps, beside = _swaps(stream, example, n, states, own, n if whole else at_once)
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
            later=() if independent is False else [record for record in later if record.finite],
        )
        try:
            gradient, dtype, why = _gradient(stream, example, check, reference, states[0])
        except CreditscopeError:
            if independent and any(_is_coupled(stream, record) for record in later):
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


def _rounding(t: Tensor) -> float:
    return ROUNDING.get(t.dtype, ROUNDING[torch.float32])


def _states(stream: Stream, example: Any, h: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
    """h: h_0, where it is known."""
    states: list[Tensor] = []

    def tap(layer: int, value: Tensor, handle: Tensor) -> None:
        states.append(value.detach().clone())

    logits = stream.forward(example, tap) if h is None else stream.forward_from(h, example, tap)
    return states, logits


def _independent(stream: Stream, example: Any, n: int, own: Tensor) -> bool | None:
    """Do the first and the last sample get the same logits in a batch of their own copies, wherever they stand in it? None:
    there is only one sample. (The first alone does not tell: samples may see those before them.)"""
    if n < 2:
        return None
    for k in (0, n - 1):
        alone = map_samples(example, n, lambda t, k=k: t[k : k + 1].expand_as(t).clone())
        with torch.no_grad():
            logits = logits_of(call_model(stream.model, alone))
        if difference(logits, own[k : k + 1].expand_as(logits)) > _rounding(own):
            return False
    return True


# ---- h_l carries everything --------------------------------------------------------------------------------------


def _swaps(
    stream: Stream, example: Any, n: int, states: list[Tensor], own: Tensor, at_once: int
) -> tuple[list[float | None], tuple[str, ...]]:
    """Per layer: h_l of each sample put into the run of another one; relative difference of the logits to the sample's own.

    Where it fails, once more with what else the blocks are given (masks, the states of an encoder), and once more with the
    further inputs of the model: those go beside the stream, and are named.
    """
    if not isinstance(stream, HookedStream):
        return [0.0] * len(states), ()  # runs from h_l on and sees no input at all
    other = map_samples(example, n, lambda t: t.roll(1, 0))
    errors: list[float | None] = []
    beside: dict[str, None] = {}
    given: _Given | None = None
    swapped = _runs(stream, list(enumerate(states)), other, at_once)
    with torch.no_grad():
        for layer, h in enumerate(states):
            error = difference(swapped[layer], own)
            if error > _rounding(own):
                given = given or _Given(stream, example, other)
                names = given.names(layer)
                if names:
                    again = difference(stream.logits_from(layer, h, other, given.handed), own)
                    if again <= _rounding(own):
                        error = again
                        beside |= dict.fromkeys(names)
            if error > _rounding(own):
                mixed, names = _first_only(example, other)
                again = difference(stream.logits_from(layer, h, mixed), own) if names else error
                if again <= _rounding(own):
                    error = again
                    beside |= dict.fromkeys(names)
            if error > _rounding(own):
                itself = difference(stream.logits_from(layer, h, example), own)
                if itself > _rounding(own):
                    raise CreditscopeError(
                        f"replacing h_{layer} by itself changes the logits (relative difference {itself:.2g}): the stream is not "
                        "what it seems; name other blocks"
                    )
            errors.append(error)
    return errors, tuple(beside)


class _Given:
    """What the blocks are given beside the stream, in the run of a sample and in that of another one."""

    def __init__(self, stream: HookedStream, example: Any, other: Any) -> None:
        self.stream = stream
        self.mine, self.theirs = (stream.arguments(inputs) for inputs in (example, other))

    def names(self, layer: int) -> list[str]:
        found: dict[str, None] = {}
        for mine, theirs in list(zip(self.mine, self.theirs, strict=True))[layer:]:
            for path in _differing(mine, theirs, self.stream.slot):
                found[spelled(path)] = None
        return list(found)

    def handed(self, call: int, arguments: dict[int | str, Any]) -> dict[int | str, Any]:
        """The arguments of the sample's own run where they hold other tensors, except for the stream.

        The rest stays: an object without tensors may be one that blocks write to (a cache of keys and values).
        """
        others = {path[0] for path in _differing(self.mine[call], arguments, self.stream.slot)}
        return {key: self.mine[call][key] if key in others else value for key, value in arguments.items()}


def _differing(mine: dict[int | str, Any], theirs: dict[int | str, Any], slot: Path) -> list[Path]:
    mine_flat, theirs_flat = (
        [(path, t) for path, t in tensors_in(tree, every=True) if path[0] != slot[0]] for tree in (mine, theirs)
    )
    return [
        path
        for (path, t), (_, u) in zip(mine_flat, theirs_flat, strict=False)
        if t.shape != u.shape or not torch.equal(t, u)
    ]


def _first_only(example: Any, other: Any) -> tuple[Any, list[str]]:
    """Another sample's first input with the further inputs of the sample itself; and the names of those."""
    inner, outer = (x.inputs if isinstance(x, Arguments) else x for x in (example, other))
    mine, spec = tree_flatten(inner)
    theirs = tree_flatten(outer)[0]
    tensors = [k for k, t in enumerate(mine) if isinstance(t, Tensor)]
    names = list(inner) if isinstance(inner, dict) else [f"input {k + 1}" for k in range(len(mine))]
    if len(tensors) < 2 or len(names) != len(mine):
        return example, []
    mixed = tree_unflatten([theirs[k] if k == tensors[0] else t for k, t in enumerate(mine)], spec)
    further = [str(names[k]) for k in tensors[1:] if not torch.equal(mine[k], theirs[k])]
    return (Arguments(mixed, example.kwargs) if isinstance(example, Arguments) else mixed), further


# ---- g_l is a gradient -------------------------------------------------------------------------------------------


def _in_own_dtype(stream: Stream) -> bool:
    """Is the gradient checked on the network itself: in float64, or too large for a copy in float32?"""
    dtype = _dtype(stream)
    return dtype == torch.float64 or (dtype == torch.float32 and _size(stream) > LARGEST_COPY)


def _size(stream: Stream) -> int:
    return sum(p.numel() for p in stream.model.parameters())


def _too_large(stream: Stream) -> str:
    return f"{_size(stream):,} parameters, a float64 copy is made up to {LARGEST_COPY:,}"


def _why(dtype: torch.dtype, reason: str) -> str:
    """Why the gradient is not checked in float64, or not at all."""
    if dtype == torch.float64:
        return ""
    name = str(dtype).removeprefix("torch.")
    return reason if dtype == torch.float32 else f"{reason}; {name} is too coarse for a finite difference"


def _dtype(stream: Stream) -> torch.dtype:
    return dtype_in(stream.model)


def _gradient(
    stream: Stream, example: Any, check: GradientCheck, reference: _Reference | None, h: Tensor
) -> tuple[list[float | None], str, str]:
    """(relative error per layer, dtype of the check, why not everywhere).

    reference: states and gradients of the network itself, where they are known; h: its h_0, from where the copy runs.
    """
    own_dtype = _dtype(stream)
    if own_dtype == torch.float64:
        return check.all_errors(stream, example, STEPS, GRADIENT, reference, own=stream), "float64", ""
    if _size(stream) <= LARGEST_COPY:
        doubled, start = _doubled(example), h.double()
        coarse = _Coarse(_given(doubled), start)
        try:
            lifted = _lifted(stream)
            with eagerly(lifted.model):
                with torch.no_grad(), coarse:
                    states, logits = _states(lifted, doubled, start)
                    check.loss_fn(logits, check.y)
                lifted_reference = _reference(lifted, doubled, check.y, check.loss_fn, states)
        except Exception as error:  # it cannot be copied, or has float32 written into its code
            reason = f"the network does not run as a float64 copy ({' '.join(str(error).split())[:120]})"
        else:
            steps, tolerance = (STEPS_FLOAT32, GRADIENT_FLOAT32) if coarse.seen else (STEPS, GRADIENT)
            why = f"the network computes in {coarse.seen} inside, whatever its dtype" if coarse.seen else ""
            with eagerly(lifted.model):
                return (
                    check.all_errors(lifted, doubled, steps, tolerance, lifted_reference, own=stream),
                    coarse.seen or "float64",
                    why,
                )
    else:
        reason = _too_large(stream)
    if own_dtype != torch.float32:
        name = str(own_dtype).removeprefix("torch.")
        return [None] * (stream.depth + 1), name, _why(own_dtype, reason)
    return check.all_errors(stream, example, STEPS_FLOAT32, GRADIENT_FLOAT32, reference, own=stream), "float32", reason


def _doubled(inputs: Any) -> Any:
    return tree_map(lambda t: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t, inputs)


def _lifted(stream: Stream) -> Stream:
    """The stream in float64."""
    if isinstance(stream, InterfaceStream):
        return stream.doubled()
    assert isinstance(stream, HookedStream)
    return stream.on(copy.deepcopy(stream.model).double())


class _Coarse(TorchFunctionMode):
    """Sees whether a network lowers what comes from its inputs to a coarser dtype on its way; constants do not count."""

    seen = ""
    """The coarsest."""
    _eps = 0.0

    def __init__(self, *given: Any) -> None:
        super().__init__()
        self._followed = WeakIdKeyDictionary()
        self._follow(given)

    def _follow(self, tree: Any) -> None:
        for t in tree_leaves(tree):
            if isinstance(t, Tensor):
                self._followed[t] = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        mine = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t in self._followed]
        if not mine:
            return out
        self._follow(out)
        if isinstance(out, Tensor) and out.is_floating_point():
            eps = torch.finfo(out.dtype).eps
            if eps > self._eps and any(t.is_floating_point() and torch.finfo(t.dtype).eps < eps for t in mine):
                self.seen, self._eps = str(out.dtype).removeprefix("torch."), eps
        return out


@dataclass(frozen=True)
class Held:
    """A run whose gradients are held against finite differences of its losses, and how that is done."""

    stream: Stream
    example: Any
    states: list[Tensor]
    """Native, as the gradients."""
    grads: list[Tensor]
    losses: Tensor
    logits: Tensor
    steps: Steps
    tolerance: float

    @property
    def directions(self) -> list[Tensor]:
        """Along which each state is moved; the same every time."""
        rng = torch.Generator().manual_seed(SEED)
        return [direction(self.stream, g, rng) for g in self.grads]

    def sizes(self) -> list[tuple[Tensor, Tensor]]:
        """Per layer: ‖h_l‖ and ‖g_l‖ of each sample."""
        return [(norms(self.stream, h), norms(self.stream, g)) for h, g in zip(self.states, self.grads, strict=True)]

    def resolutions(self, sizes: list[tuple[Tensor, Tensor]], dtype: torch.dtype | None = None) -> list[Tensor]:
        """Per layer: what rounding in this dtype (None: that of the losses) may make of a difference of each sample's losses."""
        large = self.logits.abs().reshape(len(self.logits), -1).amax(1)
        size = torch.maximum(self.losses.abs(), large).clamp_min(1.0).double()
        # a loss is rounded, and so is a state that is moved
        coarse = RESOLUTION_STEPS * torch.finfo(dtype or self.losses.dtype).eps
        return [coarse * (size + h * g) for h, g in sizes]


@dataclass
class GradientCheck:
    """Holds the gradients of a stream against finite differences of the loss."""

    y: Tensor
    loss_fn: LossFn
    coupled: bool
    at_once: int
    """Samples in one run of several moved states (one run each where samples influence each other, or the size of a batch is
    fixed)."""
    apart: bool = False
    """The steps were seen to depend on nothing but their state: one step after the other may be checked."""
    later: Sequence[Record] = ()
    """Single samples of the measurement, to be checked as well."""
    held: int = 0
    """How many of them were."""
    kinks: set[int] = field(default_factory=set)
    """Layers whose state was found to lie on a kink of the loss."""
    rough: list[int] = field(default_factory=list)
    """Layers at which the first length of the step was more than 1e-3 off."""

    def all_errors(
        self,
        stream: Stream,
        example: Any,
        steps: Steps,
        tolerance: float,
        reference: _Reference | None = None,
        *,
        own: Stream,
    ) -> list[float | None]:
        """`errors`, with those of later samples on the whole way from h_0; own: the stream that was measured, `stream` or one of
        another dtype."""
        found = self.errors(stream, example, steps, tolerance, reference)
        dtype = torch.float32 if reference is None else reference[0][0].dtype
        for group in _alike(self.later):
            joined = _joined(group, dtype)
            check = GradientCheck(joined.y, self.loss_fn, coupled=False, at_once=self.at_once)
            errors = check.of_each(stream, joined, steps, tolerance)
            for record, error in zip(group, errors, strict=True):
                if error > tolerance and error < float("inf"):
                    error = self._by_itself(stream, _joined([record], dtype), steps, tolerance)
                if error > MISSING and error < float("inf"):
                    _require_same(own, record, self.loss_fn)  # then its dtype has no room for the gradient
                if error < float("inf"):
                    found[0] = _worst([found[0]], [error])[0]
                    self.held += 1
        return found

    def errors(
        self, stream: Stream, example: Any, steps: Steps, tolerance: float, reference: _Reference | None = None
    ) -> list[float | None]:
        """Relative error per layer; one above the tolerance is refused."""
        states, found, losses, logits = reference or _reference(stream, example, self.y, self.loss_fn)
        for layer, g in enumerate(found):
            if g is None:
                raise CreditscopeError(
                    f"no gradient of the loss arrives at h_{layer} ({_where(stream, layer)}); name blocks that the logits "
                    "depend on"
                )
        grads = [g for g in found if g is not None]
        held = Held(stream, example, states, grads, losses, logits, steps, tolerance)
        if self.apart and isinstance(stream, HookedStream):
            quick = self.by_steps(held)
            if quick is not None:
                self.require_smooth(held, [*quick])
                return [*quick]
        best = self.compared(held)
        off = {
            layer: error for layer, error in enumerate(best) if error is not None and error > min(tolerance, GRADIENT)
        }
        bent = self.bent(held, off) if off else set()
        sure = self.contradicted(held, [layer for layer in self.rough if layer not in bent])
        if sure:
            raise _no_gradient(stream, min(sure), sure[min(sure)])
        if bent:
            still = self.compared(held, bent)
            at_zero = self.at_zeros(held, bent)
            for layer, error in enumerate(at_zero):
                if error is not None and error > tolerance:
                    raise _not_between(stream, layer, error)
            best = [both if layer in bent else best[layer] for layer, both in enumerate(_worst(still, at_zero))]
            self.kinks |= bent
        for layer, wrong in enumerate(best):
            if wrong is not None and wrong > tolerance:
                raise _no_gradient(stream, layer, off[layer])
        self.require_smooth(held, best, bent)
        return best

    def require_smooth(self, held: Held, best: Sequence[float | None], kinked: Collection[int] = ()) -> None:
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
            lengths = self._lengths("state", step, sizes)
            for k, (change, foretold) in zip(rough, self._slopes(held, rough, directions, lengths), strict=True):
                resolution = resolutions[k] / (2 * lengths[k].double())
                if self.coupled:
                    change, foretold, resolution = (t.sum().view(1) for t in (change, foretold, resolution))
                off = (change - foretold).abs()
                error = float((off / torch.maximum(change.abs(), foretold.abs()).clamp_min(TINY)).median())
                if not error > held.tolerance:
                    stairs.pop(k, None)
                elif k in stairs:
                    beyond = float((off / resolution).median())
                    stairs[k] = max(stairs[k][0], error), max(stairs[k][1], beyond)
        found = {k: error for k, (error, beyond) in stairs.items() if beyond > 1}
        if found and not _halves(held, self):
            raise _rounded(held.stream, min(found), found[min(found)], best[min(found)])

    def contradicted(self, held: Held, layers: Sequence[int]) -> dict[int, float]:
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
            lengths = [self._lengths(scale, step, sizes) for scale, step in held.steps[:2]]
            one, other = (self._slopes(held, layers, directions, each) for each in lengths)
            found = {}
            for k, (long, foretold), (short, _) in zip(layers, one, other, strict=True):
                rounded = resolutions[k] / (2 * lengths[1][k].double())
                if self.coupled:
                    long, foretold, short, rounded = (t.sum().view(1) for t in (long, foretold, short, rounded))
                off = torch.minimum((long - foretold).abs(), (short - foretold).abs())
                least = torch.maximum(GRADIENT * foretold.abs(), COMMON * rounded)
                sure = (off > least) & ((long - short).abs() * AGREE < off)
                if 2 * int(sure.sum()) > len(sure):
                    found[k] = float((off / torch.maximum(long.abs(), foretold.abs()).clamp_min(TINY)).median())
            layers = list(found)
            if not layers:
                break
        return {} if found and _halves(held, self) else found

    def bent(self, held: Held, layers: Collection[int]) -> set[int]:
        """Those of the layers whose state lies on a kink: some of it is exactly zero (one ReLU gave it, the next takes it as it
        is), and the loss bends as much over a short step as over a long one."""
        stream, states = held.stream, held.states
        found = [layer for layer in layers if bool((states[layer] == 0).any())]
        if not found:
            return set()
        directions = held.directions
        bends = []
        for step in [length for scale, length in held.steps if scale == "state"][:2]:
            lengths = {k: self._length(step * norms(stream, states[k])) for k in found}
            moved = [(k, scaled(stream, directions[k], lengths[k])) for k in found]
            both = self._both(held, moved)
            bends.append(
                [
                    float(((up + down - 2 * held.losses).double() / lengths[k]).abs().sum())
                    for k, up, down in zip(found, both[::2], both[1::2], strict=True)
                ]
            )
        return {k for k, long, short in zip(found, *bends, strict=True) if short > STRAIGHT * long > 0}

    def _by_itself(self, stream: Stream, record: Record, steps: Steps, tolerance: float) -> float:
        """Relative difference of the measured g_0 of a sample from that of the sample by itself, proved to be a gradient.

        A finite difference that does not agree may be one of a network that rounds; what is wrong is then told from it.
        """
        exact = _reference(stream, record.example, record.y, self.loss_fn)
        alone = GradientCheck(record.y, self.loss_fn, coupled=False, at_once=AT_ONCE, kinks=self.kinks)
        alone.errors(stream, record.example, steps, tolerance, exact)
        g = exact[1][0]
        assert g is not None  # `errors` has looked
        return _off(stream, record, g)

    def by_steps(self, held: Held) -> list[float] | None:
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
            if _within(errors, min(tolerance / 10, GRADIENT)):
                return errors
            if not k and tolerance > GRADIENT:
                again, known = tried(0, lengths[1])
                sure = {} if known is None else slope.contradicted(again, GRADIENT)
                for draw in (1, 2) if sure else ():  # kinks agree by chance, not along every direction
                    one, other = (tried(0, each, draw)[0] for each in lengths[:2])
                    sure = {layer: off for layer, off in sure.items() if one.agrees(other, layer, off)}
                if sure:
                    if self.bent(held, sure) >= set(sure):
                        return None
                    raise _no_gradient(stream, max(sure), errors[max(sure)])
            if _within(errors, tolerance / 10):
                close = errors if close is None else min(close, errors, key=max)
            wrong = slope.wrong(MISSING) if wrong is None else wrong & slope.wrong(MISSING)
            if not wrong and close is None:
                return None
        if wrong and errors is not None:
            if self.bent(held, wrong) >= wrong:
                return None
            raise _no_gradient(stream, max(wrong), errors[max(wrong)])
        return close

    def compared(self, held: Held, kinked: Collection[int] = ()) -> list[float | None]:
        """Relative error per layer of native gradients; None where the change of the loss is below its resolution.

        kinked: layers at which what is exactly zero stays there; where given, no other layer is looked at.
        """
        states, tolerance = held.states, held.tolerance
        if not bool(held.losses.isfinite().all()) or not all(bool(g.isfinite().all()) for g in held.grads):
            return [None] * len(states)
        directions = held.directions
        for k in kinked:
            directions[k] = directions[k] * (states[k] != 0)
        sizes = held.sizes()
        resolutions = held.resolutions(sizes)
        best: list[float | None] = [None] * len(states)
        open_layers = sorted(kinked) or list(range(len(states)))
        for number, (scale, step) in enumerate(held.steps):
            errors = self._off(held, open_layers, directions, self._lengths(scale, step, sizes), resolutions)
            if not number and not kinked:
                pairs = zip(open_layers, errors, strict=True)
                self.rough = [layer for layer, error in pairs if error is not None and error > GRADIENT]
            for k, error in zip(open_layers, errors, strict=True):
                if error is not None and (best[k] is None or error < cast(float, best[k])):
                    best[k] = error
            open_layers = [k for k in open_layers if best[k] is None or cast(float, best[k]) > tolerance / 100]
            if not open_layers:
                break
        return best

    def _off(
        self,
        held: Held,
        layers: Sequence[int],
        directions: list[Tensor],
        lengths: list[Tensor],
        resolutions: list[Tensor],
    ) -> list[float | None]:
        """Of each of the layers: how far <g_l, v> is off a finite difference of this length."""
        slopes = self._slopes(held, layers, directions, lengths)
        return [
            _error(*both, resolutions[k] / (2 * lengths[k].double()), self.coupled, held.tolerance)
            for k, both in zip(layers, slopes, strict=True)
        ]

    def _slopes(
        self, held: Held, layers: Sequence[int], directions: list[Tensor], lengths: list[Tensor]
    ) -> list[tuple[Tensor, Tensor]]:
        """Of each of the layers: the finite difference of each sample, and <g_l, v>, which foretells it."""
        both = self._both(held, [(k, scaled(held.stream, directions[k], lengths[k])) for k in layers])
        return [
            (
                (up - down).double() / (2 * lengths[k].double()),
                (rows(held.stream, held.grads[k]) * rows(held.stream, directions[k])).sum(1).double(),
            )
            for k, up, down in zip(layers, both[::2], both[1::2], strict=True)
        ]

    def _both(self, held: Held, moved: list[tuple[int, Tensor]]) -> list[Tensor]:
        """Losses of the runs in which the state of a layer is moved ahead, and of those in which it is moved behind, in turn."""
        states = held.states
        return self._losses(
            held.stream, [(k, h) for k, m in moved for h in (states[k] + m, states[k] - m)], held.example
        )

    def at_zeros(self, held: Held, layers: Collection[int]) -> list[float | None]:
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
                    length = self._lengths(scale, step, sizes)[k]
                    moved = scaled(stream, v, length)
                    up, down = self._losses(stream, [(k, states[k] + moved), (k, states[k] - moved)], held.example)
                    slopes = [change.double() / length for change in (up - losses, losses - down)]
                    error = _error_between(slopes, foretold, resolutions[k] / length, self.coupled, held.tolerance)
                    if error is not None:
                        found.append(error)
                        if error <= held.tolerance / 100:
                            break
                best[k] = _worst([best[k]], [min(found, default=None)])[0]
        return best

    def _lengths(self, scale: str, step: float, sizes: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """Of one of the steps, per layer and sample."""
        return [
            self._length(step * h if scale == "state" else torch.minimum(step / g.clamp_min(TINY), LONGEST * h))
            for h, g in sizes
        ]

    @torch.no_grad()
    def of_each(self, stream: Stream, record: Record, steps: Steps, tolerance: float) -> list[float]:
        """The error of g_0 of each sample of a record, the best of all lengths; infinite where none can be told, or the model
        does not take these samples together."""
        (h, *_), g = record.states, record.grads[0]
        wide = ALONG / (g.numel() / len(self.y)) ** 0.5 if tolerance <= GRADIENT else 1.0
        v = direction(stream, g, torch.Generator().manual_seed(SEED), wide)
        losses = self.loss_fn(record.logits, self.y)
        size = torch.maximum(losses.abs(), record.logits.abs().reshape(len(self.y), -1).amax(1)).clamp_min(1.0).double()
        long, steep = norms(stream, h), norms(stream, g)
        resolution = RESOLUTION_STEPS * torch.finfo(h.dtype).eps * (size + long * steep)
        foretold = (rows(stream, g).double() * rows(stream, v).double()).sum(1)
        best = torch.full_like(foretold, float("inf"))
        for scale, step in (*steps, (steps[0][0], steps[0][1] / 100)):  # behind a kink
            length = step * long if scale == "state" else torch.minimum(step / steep.clamp_min(TINY), LONGEST * long)
            moved = scaled(stream, v, length.clamp(TINY, 1 / TINY))
            try:
                up, down = self._losses(stream, [(0, h + moved), (0, h - moved)], record.example)
            except Exception:  # it is the user's code: it may take batches of some sizes only
                recover(stream.model)
                break
            change = (up - down).double() / (2 * length)
            best = torch.minimum(best, _errors(change, foretold, resolution / (2 * length), tolerance))
            if bool((best <= min(tolerance / 10, GRADIENT)).all()):
                break
        return best.tolist()

    def _length(self, length: Tensor) -> Tensor:
        length = length.clamp(TINY, 1 / TINY)
        # where samples influence each other one step for all, so that the sum of changes is a derivative
        return length.mean().expand_as(length) if self.coupled else length

    def _losses(self, stream: Stream, states: list[tuple[int, Tensor]], example: Any) -> list[Tensor]:
        """Per-sample losses of the runs in which one state is another."""
        logits = _runs(stream, states, example, self.at_once)
        return [self.loss_fn(each, self.y) for each in logits]


def _runs(stream: Stream, states: list[tuple[int, Tensor]], example: Any, at_once: int) -> list[Tensor]:
    """Logits of each run in which one state is another; at_once: samples in one of them."""
    size = max(1, at_once // states[0][1].shape[stream.batch_dim])
    found: list[Tensor] = []
    with torch.no_grad():
        for k in range(0, len(states), size):
            part = states[k : k + size]
            try:
                found += stream.variants(part, example).chunk(len(part))
            except CreditscopeError:
                raise
            except Exception:  # it is the user's code: it may take batches of some sizes only
                recover(stream.model)
                found += [stream.variants([one], example) for one in part]
    return found


def _no_gradient(stream: Stream, layer: int, error: float) -> CreditscopeError:
    return CreditscopeError(
        f"g_{layer} is not the gradient of the loss ({_where(stream, layer)}): it differs from a finite "
        f"difference by a relative {error:.2g}. A layer or a hook has a backward pass of its own; diagnose an "
        "ordinary network of the same weights (credit_from_grads makes the method's backward pass the credit)"
    )


def _rounded(stream: Stream, layer: int, short: float | None, long: float | None) -> CreditscopeError:
    return CreditscopeError(
        f"g_{layer} is not the gradient of the loss ({_where(stream, layer)}): it agrees with a long finite difference to a "
        f"relative {long:.2g}, and differs from a short one by {short:.2g}. The network rounds its states and its backward pass "
        "does not (fake quantisation, a straight-through estimator): switch the rounding off, or make that backward pass the "
        "credit (credit_from_grads). Or digits are lost: half precision inside a compiled or custom operation, or large numbers "
        "that cancel in float32; diagnose model.double()"
    )


def _halves(held: Held, check: GradientCheck) -> bool:
    """Does the network, or its loss, compute in half precision inside?"""
    coarse = _Coarse(_given(held.example))
    with torch.no_grad(), coarse:
        check.loss_fn(_states(held.stream, held.example)[1], check.y)
    return coarse.seen in ("float16", "bfloat16")


def _not_between(stream: Stream, layer: int, error: float) -> CreditscopeError:
    return CreditscopeError(
        f"g_{layer} is not the gradient of the loss where h_{layer} is exactly 0, at a bend ({_where(stream, layer)}): it lies "
        f"outside the slopes on both sides by a relative {error:.2g}. A layer or a hook has a backward pass of its own, or bends "
        "up and down meet in one zero; diagnose an ordinary network of the same weights, or inputs without exact zeros"
    )


def _where(stream: Stream, layer: int) -> str:
    if not stream.names:
        return f"block {layer}" if layer < stream.depth else "the readout"
    return f"input of {stream.names[layer]!r}" if layer < stream.depth else f"after {stream.names[-1]!r}"


def _reference(
    stream: Stream, example: Any, y: Tensor, loss_fn: LossFn, known: list[Tensor] | None = None
) -> _Reference:
    """Native states and gradients, losses and logits, taken as the measurement takes them; known: the states."""
    if isinstance(stream, InterfaceStream):
        return _by_parts(stream, example, y, loss_fn, known)
    states: list[Tensor] = []
    grads: dict[int, Tensor] = {}
    leaf: list[GradientEdge] = []  # as it is now: a block may write to the tensor

    def tap(layer: int, value: Tensor, handle: Tensor) -> None:
        states.append(value.detach().clone())
        if layer == 0:
            leaf.append(get_gradient_edge(handle))
        elif handle.requires_grad:
            handle.register_hook(lambda g: grads.__setitem__(layer, g.detach()))

    with torch.enable_grad(), stream.graph():
        logits = stream.forward(example, tap)
        losses = loss_fn(logits, y)
        (g0,) = torch.autograd.grad(losses.sum(), leaf[0], allow_unused=True)
    if g0 is not None:
        grads[0] = g0.detach()
    return states, [grads.get(layer) for layer in range(stream.depth + 1)], losses.detach(), logits.detach()


def _by_parts(
    stream: InterfaceStream, example: Any, y: Tensor, loss_fn: LossFn, known: list[Tensor] | None
) -> _Reference:
    """The same block by block, so that the float64 weights of one block at a time are in memory."""
    states = known or _states(stream, example)[0]
    with torch.enable_grad(), stream.graph():
        h = states[-1].requires_grad_()
        logits = stream.readout(h)
        losses = loss_fn(logits, y)
        grads: list[Tensor | None] = [*torch.autograd.grad(losses.sum(), h, allow_unused=True)]
        for layer in reversed(range(stream.depth)):
            h, g = states[layer].requires_grad_(), grads[0]
            out = stream.advance(layer, h)
            grads.insert(0, None if g is None else torch.autograd.grad(out, h, g, allow_unused=True)[0])
    return [h.detach() for h in states], grads, losses.detach(), logits.detach()


def _error(change: Tensor, foretold: Tensor, resolution: Tensor, coupled: bool, tolerance: float) -> float | None:
    """Relative error, the middle one of the samples (a kink may lie within one step). None: of no sample can it be told."""
    if coupled:
        change, foretold, resolution = (t.sum().view(1) for t in (change, foretold, resolution))
    errors = _errors(change, foretold, resolution, tolerance)
    known = errors.isfinite()
    return float(errors[known].median()) if bool(known.any()) else None


def _error_between(
    slopes: list[Tensor], foretold: Tensor, resolution: Tensor, coupled: bool, tolerance: float
) -> float | None:
    """`_error` against the nearest value between two slopes; relative to the largest of the three."""
    if coupled:
        slopes, foretold, resolution = (
            [t.sum().view(1) for t in slopes],
            foretold.sum().view(1),
            resolution.sum().view(1),
        )
    low, high = torch.minimum(*slopes), torch.maximum(*slopes)
    size = torch.stack([low.abs(), high.abs(), foretold.abs()]).amax(0)
    error = (foretold - foretold.clamp(low, high)).abs() / size.clamp_min(TINY)
    known = size.isfinite() & (size > 0) & ((size * tolerance > resolution) | (error <= tolerance))
    return float(error[known].median()) if bool(known.any()) else None


def _errors(change: Tensor, foretold: Tensor, resolution: Tensor, tolerance: float) -> Tensor:
    """Relative error of each sample; infinite where the difference lies below the resolution and does not agree (one that
    agrees proves the gradient all the same)."""
    size = torch.maximum(change.abs(), foretold.abs())
    error = (change - foretold).abs() / size.clamp_min(TINY)
    known = change.isfinite() & (size > 0) & ((size * tolerance > resolution) | (error <= tolerance))
    return error.where(known, torch.full_like(error, float("inf")))


# ---- later samples -----------------------------------------------------------------------------------------------


def _alike(records: Sequence[Record]) -> list[list[Record]]:
    """Those that can be run together: all, or each by itself."""
    forms = {tuple(t.shape for t in (*tensors_of(_given(r.example)), r.states[0], r.y)) for r in records}
    apart = len(forms) > 1 or any(shape[:1] != (1,) for form in forms for shape in form[:-2])
    return [[record] for record in records] if apart else [[*records]] if records else []


def _given(example: Any) -> Any:
    return example.inputs if isinstance(example, Arguments) else example


def _joined(records: Sequence[Record], dtype: torch.dtype) -> Record:
    """One record of all of them, h_0 and g_0 in this dtype."""
    first = records[0]
    joined, dim = copy.copy(first), first.dim
    if len(records) > 1:
        flat = [tree_flatten(_given(r.example)) for r in records]
        leaves = [
            torch.cat(each) if isinstance(each[0], Tensor) else each[0]
            for each in zip(*(f[0] for f in flat), strict=True)
        ]
        inner = tree_unflatten(leaves, flat[0][1])
        joined.example = first.example._replace(inputs=inner) if isinstance(first.example, Arguments) else inner
        joined.y = torch.cat([r.y for r in records])
    if dtype == torch.float64:
        joined.example = _doubled(joined.example)
    joined.states = [torch.cat([r.states[0] for r in records], dim).to(dtype)]
    joined.grads = {0: torch.cat([r.grads[0] for r in records], dim).to(dtype)}
    joined.logits = torch.cat([r.logits for r in records]).to(dtype)
    return joined


def _require_same(own: Stream, record: Record, loss_fn: LossFn) -> None:
    """A sample by itself, on the network that was measured, must have the gradient that it had in its batch."""
    g = _reference(own, record.example, record.y, loss_fn)[1][0]
    off = float("inf") if g is None else _off(own, record, g)
    if not off <= MISSING:
        raise CreditscopeError(
            f"g_0 of sample {record.samples[0]} of a batch of {record.batch_size} is not the gradient of its loss: by itself the "
            f"sample has another one (relative difference {off:.2g}). The backward pass depends on where a sample stands"
        )


def _off(stream: Stream, record: Record, g: Tensor) -> float:
    """Relative difference of the g_0 that was measured from this one."""
    return float((norms(stream, record.grads[0] - g) / norms(stream, g).clamp_min(TINY)).max())
