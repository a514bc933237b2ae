"""The loss of each sample, and how much it changes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from creditscope.stream.labels import IGNORED

CHUNK = 2**17
"""Logits processed at a time: all that is made of them stays in the processor's cache (a third of the time)."""
LossFn = Callable[[Tensor, Tensor], Tensor]
"""loss_fn(logits, y) -> the loss of each sample, [B]."""


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Per-sample cross-entropy [B]; half-precision logits are lifted to float32 for the loss itself.

    Logits [B, T, C] with labels [B, T]: summed over the tokens of a sample (as over samples: no gradient shrinks because
    there are more of them); a token with label -100 is not scored.
    """
    logits = _lifted(logits)
    if y.dim() == 1:
        return F.cross_entropy(logits, y.long(), reduction="none")
    each = F.cross_entropy(logits.flatten(0, -2), y.flatten().long(), reduction="none", ignore_index=IGNORED)
    return each.view(len(y), -1).sum(1)


@torch.no_grad()
def token_losses(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """`cross_entropy` of logits [B, T, C], and its gradient at the logits: 0.7 of autograd's time with 50,257 classes, and two
    tensors of that size fewer, because a few tokens at a time stay in the processor's cache."""
    flat, labels = logits.flatten(0, -2), y.flatten().long()
    each, slope = torch.zeros(len(flat), dtype=_lifted(logits).dtype, device=flat.device), torch.empty_like(flat)
    few = max(1, CHUNK // flat.shape[-1])
    for z, k, loss, out in zip(*(t.split(few) for t in (flat, labels, each, slope)), strict=True):
        logs, scored = _lifted(z).log_softmax(-1), k != IGNORED
        label = k.where(scored, 0).unsqueeze(-1)
        loss.copy_(-logs.gather(-1, label).squeeze(-1)).masked_fill_(~scored, 0.0)
        logs.exp_().scatter_add_(-1, label, torch.full_like(logs[:, :1], -1.0))
        out.copy_(logs.masked_fill_(~scored.unsqueeze(-1), 0.0))
    return each.view(len(y), -1).sum(1), slope.view_as(logits)


def _lifted(logits: Tensor) -> Tensor:
    """Half precision as float32, in which the loss is taken."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def of_any_number(loss_fn: LossFn) -> LossFn:
    """The same loss; a single sample that it fails for is given to it twice. The measurement checks that each loss is its own."""
    if loss_fn is cross_entropy:
        return loss_fn

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        try:
            return loss_fn(logits, y)
        except Exception as error:  # it is the user's code: anything may come
            if len(y) != 1:
                raise
            try:
                return loss_fn(torch.cat([logits, logits]), torch.cat([y, y])).reshape(2)[:1]
            except Exception:
                raise error from None

    return loss


def loss_change(loss_fn: LossFn, ahead: Tensor, behind: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(loss of the logits `ahead` minus that of `behind`, in float64; the largest number that was rounded on the way).

    A cross-entropy changes by log(1 + Σ_c p_c (exp(Δz_c) - 1)) - Δz_y, which is not rounded as two losses are.
    """
    size = torch.stack(ahead.aminmax()).abs().max().double()
    if loss_fn is not cross_entropy:
        one, other = (loss_fn(t, y).double() for t in (ahead, behind))
        return (one - other).sum(), torch.maximum(one.abs().max(), size)
    scored = (y != IGNORED).flatten()
    label = y.long().flatten().where(scored, 0).unsqueeze(-1)
    few = max(1, CHUNK // ahead.shape[-1])
    parts = []
    for one, other, k in zip(*(t.flatten(0, -2).split(few) for t in (ahead, behind)), label.split(few), strict=True):
        moved = one - other
        own = moved.gather(-1, k).squeeze(-1)
        parts.append((moved.expm1_().mul_(other.softmax(-1)).sum(-1), own))
    grown, own = (torch.cat(each).double() for each in zip(*parts, strict=True))
    return (grown.log1p() - own)[scored].sum(), size
