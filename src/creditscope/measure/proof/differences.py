"""Finite differences of the loss, against which gradients are held."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from creditscope.measure.loss import LossFn
from creditscope.measure.proof.geometry import TINY, direction, norms, rows, scaled
from creditscope.measure.proof.native import variant_logits
from creditscope.stream.interface import Stream

STEPS = (("state", 1e-5), ("state", 1e-7), ("state", 1e-3), ("state", 1e-2), ("loss", 1e-3), ("loss", 1e-5))
"""Length of the finite difference: relative to ‖h_l‖ of the sample, or such that the loss changes by that much as g_l foretells.
The next one is tried where one does not agree."""
STEPS_FLOAT32 = (("state", 1e-2), ("state", 1e-3), ("state", 1e-1), ("loss", 1e-2))
Steps = tuple[tuple[str, float], ...]
GRADIENT = 1e-3
"""Largest relative error of <g_l, v> against the finite difference on a float64 copy."""
GRADIENT_FLOAT32 = 5e-2
LONGEST = 1e-2
"""The longest step, relative to ‖h_l‖."""
AT_ONCE = 128
"""Samples in one run of several moved states, at the most."""
RESOLUTION_STEPS = 100
"""A change of the loss below so many rounding steps is not measurable."""
SEED = 20261117


@dataclass(frozen=True)
class Differences:
    """A run whose gradients are held against finite differences of its losses, and how that is done."""

    stream: Stream
    example: Any
    states: list[Tensor]
    """Native, as the gradients."""
    grads: list[Tensor]
    losses: Tensor
    logits: Tensor
    y: Tensor
    loss_fn: LossFn
    steps: Steps
    tolerance: float
    coupled: bool = False
    """Samples influence each other."""
    at_once: int = AT_ONCE
    """Samples in one run of several moved states (one run each where samples influence each other, or the size of a batch is
    fixed)."""

    @property
    def directions(self) -> list[Tensor]:
        """Along which each state is moved; the same every time."""
        rng = torch.Generator().manual_seed(SEED)
        return [direction(self.stream, g, rng) for g in self.grads]

    def sizes(self) -> list[tuple[Tensor, Tensor]]:
        """Per layer: ‖h_l‖ and ‖g_l‖ of each sample."""
        return [(norms(self.stream, h), norms(self.stream, g)) for h, g in zip(self.states, self.grads, strict=True)]

    def resolutions(self, sizes: list[tuple[Tensor, Tensor]], dtype: torch.dtype | None = None) -> list[Tensor]:
        """Per layer: what rounding in this dtype (None: that of the losses) may make of a difference of each sample's losses."""
        large = self.logits.abs().reshape(len(self.logits), -1).amax(1)
        size = torch.maximum(self.losses.abs(), large).clamp_min(1.0).double()
        # a loss is rounded, and so is a state that is moved
        coarse = RESOLUTION_STEPS * torch.finfo(dtype or self.losses.dtype).eps
        return [coarse * (size + h * g) for h, g in sizes]

    def compared(self, kinked: Collection[int] = ()) -> tuple[list[float | None], list[int]]:
        """Relative error per layer of native gradients, None where the change of the loss is below its resolution; and the layers
        at which the first length of the step was more than 1e-3 off.

        kinked: layers at which what is exactly zero stays there; where given, no other layer is looked at.
        """
        if not bool(self.losses.isfinite().all()) or not all(bool(g.isfinite().all()) for g in self.grads):
            return [None] * len(self.states), []
        directions = self.directions
        for k in kinked:
            directions[k] = directions[k] * (self.states[k] != 0)
        sizes = self.sizes()
        resolutions = self.resolutions(sizes)
        best: list[float | None] = [None] * len(self.states)
        rough: list[int] = []
        open_layers = sorted(kinked) or list(range(len(self.states)))
        for number, (scale, step) in enumerate(self.steps):
            lengths = self.lengths(scale, step, sizes)
            slopes = self.slopes(open_layers, directions, lengths)
            errors = [
                middle_error(*both, resolutions[k] / (2 * lengths[k].double()), self.coupled, self.tolerance)
                for k, both in zip(open_layers, slopes, strict=True)
            ]
            for k, error in zip(open_layers, errors, strict=True):
                if not number and error is not None and error > GRADIENT:
                    rough.append(k)
                if error is not None and (best[k] is None or error < cast(float, best[k])):
                    best[k] = error
            open_layers = [k for k in open_layers if best[k] is None or cast(float, best[k]) > self.tolerance / 100]
            if not open_layers:
                break
        return best, rough

    def slopes(
        self, layers: Sequence[int], directions: list[Tensor], lengths: list[Tensor]
    ) -> list[tuple[Tensor, Tensor]]:
        """Of each of the layers: the finite difference of each sample, and <g_l, v>, which foretells it."""
        both = self.on_both_sides([(k, scaled(self.stream, directions[k], lengths[k])) for k in layers])
        return [
            (
                (up - down).double() / (2 * lengths[k].double()),
                (rows(self.stream, self.grads[k]) * rows(self.stream, directions[k])).sum(1).double(),
            )
            for k, up, down in zip(layers, both[::2], both[1::2], strict=True)
        ]

    def on_both_sides(self, moves: list[tuple[int, Tensor]]) -> list[Tensor]:
        """Losses of the runs in which the state of a layer is moved ahead, and of those in which it is moved behind, in turn."""
        moved = [(k, h) for k, m in moves for h in (self.states[k] + m, self.states[k] - m)]
        logits = variant_logits(self.stream, moved, self.example, self.at_once)
        return [self.loss_fn(each, self.y) for each in logits]

    def lengths(self, scale: str, step: float, sizes: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """Of one of the steps, per layer and sample."""
        return [
            self.length(step * h if scale == "state" else torch.minimum(step / g.clamp_min(TINY), LONGEST * h))
            for h, g in sizes
        ]

    def length(self, length: Tensor) -> Tensor:
        length = length.clamp(TINY, 1 / TINY)
        # where samples influence each other one step for all, so that the sum of changes is a derivative
        return length.mean().expand_as(length) if self.coupled else length

    def summed(self, *each: Tensor) -> Sequence[Tensor]:
        """Of each sample; where samples influence each other, the sum over them."""
        return [t.sum().view(1) for t in each] if self.coupled else each


def middle_error(change: Tensor, foretold: Tensor, resolution: Tensor, coupled: bool, tolerance: float) -> float | None:
    """Relative error, the middle one of the samples (a kink may lie within one step). None: of no sample can it be told."""
    if coupled:
        change, foretold, resolution = (t.sum().view(1) for t in (change, foretold, resolution))
    errors = sample_errors(change, foretold, resolution, tolerance)
    known = errors.isfinite()
    return float(errors[known].median()) if bool(known.any()) else None


def error_between(
    slopes: list[Tensor], foretold: Tensor, resolution: Tensor, coupled: bool, tolerance: float
) -> float | None:
    """`middle_error` against the nearest value between two slopes; relative to the largest of the three."""
    if coupled:
        slopes, foretold, resolution = (
            [t.sum().view(1) for t in slopes],
            foretold.sum().view(1),
            resolution.sum().view(1),
        )
    low, high = torch.minimum(*slopes), torch.maximum(*slopes)
    size = torch.stack([low.abs(), high.abs(), foretold.abs()]).amax(0)
    error = (foretold - foretold.clamp(low, high)).abs() / size.clamp_min(TINY)
    known = size.isfinite() & (size > 0) & ((size * tolerance > resolution) | (error <= tolerance))
    return float(error[known].median()) if bool(known.any()) else None


def sample_errors(change: Tensor, foretold: Tensor, resolution: Tensor, tolerance: float) -> Tensor:
    """Relative error of each sample; infinite where the difference lies below the resolution and does not agree (one that
    agrees proves the gradient all the same)."""
    size = torch.maximum(change.abs(), foretold.abs())
    error = (change - foretold).abs() / size.clamp_min(TINY)
    known = change.isfinite() & (size > 0) & ((size * tolerance > resolution) | (error <= tolerance))
    return error.where(known, torch.full_like(error, float("inf")))


def worst(*errors: Sequence[float | None]) -> tuple[float | None, ...]:
    """Per layer; None where every one is."""
    return tuple(max((e for e in each if e is not None), default=None) for each in zip(*errors, strict=True))


def within(errors: list[float] | None, most: float) -> bool:
    return errors is not None and max(errors) <= most
