"""Proof that a network is seen rightly, on a few samples at every measurement; what cannot be proved is refused or marked.

Refused: logits that are not the model's own, a state that cannot be replaced by itself, a reference that is no gradient.
Marked: samples that influence each other, states that do not carry everything.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from creditscope.errors import CreditscopeError
from creditscope.measure.facts import Proof
from creditscope.measure.steps import TINY, Slope, direction, norms, rows, scaled, slope_errors, step_errors
from creditscope.stream.batches import SAMPLES, Arguments, call_model, few_run, logits_of, map_samples, run
from creditscope.stream.blocks import Path, spelled, tensors_in
from creditscope.stream.eager import eagerly
from creditscope.stream.hooks import HookedStream
from creditscope.stream.interface import ROUNDING, InterfaceStream, Stream, difference
from creditscope.stream.ranks import recover

LossFn = Callable[[Tensor, Tensor], Tensor]

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
    torch.float32: (1e-3, STEPS_FLOAT32[0][1], GRADIENT_FLOAT32 / 10),
    torch.float64: (1e-6, STEPS[0][1], GRADIENT / 10),
}
"""Of the check one step at a time on the network itself: step to one side, step to both sides, largest error."""
LONGEST = 1e-2
"""The longest step, relative to ‖h_l‖."""
AT_ONCE = 128
"""Samples in one run of several moved states, at the most."""
RESOLUTION_STEPS = 100
"""A change of the loss below so many rounding steps is not measurable."""
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


class Seen:
    """What the measurement sees of the first samples of its first batch, for the proof of a large network: native states and
    gradients of l = 0..L, logits."""

    def __init__(self, stream: Stream, n: int, alone: dict[int, Tensor]) -> None:
        """alone: logits of samples that were run by themselves, without hooks."""
        self.n, self._alone, self._dim = n, alone, stream.batch_dim
        self.errors: dict[int, float] = {}
        """Of the logits of samples run by themselves."""
        self.states: list[Tensor] = []
        self.grads: dict[int, Tensor] = {}
        self.proof: Proof | None = None

    def compare(self, logits: Tensor) -> None:
        """As soon as the logits are there: those of single samples need not be kept."""
        for k in [k for k in self._alone if k < self.n]:
            self.errors[k] = difference(self._alone.pop(k), logits[k : k + 1])

    def add_state(self, h: Tensor) -> None:
        self.states.append(self._few(h))

    def add_gradient(self, layer: int, g: Tensor) -> None:
        self.grads[layer] = self._few(g)

    def settle(self, stream: Stream, inputs: Any, y: Tensor, loss_fn: LossFn, logits: Tensor) -> None:
        """Prove what was seen, and forget it: no later batch is measured beside it. logits: of the first samples."""
        self.logits = logits
        self.proof = _seen_right(stream, inputs, y, loss_fn, self)
        self.states, self.grads = [], {}
        del self.logits

    def _few(self, t: Tensor) -> Tensor:
        return t.narrow(self._dim, 0, self.n).clone()


def seen_by(stream: Stream, n: int, alone: dict[int, Tensor]) -> Seen | None:
    """For a measurement with batches of n samples; None: the proof makes all its runs by itself."""
    if n < 2 or _size(stream) <= LARGEST_COPY or not isinstance(stream, HookedStream) or not stream.apart:
        return None
    return Seen(stream, min(SAMPLES, n), alone)


@torch.no_grad()
def _seen_right(stream: Stream, inputs: Any, y: Tensor, loss_fn: LossFn, seen: Seen) -> Proof | None:
    """The proof with the runs that the measurement has made already. None: something does not come out; the proof with runs of
    its own decides.

    Each sample is run by itself, without hooks: the logits are the model's own, and no sample influences another, if they are
    those of the measurement.
    """
    assert isinstance(stream, HookedStream)
    n, states = seen.n, seen.states
    example = map_samples(inputs, len(y), lambda t: t[:n])
    if not all(bool(t.isfinite().all()) for t in (seen.logits, *states, *seen.grads.values())):
        return None
    errors = [_error_alone(stream, example, k, seen) for k in range(n)]
    if max(errors) > _rounding(seen.logits):
        return None
    dtype, slope = _dtype(stream), None
    if dtype in IN_PASSING:
        grads = [seen.grads[layer] for layer in range(stream.depth + 1)]
        step, longer, most = IN_PASSING[dtype]
        slope = Slope(stream, n - 1, y[:n], loss_fn, states, grads, step)
    swaps = step_errors(stream, example, n, states, seen.logits, slope)
    if swaps is None:
        return None
    gradient: list[float | None] = [None] * len(states)
    if slope is not None:
        found = slope.errors()
        if not _within(found, most):  # from both sides
            found = slope_errors(Slope(stream, 0, y[:n], loss_fn, states, grads, longer), example, n)
        if found is None or not _within(found, most):
            return None
        gradient = [*found]
    return Proof(
        n_samples=n,
        logits=max(errors),
        independent=True,
        swap=tuple(swaps),
        gradient=tuple(gradient),
        gradient_dtype=str(dtype).removeprefix("torch."),
        gradient_reason=_why(dtype, _too_large(stream)),
    )


def _within(errors: list[float] | None, most: float) -> bool:
    return errors is not None and max(errors) <= most


def _error_alone(stream: Stream, example: Any, k: int, seen: Seen) -> float:
    """Relative difference of the logits of sample k, run by itself without hooks, to those of the measurement."""
    if k in seen.errors:
        return seen.errors[k]
    try:
        alone = logits_of(call_model(stream.model, map_samples(example, seen.n, lambda t: t[k : k + 1])))
    except Exception:  # it is the user's code: it may take no sample by itself
        recover(stream.model)
        return float("inf")
    return difference(alone, seen.logits[k : k + 1])


def prove(stream: Stream, inputs: Any, y: Tensor, loss_fn: LossFn, measured: Tensor) -> Proof:
    """Call inside `untouched(stream.model)`, with a batch of the measurement and the logits of its first samples there.

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
    independent = _independent(stream, example, n, own)
    if independent:
        if finite and not whole and n <= SAMPLES and (stream.depth + 1) * n > len(y):
            apart = step_errors(stream, example, n, states, own)
        if apart is None:
            swaps, beside = _swaps(stream, example, n, states, own, n if whole else at_once)
        else:
            swaps = [*apart]
    if finite:
        check = GradientCheck(
            y[:n],
            loss_fn,
            coupled=independent is False,
            at_once=n if whole or independent is False else at_once,
            apart=apart is not None,
        )
        gradient, dtype, why = _gradient(stream, example, check, reference, states[0])
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
    return next((p.dtype for p in stream.model.parameters() if p.is_floating_point()), torch.float32)


