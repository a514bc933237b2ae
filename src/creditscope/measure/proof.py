"""Proof that a network is seen rightly, on a few samples at every measurement; what cannot be proved is refused or marked.

Refused: logits that are not the model's own, a state that cannot be replaced by itself, a reference that is no gradient.
Marked: samples that influence each other, states that do not carry everything.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from creditscope.batch import Arguments, call_model, few_samples, logits_of, map_samples
from creditscope.blocks import Path, spelled, tensors_in
from creditscope.eager import eagerly
from creditscope.errors import CreditscopeError
from creditscope.hooked import HookedStream
from creditscope.measure.facts import Proof
from creditscope.stream import ROUNDING, Stream, difference

LossFn = Callable[[Tensor, Tensor], Tensor]

LARGEST_COPY = 50_000_000
"""Parameters up to which the gradient is checked on a float64 copy."""
STEPS = (1e-5, 1e-7, 1e-3, 1e-2)
"""Length of the finite difference, relative to ‖h_l‖ of the sample; the next one is tried where one does not agree."""
STEPS_FLOAT32 = (1e-2, 1e-3, 1e-1)
GRADIENT = 1e-3
"""Largest relative error of <g_l, v> against the finite difference on a float64 copy."""
GRADIENT_FLOAT32 = 5e-2
RESOLUTION_STEPS = 100
"""A change of the loss below so many rounding steps is not measurable."""
SEED = 20261117


def prove(stream: Stream, inputs: Any, y: Tensor, loss_fn: LossFn) -> Proof:
    """Call inside `untouched(stream.model)`, with a batch of the measurement."""
    example, n = few_samples(stream.model, inputs, len(y))
    with torch.no_grad():
        own = logits_of(call_model(stream.model, example))
        states, logits = _states(stream, example)
    error = difference(logits, own)
    if error > _rounding(own):
        raise CreditscopeError(
            f"the logits seen through the stream are not the model's own (relative difference {error:.2g}); a model must give "
            "the same logits twice: switch off what is random in eval mode"
        )
    independent = _independent(stream, example, n, own)
    swaps, beside = _swaps(stream, example, n, states, own) if n > 1 and independent else ([None] * len(states), ())
    gradient, dtype, why = _gradient(stream, example, y[:n], n, loss_fn, coupled=independent is False)
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


def _states(stream: Stream, example: Any) -> tuple[list[Tensor], Tensor]:
    states: list[Tensor] = []
    logits = stream.forward(example, lambda layer, value, handle: states.append(value.detach().clone()))
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
    stream: Stream, example: Any, n: int, states: list[Tensor], own: Tensor
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
    with torch.no_grad():
        for layer, h in enumerate(states):
            error = difference(stream.logits_from(layer, h, other), own)
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


def _gradient(
    stream: Stream, example: Any, y: Tensor, n: int, loss_fn: LossFn, coupled: bool
) -> tuple[list[float | None], str, str]:
    """(relative error per layer, dtype of the check, why not everywhere)."""
    own_dtype = next((p.dtype for p in stream.model.parameters() if p.is_floating_point()), torch.float32)
    size = sum(p.numel() for p in stream.model.parameters())
    reason = ""
    if own_dtype == torch.float64:
        return _checked(stream, example, y, n, loss_fn, coupled, STEPS, GRADIENT), "float64", ""
    if size <= LARGEST_COPY:
        try:
            twin = copy.deepcopy(stream.model).double()
            doubled = tree_map(lambda t: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t, example)
            coarse = _Coarse()
            with eagerly(twin), torch.no_grad():
                on_twin = stream.on(twin, doubled)
                with coarse:
                    loss_fn(logits_of(call_model(twin, doubled)), y)
        except Exception as error:  # it cannot be copied, or has float32 written into its code
            reason = f"the network does not run as a float64 copy ({' '.join(str(error).split())[:120]})"
        else:
            steps, tolerance = (STEPS_FLOAT32, GRADIENT_FLOAT32) if coarse.seen else (STEPS, GRADIENT)
            why = f"the network computes in {coarse.seen} inside, whatever its dtype" if coarse.seen else ""
            with eagerly(twin):
                return (
                    _checked(on_twin, doubled, y, n, loss_fn, coupled, steps, tolerance),
                    coarse.seen or "float64",
                    why,
                )
    else:
        reason = f"{size:,} parameters, a float64 copy is made up to {LARGEST_COPY:,}"
    if own_dtype != torch.float32:
        name = str(own_dtype).removeprefix("torch.")
        return [None] * (stream.depth + 1), name, f"{reason}; {name} is too coarse for a finite difference"
    errors = _checked(stream, example, y, n, loss_fn, coupled, STEPS_FLOAT32, GRADIENT_FLOAT32)
    return errors, "float32", reason


class _Coarse(TorchFunctionMode):
    """Sees whether a network lowers its states to a coarser dtype than float64 on its way."""

    seen = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        lowered = isinstance(out, Tensor) and out.is_floating_point() and out.dtype != torch.float64
        if lowered and any(isinstance(t, Tensor) and t.dtype == torch.float64 for t in args):
            self.seen = str(out.dtype).removeprefix("torch.")
        return out


def _checked(
    stream: Stream,
    example: Any,
    y: Tensor,
    n: int,
    loss_fn: LossFn,
    coupled: bool,
    steps: tuple[float, ...],
    tolerance: float,
) -> list[float | None]:
    states, grads, losses, logits = _reference(stream, example, y, loss_fn)
    rng = torch.Generator().manual_seed(SEED)
    size = torch.maximum(losses.abs(), logits.abs().reshape(len(logits), -1).amax(1)).clamp_min(1.0).double()
    resolution = RESOLUTION_STEPS * torch.finfo(losses.dtype).eps * size
    errors: list[float | None] = []
    for layer, (h, g) in enumerate(zip(states, grads, strict=True)):
        if g is None:
            raise CreditscopeError(
                f"no gradient of the loss arrives at h_{layer} ({_where(stream, layer)}); name blocks that the logits depend on"
            )
        if not bool(g.isfinite().all() and losses.isfinite().all()):
            errors.append(None)
            continue
        direction = _direction(stream, g, rng)
        best: float | None = None
        for step in steps:
            length = step * _rows(stream, h).norm(dim=1).clamp_min(1e-30)
            if coupled:
                length = length.mean().expand_as(length)  # one step for all, so that the sum of changes is a derivative
            moved = _scaled(stream, direction, length)
            change = _losses_after(stream, layer, h + moved, example, y, n, loss_fn)
            change = (change - _losses_after(stream, layer, h - moved, example, y, n, loss_fn)) / (2 * length)
            foretold = (_rows(stream, g) * _rows(stream, direction)).sum(1)
            error = _error(change.double(), foretold.double(), resolution / (2 * length), coupled, tolerance)
            if error is not None and (best is None or error < best):
                best = error
            if best is not None and best <= tolerance / 100:
                break
        if best is not None and best > tolerance:
            raise CreditscopeError(
                f"g_{layer} is not the gradient of the loss ({_where(stream, layer)}): it is off a finite difference by a "
                f"relative {best:.2g}. A layer or a hook has a backward pass of its own; diagnose an ordinary network of the "
                "same weights (credit_from_grads makes the method's backward pass the credit)"
            )
        errors.append(best)
    return errors


def _where(stream: Stream, layer: int) -> str:
    if not stream.names:
        return f"block {layer}" if layer < stream.depth else "the readout"
    return f"input of {stream.names[layer]!r}" if layer < stream.depth else f"after {stream.names[-1]!r}"


def _reference(
    stream: Stream, example: Any, y: Tensor, loss_fn: LossFn
) -> tuple[list[Tensor], list[Tensor | None], Tensor, Tensor]:
    """Native states and gradients, losses and logits, taken as the measurement takes them."""
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


def _first(stream: Stream, t: Tensor) -> Tensor:
    """Samples first; its own inverse."""
    return t.transpose(0, stream.batch_dim) if stream.batch_dim and t.dim() > 2 else t


def _rows(stream: Stream, t: Tensor) -> Tensor:
    return _first(stream, t).flatten(1)


def _scaled(stream: Stream, t: Tensor, factor: Tensor) -> Tensor:
    """Each sample of a native tensor times its factor [B]."""
    rows = _first(stream, t)
    return _first(stream, rows * factor.to(t.dtype).view(-1, *[1] * (rows.dim() - 1)))


def _direction(stream: Stream, g: Tensor, rng: torch.Generator) -> Tensor:
    """Unit length per sample: half along g, so that <g, v> is not small by chance, half drawn."""
    drawn = torch.randn(g.shape, generator=rng).to(g)
    parts = [
        _scaled(stream, t, 1 / _rows(stream, t).norm(dim=1).clamp_min(1e-300 if t.dtype == torch.float64 else 1e-30))
        for t in (g, drawn)
    ]
    v = parts[0] + parts[1]
    return _scaled(stream, v, 1 / _rows(stream, v).norm(dim=1))


def _losses_after(stream: Stream, layer: int, h: Tensor, example: Any, y: Tensor, n: int, loss_fn: LossFn) -> Tensor:
    with torch.no_grad():
        return loss_fn(stream.logits_from(layer, h, example), y)


def _error(change: Tensor, foretold: Tensor, resolution: Tensor, coupled: bool, tolerance: float) -> float | None:
    """Relative error, the middle one of the samples (a kink may lie within one step); None: below the resolution."""
    if coupled:
        change, foretold, resolution = (t.sum().view(1) for t in (change, foretold, resolution))
    size = torch.maximum(change.abs(), foretold.abs())
    known = (size * tolerance > resolution) & change.isfinite()
    if not bool(known.any()):
        return None
    return float(((change - foretold).abs() / size)[known].median())
