"""Labels of language models: does the model's own loss score token t against label t, or against label t + 1?

The cross-entropy of the logits is taken both ways, sample by sample, and held against the loss that the model computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from creditscope.errors import CreditscopeError

IGNORED = -100
"""Label of a token that is not scored (the ignore_index of F.cross_entropy)."""
ASKED = 4
"""Samples whose losses are compared, one at a time: long samples have means that are alike both ways."""
CLOSE = 1e-4
"""Relative difference up to which two losses are the same (or the resolution of the dtype of the model's loss)."""
CLEAR = 100 * CLOSE
"""Relative difference from which on two losses cannot be taken for each other."""
TINY = 1e-6
"""The same for losses near zero, absolute."""
SAY = "pass shift_labels=True (token t is scored against label t + 1), shift_labels=False (against label t) or loss_fn="
AS_GIVEN = "token t is scored against label t"
NEXT = "token t is scored against label t + 1"


class Losses(NamedTuple):
    """Mean loss over the scored tokens of one sample."""

    own: Tensor
    """As the model computes it."""
    as_given: Tensor
    shifted: Tensor


def next_labels(labels: Tensor) -> Tensor:
    """[B, T]: label t + 1 at token t; nothing is scored at the last token."""
    return torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORED)], dim=1)


def samples_to_ask(labels: Tensor) -> list[int]:
    """The samples with most scored tokens; only those that have one both ways."""
    scored = (next_labels(labels) != IGNORED).sum(1)
    order = scored.argsort(descending=True, stable=True)[:ASKED]
    return [int(k) for k in order if scored[k] > 0]


def own_loss(output: Any) -> Tensor | None:
    """The one number that a model called with labels gives as its loss: `.loss`, "loss", or the first of a tuple."""
    found = getattr(output, "loss", None)
    if found is None and isinstance(output, Mapping):
        found = output.get("loss")
    if found is None and isinstance(output, tuple | list) and output:
        found = output[0]
    return found if isinstance(found, Tensor) and found.numel() == 1 else None


def losses(own: Tensor, logits: Tensor, labels: Tensor) -> Losses:
    """own: one number; logits [1, T, C]; labels [1, T]."""
    flat = logits.flatten(0, 1)
    flat = flat.float() if flat.dtype in (torch.float16, torch.bfloat16) else flat
    both = (F.cross_entropy(flat, t.flatten().long(), ignore_index=IGNORED) for t in (labels, next_labels(labels)))
    return Losses(own.flatten()[0], *both)


def is_shifted(asked: list[Losses]) -> bool:
    """True: the model's own loss is the one with the next token's label. One line where the losses do not tell."""
    if not asked:
        raise CreditscopeError(
            f"no sample has a scored token after its first, so the model's own loss does not show how it reads labels; {SAY}"
        )
    given = all(_same(x.own, x.as_given) for x in asked)
    shifted = all(_same(x.own, x.shifted) for x in asked)
    if given == shifted:
        x = asked[0]
        how = "both" if given else "neither"
        raise CreditscopeError(
            f"the model's own loss ({float(x.own):.6g}) is {how} of the cross-entropies of its logits: with label t "
            f"({float(x.as_given):.6g}), with label t + 1 ({float(x.shifted):.6g}); {SAY}"
        )
    return shifted


def is_clear(asked: Losses) -> bool:
    """Is one of the two ways the model's own, and the other far from it? Then no further sample is asked."""
    apart = abs(float(asked.as_given - asked.shifted)) > CLEAR * abs(float(asked.own))
    return apart and _same(asked.own, asked.as_given) != _same(asked.own, asked.shifted)


def _same(own: Tensor, other: Tensor) -> bool:
    """Never true of a NaN."""
    relative = max(CLOSE, torch.finfo(own.dtype).eps if own.is_floating_point() else 0.0)
    one, two = float(own), float(other)
    return abs(one - two) <= TINY + relative * abs(two)