def _gradient(
    stream: Stream, example: Any, check: GradientCheck, reference: _Reference | None, h: Tensor
) -> tuple[list[float | None], str, str]:
    """(relative error per layer, dtype of the check, why not everywhere).

    reference: states and gradients of the network itself, where they are known; h: its h_0, from where the copy runs.
    """
    own_dtype = _dtype(stream)
    if own_dtype == torch.float64:
        return check.errors(stream, example, STEPS, GRADIENT, reference), "float64", ""
    if _size(stream) <= LARGEST_COPY:
        coarse = _Coarse()
        doubled = tree_map(lambda t: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t, example)
        try:
            lifted = _lifted(stream)
            with eagerly(lifted.model), torch.no_grad(), coarse:
                states, logits = _states(lifted, doubled, h.double())
                check.loss_fn(logits, check.y)
        except Exception as error:  # it cannot be copied, or has float32 written into its code
            reason = f"the network does not run as a float64 copy ({' '.join(str(error).split())[:120]})"
        else:
            steps, tolerance = (STEPS_FLOAT32, GRADIENT_FLOAT32) if coarse.seen else (STEPS, GRADIENT)
            why = f"the network computes in {coarse.seen} inside, whatever its dtype" if coarse.seen else ""
            with eagerly(lifted.model):
                reference = _reference(lifted, doubled, check.y, check.loss_fn, states)
                return check.errors(lifted, doubled, steps, tolerance, reference), coarse.seen or "float64", why
    else:
        reason = _too_large(stream)
    if own_dtype != torch.float32:
        name = str(own_dtype).removeprefix("torch.")
        return [None] * (stream.depth + 1), name, _why(own_dtype, reason)
    return check.errors(stream, example, STEPS_FLOAT32, GRADIENT_FLOAT32, reference), "float32", reason


