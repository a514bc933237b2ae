"""How one batch becomes gradients: the local objective for every rule, and backpropagation end to end.

Local: block l minimises <f_l(h_l), a> with detached input (sum over features, mean over the batch) plus
λ‖f_l(h_l)‖² (sum over features, mean over the batch); the embedding minimises <h_0, a_0>; terminal norm and head get the
exact gradient of the loss on detached h_L. No gradient crosses a block boundary.

Clipping, where it is on, comes last and is the same for every way to the gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creditscope.credit.base import CreditBatch, CreditRule, Later, descent_of, rms_normalised
from creditscope.credit.bp import end_to_end
from creditscope.credit.layers import credit_shift
from creditscope.models.local import Pull, local_branch
from creditscope.stream.interface import InterfaceStream

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Precision of the products, where it is not that of the weights."""


@dataclass(frozen=True)
class Objective:
    """What is fixed during a run."""

    stream: InterfaceStream
    rule: CreditRule
    credit_norm: str | None
    credit_site: str | None
    penalty: float
    first_trained: int
    """Index of the first trained block; blocks in front of it are frozen (L: all are)."""
    precision: str = "fp32"
    """bf16, fp16: matrix products of the forward and backward pass under autocast; states, credit, weights and optimiser in
    fp32. fp16: what is sent back is scaled by a power of two and its gradients are scaled back, for each block by itself."""
    grad_clip: float | None = None
    """Largest L2 norm of a gradient; None: as it is."""
    clip_over: str | None = None
    """module: of each block and of the embedding; global: of all that is trained."""
    later: Later | None = None
    """Where the finiteness of the credit is noted; None: it is asked at every batch, which makes the host wait."""

    def _cast(self, x: Tensor) -> AbstractContextManager[object]:
        return torch.autocast(x.device.type, AUTOCAST[self.precision]) if self.precision in AUTOCAST else nullcontext()

    def backward(self, x: Tensor, y: Tensor, labels: Tensor | None = None) -> Tensor:
        """Leave the gradients of one batch in .grad; returns the mean loss (detached scalar). labels: y on the CPU, if known."""
        kind = x.device.type
        if self.precision == "fp32" and torch.is_autocast_enabled(kind):  # a caller's: fp32 is fp32
            with torch.autocast(kind, enabled=False):
                return self.backward(x, y, labels)
        loss = self._backward(x, y, labels)
        if self.grad_clip is not None:
            self._clip(self.grad_clip)
        return loss

    def _clip(self, largest: float) -> None:
        """Scale down the gradients of each part whose norm is larger; torch's own arithmetic."""
        model = self.stream.model
        modules = [model] if self.clip_over == "global" else [model.get_submodule("embed"), *self.stream.blocks]
        for module in modules:
            nn.utils.clip_grad_norm_(module.parameters(), largest)

    def _backward(self, x: Tensor, y: Tensor, labels: Tensor | None) -> Tensor:
        if self.rule.objective == "exact":
            scale = self._loss_scale(len(y))
            loss = end_to_end(self.stream, x, y, self.penalty, self._cast(x), scale)
            _unscale(self.stream.model, scale)
            return loss
        if self.rule.objective == "own":
            return self.rule.backward(self.stream, x, y, self.first_trained, self.penalty)
        return self._local(x, y, labels)

    def _local(self, x: Tensor, y: Tensor, labels: Tensor | None) -> Tensor:
        stream, n = self.stream, len(y)
        with self._cast(x):
            with torch.no_grad():
                embedded = self._known(stream.embedding, x) or _graphed(stream.embed, x)
                hiddens = [_state(embedded, x.dtype)]
                branches: list[tuple[Tensor, Pull | None]] = []
                for layer in range(stream.depth):
                    branches.append(self._branch(layer, hiddens[-1]))
                    state = _state(branches[-1], x.dtype)
                    hiddens.append(state if stream.kind == "plain" else hiddens[-1] + state)
            top = hiddens[-1].detach().requires_grad_()
            logits = stream.readout(top).to(x.dtype)
        loss, scale = F.cross_entropy(logits, y), self._loss_scale(n)
        (loss if scale == 1 else loss * scale).backward()
        assert top.grad is not None
        if scale != 1:
            _unscale(stream.model, scale)
            top.grad /= scale
        batch = CreditBatch(stream, hiddens, logits.detach(), y, stream.read_grad(top.grad) * n, x, self.later, labels)
        self.rule.learn(batch)
        shift = credit_shift(stream.kind, self.credit_site)
        roots: list[Tensor] = []
        pushes: list[Tensor] = []
        for at, a in descent_of(self.rule, batch):
            led = [(branches[at - shift], self.penalty)] if self.first_trained <= at - shift < stream.depth else []
            for (f, pull), penalty in led if at else [*led, (embedded, 0.0)]:
                push = self._push(a, at, n, f.detach().float() if self.precision == "fp16" else f)
                if penalty:
                    push = push + f.detach() * (2 * penalty / n)
                if pull is not None:
                    pull(push)
                elif f.requires_grad:  # it has something to train
                    roots.append(f)
                    pushes.append(push)
        if self.precision == "fp16":
            for root, push in zip(roots, pushes, strict=True):
                _backward_scaled(root, push, [p for p in stream.model.parameters() if p.requires_grad])
        elif roots:
            torch.autograd.backward(roots, pushes)
        return loss.detach()

    def _loss_scale(self, n: int) -> float:
        """By how much the mean loss over `n` samples is multiplied in front of the backward pass: a power of two, about n."""
        return 2.0 ** math.ceil(math.log2(n)) if self.precision == "fp16" else 1.0

    def _branch(self, layer: int, h: Tensor) -> tuple[Tensor, Pull | None]:
        """f_l(h): with a graph, or (blocks that know their gradients) with the way from the credit to them. Without grad mode."""
        if layer < self.first_trained:
            return self.stream.branch(layer, h), None
        return self._known(self.stream.blocks[layer], h) or _graphed(self.stream.branch, layer, h)

    def _known(self, module: nn.Module | None, h: Tensor) -> tuple[Tensor, Pull] | None:
        return local_branch(module, h) if module is not None and self.precision == "fp32" else None

    def _push(self, a: Tensor, layer: int, n: int, like: Tensor) -> Tensor:
        """Gradient of the mean over the batch of <output, a> with respect to the output, in its native shape."""
        a = self.stream.read_grad(a) if a.dim() > 2 else a
        if self.credit_norm == "rms":
            over = n if _power_of_two(n) else 1  # then the division is that of the RMS too, to the bit
            a, n = rms_normalised(a, over), n // over
        push = self.stream.write_credit(a, layer)
        push = push if n == 1 else push / n
        return push if (push.dtype, push.shape) == (like.dtype, like.shape) else push.to(like.dtype).expand_as(like)


