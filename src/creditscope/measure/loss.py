"""The loss of each sample, and the terms that it is a sum of."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from creditscope.stream.labels import IGNORED

LossFn = Callable[[Tensor, Tensor], Tensor]
"""loss_fn(logits, y) -> the loss of each sample, [B]."""


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Per-sample cross-entropy [B]; half-precision logits are lifted to float32 for the loss itself.

    Logits [B, T, C] with labels [B, T]: summed over the tokens of a sample (as over samples: no gradient shrinks because
    there are more of them); a token with label -100 is not scored.
    """
    each = loss_terms(cross_entropy, logits, y)
    return each if y.dim() == 1 else each.view(len(y), -1).sum(1)


def loss_terms(loss_fn: LossFn, logits: Tensor, y: Tensor) -> Tensor:
    """What is added up to the losses: those of single tokens where the loss is cross-entropy, else the losses of the samples.

    A sum of them in float64 is not rounded as a loss in float32 is.
    """
    if loss_fn is not cross_entropy:
        return loss_fn(logits, y)
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    if y.dim() == 1:
        return F.cross_entropy(logits, y.long(), reduction="none")
    return F.cross_entropy(logits.flatten(0, -2), y.flatten().long(), reduction="none", ignore_index=IGNORED)