def _lifted(stream: Stream) -> Stream:
    """The stream in float64."""
    if isinstance(stream, InterfaceStream):
        return stream.doubled()
    assert isinstance(stream, HookedStream)
    return stream.on(copy.deepcopy(stream.model).double())


class _Coarse(TorchFunctionMode):
    """Sees whether a network lowers its states to a coarser dtype than float64 on its way."""

    seen = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        lowered = isinstance(out, Tensor) and out.is_floating_point() and out.dtype != torch.float64
        if lowered and any(isinstance(t, Tensor) and t.dtype == torch.float64 for t in args):
            self.seen = str(out.dtype).removeprefix("torch.")
        return out


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
        if self.apart and isinstance(stream, HookedStream):
            wrong: set[int] | None = None
            lengths = [length for scale, length in steps if scale == "state"]
            for k, step in enumerate([*lengths, lengths[0] / 100]):  # a kink is met by one sample, at some lengths
                slope = Slope(stream, k % len(self.y), self.y, self.loss_fn, states, grads, step)
                quick = slope_errors(slope, example, len(self.y))
                if quick is None:
                    wrong = None
                    break
                if _within(quick, tolerance / 10):
                    return [*quick]
                wrong = slope.wrong(MISSING) if wrong is None else wrong & slope.wrong(MISSING)
                if not wrong:
                    break
            if wrong and quick is not None:
                raise _no_gradient(stream, max(wrong), quick[max(wrong)])
        best = self.compared(stream, example, states, grads, losses, logits, steps, tolerance)
        for layer, error in enumerate(best):
            if error is not None and error > tolerance:
                raise _no_gradient(stream, layer, error)
        return best

    def compared(
        self,
        stream: Stream,
        example: Any,
        states: list[Tensor],
        grads: list[Tensor],
        losses: Tensor,
        logits: Tensor,
        steps: Steps,
        tolerance: float,
    ) -> list[float | None]:
        """Relative error per layer of native gradients; None where the change of the loss is below its resolution."""
        if not bool(losses.isfinite().all()) or not all(bool(g.isfinite().all()) for g in grads):
            return [None] * len(states)
        rng = torch.Generator().manual_seed(SEED)
        directions = [direction(stream, g, rng) for g in grads]
        size = torch.maximum(losses.abs(), logits.abs().reshape(len(logits), -1).amax(1)).clamp_min(1.0).double()
        sizes = [(norms(stream, h), norms(stream, g)) for h, g in zip(states, grads, strict=True)]
        # a loss is rounded, and so is a state that is moved
        coarse = RESOLUTION_STEPS * torch.finfo(losses.dtype).eps
        resolutions = [coarse * (size + h * g) for h, g in sizes]
        best: list[float | None] = [None] * len(states)
        open_layers = list(range(len(states)))
        for scale, step in steps:
            lengths = [
                self._length(step * h if scale == "state" else torch.minimum(step / g.clamp_min(TINY), LONGEST * h))
                for h, g in sizes
            ]
            moved = [(k, scaled(stream, directions[k], lengths[k])) for k in open_layers]
            both = self._losses(stream, [(k, h) for k, m in moved for h in (states[k] + m, states[k] - m)], example)
            for k, up, down in zip(open_layers, both[::2], both[1::2], strict=True):
                change = (up - down).double() / (2 * lengths[k].double())
                foretold = (rows(stream, grads[k]) * rows(stream, directions[k])).sum(1).double()
                error = _error(change, foretold, resolutions[k] / (2 * lengths[k].double()), self.coupled, tolerance)
                if error is not None and (best[k] is None or error < cast(float, best[k])):
                    best[k] = error
            open_layers = [k for k in open_layers if best[k] is None or cast(float, best[k]) > tolerance / 100]
            if not open_layers:
                break
        return best

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
    """Relative error, the middle one of the samples (a kink may lie within one step).

    None where the difference lies below the resolution and does not agree; one that agrees proves the gradient all the same.
    """
    if coupled:
        change, foretold, resolution = (t.sum().view(1) for t in (change, foretold, resolution))
    size = torch.maximum(change.abs(), foretold.abs())
    error = (change - foretold).abs() / size.clamp_min(TINY)
    known = change.isfinite() & (size > 0) & ((size * tolerance > resolution) | (error <= tolerance))
    return float(error[known].median()) if bool(known.any()) else None