def _graphed(forward: Callable[..., Tensor], *args: Any) -> tuple[Tensor, None]:
    with torch.enable_grad():
        return forward(*args), None


def _state(output: tuple[Tensor, Pull | None], dtype: torch.dtype) -> Tensor:
    """The output without its graph, in the dtype of the states."""
    f, pull = output
    return f if pull is not None else f.detach().to(dtype)


def _unscale(model: nn.Module, scale: float) -> None:
    """Divide every gradient by `scale`, a power of two: exact."""
    if scale != 1:
        for p in model.parameters():
            if p.grad is not None:
                p.grad /= scale


def _backward_scaled(root: Tensor, push: Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """Gradients of <root, push> into .grad, sent back with a largest entry between 1/2 and 1: fp16 then loses what is less than
    a ten-millionth of it. No gradient crosses a block, so each has a scale of its own, and the host is not asked."""
    exponent = torch.frexp(torch.linalg.vector_norm(push, torch.inf)).exponent
    grads = torch.autograd.grad(root, parameters, torch.ldexp(push, -exponent).to(root.dtype), allow_unused=True)
    for p, g in zip(parameters, grads, strict=True):
        if g is not None:
            g = torch.ldexp(g.to(p.dtype), exponent)
            p.grad = g if p.grad is None else p.grad + g


def _power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def freeze_first(stream: InterfaceStream, train_last: int | None) -> int:
    """Switch off the gradients of all but the last `train_last` blocks; index of the first trained one."""
    first = 0 if train_last is None else stream.depth - train_last
    for block in list(stream.blocks)[:first]:
        block.requires_grad_(False)
    return first
