"""Training facts: how far the parameters moved, and by how much the training loss fell.

Plain functions over state dicts (`blocks.{l}.*` names the blocks) and trajectories (one mapping per epoch, from 0).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.measure.facts import Training

State = Mapping[str, Tensor]
BLOCK = re.compile(r"blocks\.(\d+)\.")
EMBED = ("embed.", "patch_embed.")
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
"""Statistics that a state dict holds next to the parameters."""


def parameter_growth(final: State, initial: State, belongs: Callable[[str], bool] = lambda name: True) -> float | None:
    """‖w - w_0‖ / ‖w_0‖ over the parameters whose name `belongs`, as one vector; None where w_0 is zero or there is none."""
    names = [name for name in _parameters(initial) if belongs(name)]
    moved = math.sqrt(sum(_squared(final[name].double() - initial[name].double()) for name in names))
    start = math.sqrt(sum(_squared(initial[name]) for name in names))
    return moved / start if start > 0 else None


def growth_by_block(final: State, initial: State) -> tuple[float | None, ...]:
    """`parameter_growth` of each block l = 0..L-1."""
    prefixes = [f"blocks.{k}." for k in _blocks(initial)]
    return tuple(parameter_growth(final, initial, partial(_starts, prefix)) for prefix in prefixes)


def weight_products(state: State) -> tuple[float | None, ...]:
    """‖w1‖·‖w2‖ of each block (Frobenius norms of linear1.weight and linear2.weight); None where a block lacks them."""
    products: list[float | None] = []
    for k in _blocks(state):
        pair = [state.get(f"blocks.{k}.linear{i}.weight") for i in (1, 2)]
        norms = [math.sqrt(_squared(w)) for w in pair if w is not None]
        products.append(norms[0] * norms[1] if len(norms) == 2 else None)
    return tuple(products)


def loss_decrease(
    trajectory: Sequence[Mapping[str, Any]], initial_loss: float | None = None
) -> tuple[float | None, float | None]:
    """(last minus first epoch, last epoch minus initialisation) of the training loss; negative where it fell.

    The first epoch's loss is taken while it trains, so most of the fall may be inside it: the second number starts from
    `initial_loss`, the loss of the untrained network on the training set (None leaves it unknown).
    """
    losses = [float(line["train_loss"]) for line in trajectory if line["epoch"] >= 1]
    if not losses:
        return None, None
    return losses[-1] - losses[0], None if initial_loss is None else losses[-1] - initial_loss


def training_facts(
    trajectory: Sequence[Mapping[str, Any]], final: State, initial: State, initial_loss: float | None = None
) -> Training:
    """Everything the run shows; `initial` are the weights before the first step."""
    if set(final) != set(initial):
        wrong = sorted(set(final) ^ set(initial))[0]
        raise CreditscopeError(f"the weights before and after training differ in their names, e.g. at {wrong!r}")
    lines = [line for line in trajectory if line["epoch"] >= 1]
    decrease, from_start = loss_decrease(trajectory, initial_loss)
    return Training(
        accuracy=tuple(float(line["accuracy"]) for line in lines),
        train_loss=tuple(float(line["train_loss"]) for line in lines),
        loss_decrease=decrease,
        loss_decrease_from_start=from_start,
        growth=parameter_growth(final, initial),
        growth_embed=parameter_growth(final, initial, lambda name: name.startswith(EMBED)),
        growth_readout=parameter_growth(
            final, initial, lambda name: not name.startswith(EMBED) and not BLOCK.match(name)
        ),
        growth_by_block=growth_by_block(final, initial),
        weight_product=weight_products(final),
        weight_product_start=weight_products(initial),
    )


def _starts(prefix: str, name: str) -> bool:
    return name.startswith(prefix)


def _blocks(state: State) -> list[int]:
    return sorted({int(match[1]) for name in state if (match := BLOCK.match(name))})


def _parameters(state: State) -> list[str]:
    return [n for n, t in state.items() if t.is_floating_point() and n.rpartition(".")[2] not in BUFFERS]


def _squared(t: Tensor) -> float:
    return float(torch.linalg.vector_norm(t.double())) ** 2
