"""What a network itself shows of an example: states, gradients, losses, logits."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from creditscope.errors import CreditscopeError
from creditscope.measure.loss import LossFn
from creditscope.stream.batches import call_model, logits_of
from creditscope.stream.devices import dtype_in
from creditscope.stream.interface import ROUNDING, InterfaceStream, Stream, difference
from creditscope.stream.ranks import recover

LARGEST_COPY = 50_000_000
"""Parameters up to which the gradient is checked on a float64 copy."""


class Reference(NamedTuple):
    """Of one run, native and per layer l = 0..L."""

    states: list[Tensor]
    grads: list[Tensor | None]
    losses: Tensor
    logits: Tensor


def own_states(
    stream: Stream, example: Any, seen: tuple[list[Tensor], Tensor] | None = None, own: Tensor | None = None
) -> tuple[Tensor, list[Tensor], float]:
    """The model's own logits, the states of the stream, and how far its logits are from the model's; refused beyond rounding.

    seen: states and logits of the stream, where a run has them already; own: the model's.
    """
    with torch.no_grad():
        own = logits_of(call_model(stream.model, example)) if own is None else own
        states, logits = seen or states_of(stream, example)
    return own, states, require_same_logits(logits, own)


def require_same_logits(seen: Tensor, own: Tensor) -> float:
    """Their relative difference; refused beyond rounding."""
    error = difference(seen, own)
    if error > rounding(own):
        raise CreditscopeError(
            f"the logits seen through the stream are not the model's own (relative difference {error:.2g}); a model must give "
            "the same logits twice: switch off what is random in eval mode"
        )
    return error


def rounding(t: Tensor) -> float:
    return ROUNDING.get(t.dtype, ROUNDING[torch.float32])


def states_of(stream: Stream, example: Any, h: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
    """h: h_0, where it is known."""
    states: list[Tensor] = []

    def tap(layer: int, value: Tensor, handle: Tensor) -> None:
        states.append(value.detach().clone())

    logits = stream.forward(example, tap) if h is None else stream.forward_from(h, example, tap)
    return states, logits


def reference_of(
    stream: Stream, example: Any, y: Tensor, loss_fn: LossFn, known: list[Tensor] | None = None
) -> Reference:
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
    found = [grads.get(layer) for layer in range(stream.depth + 1)]
    return Reference(states, found, losses.detach(), logits.detach())


def _by_parts(
    stream: InterfaceStream, example: Any, y: Tensor, loss_fn: LossFn, known: list[Tensor] | None
) -> Reference:
    """The same block by block, so that the float64 weights of one block at a time are in memory."""
    states = known or states_of(stream, example)[0]
    with torch.enable_grad(), stream.graph():
        h = states[-1].requires_grad_()
        logits = stream.readout(h)
        losses = loss_fn(logits, y)
        grads: list[Tensor | None] = [*torch.autograd.grad(losses.sum(), h, allow_unused=True)]
        for layer in reversed(range(stream.depth)):
            h, g = states[layer].requires_grad_(), grads[0]
            out = stream.advance(layer, h)
            grads.insert(0, None if g is None else torch.autograd.grad(out, h, g, allow_unused=True)[0])
    return Reference([h.detach() for h in states], grads, losses.detach(), logits.detach())


def variant_logits(stream: Stream, states: list[tuple[int, Tensor]], example: Any, at_once: int) -> list[Tensor]:
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


def too_large(stream: Stream) -> str:
    """Why no float64 copy of the network is made; "": one is."""
    size = sum(p.numel() for p in stream.model.parameters())
    return f"{size:,} parameters, a float64 copy is made up to {LARGEST_COPY:,}" if size > LARGEST_COPY else ""


def dtype_of_stream(stream: Stream) -> torch.dtype:
    return dtype_in(stream.model)


def where(stream: Stream, layer: int) -> str:
    if not stream.names:
        return f"block {layer}" if layer < stream.depth else "the readout"
    return f"input of {stream.names[layer]!r}" if layer < stream.depth else f"after {stream.names[-1]!r}"
