"""The odd networks again, under the depth profile and the certificate: equal to a second computation, or refused in one line.

    python tests/trust/odd_profiles.py profile [PART OF A NAME] [/N]    name | outcome | line; /N: every N-th network only
    python tests/trust/odd_profiles.py certify [PART OF A NAME] [/N]

The profile's second computation: the states of the oracle (tape or hooks, in float64), and for each layer a ridge regression by
numpy's SVD of the rows themselves. A readout may differ from it by the samples whose two best scores are next to equal.
The certificate's truth is known because the update is backpropagation written down here.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.trust.odd_networks import CASES, judged
from tests.trust.oracle import (
    EITHER,
    Batch,
    Case,
    Network,
    Pass,
    WrongError,
    call,
    left_as_found,
    losses,
    vectors,
)

from creditscope import certify, depth_profile, frozen_blocks
from creditscope.stream.interface import make_stream
from creditscope.stream.untouched import untouched

COPIES = 4
"""Noisy copies of each batch, so that there are rows to fit and rows to test."""
NEAR = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.3}
"""Scores of one-hots whose difference states of this dtype do not decide."""


def noisy(batches: Sequence[Batch], seed: int) -> list[Batch]:
    gen = torch.Generator().manual_seed(seed)

    def moved(t: Any) -> Any:
        plain = isinstance(t, Tensor) and t.is_floating_point()
        return t + 0.3 * torch.randn(t.shape, generator=gen).to(t) if plain else t

    if any(isinstance(t, Tensor) and t.is_floating_point() for inputs, _ in batches for t in tree_flatten(inputs)[0]):
        return [(tree_map(moved, inputs), y) for _ in range(COPIES) for inputs, y in batches]
    return [(inputs, y.roll(seed + k, 0)) for k in range(COPIES) for inputs, y in batches]  # token ids, other labels


def start(block: nn.Module) -> None:
    """How a block of a twin starts: the constructors of some of these networks do not tell."""
    for p in block.parameters():
        p.normal_(std=0.2)


# ---- the profile ---------------------------------------------------------------------------------------------------


def rows_of(passes: Sequence[Pass], layer: int, read: str, batch_dim: int) -> tuple[Any, Any]:
    """Normalised rows [n, d] and labels [n] of one layer."""
    found, labels = [], []
    for one in passes:
        h, y = one.states[layer], one.y
        if y.dim() == 2:  # a row for every token that is scored
            found.append(h.movedim(batch_dim, 0)[y != -100].double().numpy())
            labels.append(y[y != -100].numpy())
        else:
            found.append(vectors(h, read, False, batch_dim))
            labels.append(y.numpy())
    x = np.concatenate(found)
    x = x - x.mean(1, keepdims=True)
    size = np.sqrt((x**2).mean(1, keepdims=True))
    return np.divide(x, size, out=np.zeros_like(x), where=size > 1e-6 * np.abs(np.concatenate(found)).max()), (
        np.concatenate(labels)
    )


def by_svd(x: Any, y: Any, strength: float | None, test: Any, labels: Any, near: float) -> tuple[int, int]:
    """(fewest, most) right answers on the test rows by the ridge of this strength, which must be one of the best."""
    classes = np.unique(y)
    centre, onehot = x.mean(0), (y[:, None] == classes).astype(float)
    share = onehot.mean(0)
    u, s, v = np.linalg.svd(x - centre, full_matrices=False)
    if strength is None:
        if s[0] > 1e-3:
            raise WrongError("the state is said to be the same for every sample; it is not")
        scores = np.tile(share, (len(test), 1))
    else:
        target = onehot - share
        score = {}
        for k in range(-24, 9):
            ridge = 10 ** (k / 4) * s[0] ** 2
            fitted = u @ ((s**2 / (s**2 + ridge))[:, None] * (u.T @ target))
            free = len(x) - 1 - (s**2 / (s**2 + ridge)).sum()
            if free > 0:
                score[k] = ((target - fitted) ** 2).sum() / free**2
        mine = round(4 * np.log10(strength))
        if score[mine] > min(score.values()) * (1 + near):
            raise WrongError(f"strength {strength:g} is not the best by cross-validation")
        weights = v.T @ ((s / (s**2 + strength * s[0] ** 2))[:, None] * (u.T @ target))
        scores = (test - centre) @ weights + share
    order = np.sort(scores, 1)
    unsure = order[:, -1] - order[:, -2] < near if scores.shape[1] > 1 else np.zeros(len(scores), bool)
    right = classes[scores.argmax(1)] == labels
    return int((right & ~unsure).sum()), int((right | unsure).sum())


def check_profile(net: Network) -> str:
    fit, test = noisy(net.batches, 1), noisy(net.batches, 2)
    options = {k: v for k, v in net.options.items() if k in ("read", "forward_kwargs", "shift_labels")}
    with left_as_found(net.model, net.batches, *net.watched):
        profile = depth_profile(net.model, fit, test, net.blocks, init=start, **options)
    with untouched(net.model):
        names = make_stream(
            net.model, fit[0][0], len(fit[0][1]), net.blocks, None
        ).names  # in the order in which they run
    twin = frozen_blocks(net.model, list(dict.fromkeys(names)) or None, rest="keep", init=start)
    for model, curve in ((net.model, profile.curve), (twin.to(net.dtype), profile.twin)):
        known = [net.passes(model, data) for data in (fit, test)]
        if len(curve) != len(known[0][0].states):
            raise WrongError(f"{len(curve)} readouts of {len(known[0][0].states)} states")
        for layer, readout in enumerate(curve):
            check_readout(net, known, layer, readout)
    return ""


def check_readout(net: Network, known: Sequence[Sequence[Pass]], layer: int, readout: Any) -> None:
    for read in dict.fromkeys((net.read, "flatten")):
        (x, y), (u, v) = (rows_of(passes, layer, read, net.batch_dim) for passes in known)
        if x.shape[1] == readout.width:
            break
    else:
        raise WrongError(f"h_{layer} is read as {readout.width} numbers; the states have {x.shape[1]}")
    if readout.accuracy is None:
        if np.isfinite(x).all() and np.isfinite(u).all():
            raise WrongError(f"no readout of h_{layer}, which is finite")
        return
    low, high = by_svd(x, y, readout.strength, u, v, NEAR[net.dtype])
    right = readout.accuracy * len(u)
    if not low - 1e-6 <= right <= high + 1e-6:
        raise WrongError(f"readout of h_{layer}: {right:.0f} of {len(u)} right, in truth {low} to {high}")


# ---- the certificate -----------------------------------------------------------------------------------------------


def check_certificate(net: Network) -> str:
    """Backpropagation under its true name, or undetermined with a reason."""

    def update(model: Any, batch: Any) -> None:
        inputs, y = batch
        losses(call(model, inputs), y).mean().backward()

    with left_as_found(net.model, net.batches, *net.watched):
        found = certify(update, net.model, net.batches[0], net.blocks)
    label = found.label.split(":")[0].split(" because")[0]
    if label.startswith("undetermined"):
        if len(found.label) <= len("undetermined because "):
            raise WrongError("undetermined, and nothing says why")
        return found.label
    if label != "backpropagation":
        raise WrongError(f"backpropagation is labelled {found.label!r}")
    return ""


# ---- all of them ---------------------------------------------------------------------------------------------------

CHECKS: dict[str, Callable[[Network], str]] = {"profile": check_profile, "certify": check_certificate}


def cases(check: str) -> list[Case]:
    """Every network of the zoo that is compared in everything, under another check."""
    run = CHECKS[check]
    return [
        replace(case, run=lambda build=case.build: run(build()), expect=EITHER, says="")  # type: ignore[misc]
        for case in CASES
        if case.build is not None
    ]


def main(arguments: Sequence[str]) -> int:
    count: Counter[str] = Counter()
    parts = [a for a in arguments[1:] if not a.startswith("/")]
    every = next((int(a[1:]) for a in arguments[1:] if a.startswith("/")), 1)
    for case in [case for case in cases(arguments[0]) if all(part in case.name for part in parts)][::every]:
        one = judged(case)
        count[one.outcome] += 1
        print(f"{one.name} | {one.outcome} | {one.line}", flush=True)
    print(f"{count.total()} networks: {count['exact']} equal, {count['refused']} refused, {count['wrong']} wrong")
    return int(count["wrong"] > 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1:]))
