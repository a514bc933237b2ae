"""Fresh-B null: is the alignment with the trained feedback matrices more than with any others?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from creditscope.credit.base import CreditRule
from creditscope.measure.alignment import cosine
from creditscope.measure.facts import FreshB
from creditscope.measure.functional import Batch, LossFn, credit_of, reference_pass
from creditscope.stream import Stream

Array = NDArray[np.float64]

DRAWS = 20
SEED = 20260411


def fresh_b(
    stream: Stream, batches: Sequence[Batch], rule: CreditRule, loss_fn: LossFn, *, draws: int = DRAWS, seed: int = SEED
) -> FreshB:
    """The trained rule against `draws` redrawn ones; one backward pass per batch serves them all.

    Call inside `untouched(model)`. Batches and cosines as in the alignment fact, so `trained` is its deep mean without
    exact layers.
    """
    layers = tuple(sorted(set(range(1, stream.depth + 1)) - set(rule.exact_layers(stream.depth))))

    def unanswered(reason: str) -> FreshB:
        return FreshB(trained=None, mean=None, std=None, z=None, draws=(), layers=layers, seed=seed, reason=reason)

    if rule.is_exact:
        return unanswered("not applicable: the credit is the reference itself")
    if not layers:
        return unanswered("not applicable: every deep layer is exact by construction")
    rng = torch.Generator().manual_seed(seed)
    rules = [rule]
    total = count = np.zeros(0)
    for inputs, y in batches:
        done = reference_pass(stream, inputs, y, loss_fn)
        if len(rules) == 1:
            fresh = [rule.redraw(stream, done.logits.shape[-1], rng) for _ in range(draws)]
            rules = list(chain(rules, (f for f in fresh if f is not None)))
            if len(rules) <= draws:
                return unanswered(f"not applicable: rule {rule.name!r} has nothing to redraw")
            for one in rules:
                one.attach(stream)
            total, count = np.zeros((2, len(rules), len(layers)))
        g = [done.g[layer].double() for layer in layers]
        gg = [_squares(x) for x in g]
        for k, one in enumerate(rules):
            credits = credit_of(one, stream, done, y)
            for j, layer in enumerate(layers):
                a = credits[layer].double()
                cos = cosine(torch.linalg.vecdot(a, g[j]).cpu().numpy(), _squares(a), gg[j])
                total[k, j] += np.nansum(cos)
                count[k, j] += np.isfinite(cos).sum()
    return z_score(total, count, layers, seed)


def z_score(total: Array, count: Array, layers: tuple[int, ...], seed: int) -> FreshB:
    """total, count [1 + draws, layers]: sums of cosines and how many; the first row is the trained rule."""
    means = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    deep = [float(row[np.isfinite(row)].mean()) if np.isfinite(row).any() else None for row in means]
    trained, values = deep[0], tuple(deep[1:])
    known = [v for v in values if v is not None]
    mean = float(np.mean(known)) if known else None
    std = float(np.std(known, ddof=1)) if len(known) > 1 else None
    z = (trained - mean) / std if trained is not None and mean is not None and std else None
    reason = (
        "" if z is not None else "not measurable: no sample has two non-zero finite vectors, or the draws do not vary"
    )
    return FreshB(trained=trained, mean=mean, std=std, z=z, draws=values, layers=layers, seed=seed, reason=reason)


def _squares(x: Tensor) -> Array:
    array: Array = torch.linalg.vecdot(x, x).cpu().numpy()
    return array
