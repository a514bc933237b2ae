"""A few samples of one batch, as the measurement saw them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from creditscope.measure.loss import LossFn
from creditscope.measure.proof.native import Reference
from creditscope.measure.proof.steps import Slope
from creditscope.stream.batches import Arguments, map_samples, tensors_of
from creditscope.stream.hooks import HookedStream
from creditscope.stream.interface import Stream


class Excerpt:
    """What the measurement sees of some samples of one batch: native states and gradients of l = 0..L (not deep: of
    0), logits."""

    def __init__(self, stream: Stream, inputs: Any, y: Tensor, samples: Sequence[int], deep: bool) -> None:
        """samples: their numbers in the batch."""
        self.samples, self.deep = list(samples), deep
        self.batch_size, self.dim, self.inputs = len(y), stream.batch_dim, inputs
        self.example = map_samples(inputs, len(y), lambda t: self._few(t, 0))
        self.y = self._few(y, 0)
        self.states: list[Tensor] = []
        self.grads: dict[int, Tensor] = {}
        self.logits: Tensor = y

    def add_state(self, layer: int, h: Tensor) -> None:
        if self.deep or not layer:
            self.states.append(self._few(h, self.dim))

    def add_gradient(self, layer: int, g: Tensor) -> None:
        if self.deep or not layer:
            self.grads[layer] = self._few(g, self.dim)

    def add_logits(self, logits: Tensor) -> None:
        self.logits = self._few(logits, 0)

    def _few(self, t: Tensor, dim: int) -> Tensor:
        return torch.cat([t.narrow(dim, k, 1) for k in self.samples], dim)

    @property
    def finite(self) -> bool:
        return all(bool(t.isfinite().all()) for t in (self.logits, *self.states, *self.grads.values()))

    def reference(self, loss_fn: LossFn) -> Reference:
        return Reference(self.states, [*self._ascending()], loss_fn(self.logits, self.y), self.logits)

    def slope(self, stream: Stream, sample: int, loss_fn: LossFn, step: float) -> Slope:
        assert isinstance(stream, HookedStream)
        return Slope(stream, sample, self.y, loss_fn, self.states, self._ascending(), step)

    def _ascending(self) -> list[Tensor]:
        return [self.grads[layer] for layer in sorted(self.grads)]

    def last(self) -> Excerpt:
        """Of the last of the samples."""
        n, other = len(self.samples), copy.copy(self)
        other.samples = self.samples[-1:]
        other.example = map_samples(self.example, n, lambda t: t[n - 1 :])
        other.y, other.logits = self.y[n - 1 :], self.logits[n - 1 :]
        other.states = [t.narrow(self.dim, n - 1, 1) for t in self.states]
        other.grads = {layer: t.narrow(self.dim, n - 1, 1) for layer, t in self.grads.items()}
        return other


def alike(excerpts: Sequence[Excerpt]) -> list[list[Excerpt]]:
    """Those that can be run together: all, or each by itself."""
    forms = {(_form(given_inputs(e.example)), e.states[0].shape, e.y.shape) for e in excerpts}
    apart = len(forms) > 1 or any(t.shape[:1] != (1,) for e in excerpts for t in tensors_of(given_inputs(e.example)))
    return [[each] for each in excerpts] if apart else [[*excerpts]] if excerpts else []


def _form(inputs: Any) -> str:
    """Equal where inputs differ in the numbers of their tensors alone."""
    leaves, spec = tree_flatten(inputs)
    return repr((spec, [t.shape if isinstance(t, Tensor) else t for t in leaves]))


def given_inputs(example: Any) -> Any:
    return example.inputs if isinstance(example, Arguments) else example


def joined(excerpts: Sequence[Excerpt], dtype: torch.dtype) -> Excerpt:
    """One excerpt of all of them, h_0 and g_0 in this dtype."""
    first = excerpts[0]
    together, dim = copy.copy(first), first.dim
    if len(excerpts) > 1:
        flat = [tree_flatten(given_inputs(e.example)) for e in excerpts]
        leaves = [
            torch.cat(each) if isinstance(each[0], Tensor) else each[0]
            for each in zip(*(f[0] for f in flat), strict=True)
        ]
        inner = tree_unflatten(leaves, flat[0][1])
        together.example = first.example._replace(inputs=inner) if isinstance(first.example, Arguments) else inner
        together.y = torch.cat([e.y for e in excerpts])
    if dtype == torch.float64:
        together.example = doubled(together.example)
    together.states = [torch.cat([e.states[0] for e in excerpts], dim).to(dtype)]
    together.grads = {0: torch.cat([e.grads[0] for e in excerpts], dim).to(dtype)}
    together.logits = torch.cat([e.logits for e in excerpts]).to(dtype)
    return together


def doubled(inputs: Any) -> Any:
    return tree_map(lambda t: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t, inputs)
