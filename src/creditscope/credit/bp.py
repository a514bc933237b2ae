"""BP: the exact gradient, end to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from creditscope.credit.base import CreditBatch, CreditRule
from creditscope.stream.interface import InterfaceStream
from creditscope.stream.untouched import no_parameter_grads


def end_to_end(
    stream: InterfaceStream,
    x: Tensor,
    y: Tensor,
    penalty: float = 0.0,
    cast: AbstractContextManager[object] | None = None,
    scale: float = 1.0,
) -> Tensor:
    """One backward pass from the mean loss + λ Σ‖f_l(h_l)‖² to the embedding, gradients in .grad; the loss, detached.

    scale: the gradients are this many times as large.
    """
    with cast or nullcontext():
        h = stream.embed(x).to(x.dtype)
        branches = []
        for layer in range(stream.depth):
            f = stream.branch(layer, h)
            branches.append(f)
            h = f if stream.kind == "plain" else h + f
        logits = stream.readout(h)
    loss = F.cross_entropy(logits.to(x.dtype), y)
    if penalty:
        # d/df of λ‖f‖² / B, handed to autograd as the gradient at f: end to end, without building the term
        push = [f.detach() * (2 * penalty / len(y) * scale) for f in branches]
        torch.autograd.backward([loss if scale == 1 else loss * scale, *branches], [None, *push])
    else:
        (loss if scale == 1 else loss * scale).backward()
    return loss.detach()


def states_of(stream: InterfaceStream, x: Tensor) -> list[Tensor]:
    """Native h_0..h_L of a pass from the inputs on."""
    states = [stream.embed(x)]
    for layer in range(stream.depth):
        states.append(stream.advance(layer, states[-1]))
    return states


def parts_of(
    stream: InterfaceStream, x: Tensor, branch: Callable[[int, Tensor], Tensor] | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """(what each part makes, h_0 and f_0..f_{L-1}, with graphs that end at the part's own input; h_0..h_L, detached).

    branch: (layer, h_l) -> f_l(h_l), in place of the stream's own.
    """
    made = [stream.embed(x)]
    states = [made[0].detach()]
    for layer in range(stream.depth):
        made.append((branch or stream.branch)(layer, states[-1]))
        states.append(made[-1].detach() if stream.kind == "plain" else states[-1] + made[-1].detach())
    return made, states


def backward_from(outputs: Sequence[Tensor], pushes: Sequence[Tensor]) -> None:
    """Gradients of Σ <output, push> into .grad; an output of frozen parts has nothing to train and is left out."""
    trained = [(output, push) for output, push in zip(outputs, pushes, strict=True) if output.requires_grad]
    torch.autograd.backward([output for output, _ in trained], [push for _, push in trained])


def backward_credit(batch: CreditBatch) -> list[Tensor]:
    """What a backward pass from the loss brings to every h_l, by a pass of its own from h_0 on; [B, d_l] for l = 0..L."""
    stream, states = batch.stream, list[Tensor]()
    with torch.enable_grad(), no_parameter_grads(stream.model):
        logits = stream.forward_from(batch.hiddens[0], batch.inputs, lambda layer, h, handle: states.append(handle))
        loss = F.cross_entropy(logits.flatten(0, -2), batch.y.flatten(), reduction="sum")
        return [stream.read_grad(g) for g in torch.autograd.grad(loss, states)]


class BP(CreditRule):
    """a_l = dLoss/dh_l."""

    name = "bp"
    summary = "backpropagation: the exact gradient end to end (the reference itself)"
    is_exact = True
    uses_norm = False
    objective = "exact"

    def credit(self, batch: CreditBatch) -> list[Tensor]:
        """A measurement, which has the reference already, takes that instead."""
        return backward_credit(batch)
