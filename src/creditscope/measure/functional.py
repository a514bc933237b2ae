"""What the functional metrics share: a float64 copy of the network, the samples that are probed, the smallest loss
change that means anything, and how per-sample numbers become facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import tree_map

from creditscope.credit.base import CreditBatch
from creditscope.measure.alignment import mean_or_none
from creditscope.measure.concentration import concentration
from creditscope.measure.facts import LayerMeans
from creditscope.stream.batches import map_samples
from creditscope.stream.blocks import resolve_blocks
from creditscope.stream.eager import copied
from creditscope.stream.interface import InterfaceStream, Stream, make_stream
from creditscope.stream.untouched import untouched

Array = NDArray[np.float64]
LossFn = Callable[[Tensor, Tensor], Tensor]
Batch = tuple[Any, Tensor]

N_SAMPLES = 256
DTYPE = "float64 copy of the network; the credit in the network's own dtype"
RESOLUTION_STEPS = 100
RESOLUTION = f"{RESOLUTION_STEPS} rounding steps of the loss: {RESOLUTION_STEPS} x eps x max(1, |loss|, max |logit|)"
CONTROL_SEED = 20260409
CHUNK = 2**18
"""Numbers in one stacked state (or input): bounds the memory, and keeps a chunk in the processor's cache."""


@dataclass
class Pass:
    """One batch forward and backward; the loss is summed over samples."""

    hiddens: list[Tensor]
    """Native h_0..h_L."""
    logits: Tensor
    losses: Tensor
    """[B]."""
    g: list[Tensor]
    """g_l as it is read, [B, d_l]."""


def reference_pass(stream: Stream, inputs: Any, y: Tensor, loss_fn: LossFn) -> Pass:
    """h_l, g_l, logits and losses of one batch, all detached. Call inside `untouched(model)`."""
    hiddens: list[Tensor] = []
    grads: dict[int, Tensor] = {}
    leaf: list[GradientEdge] = []  # as it is now: a block may write to the tensor

    def tap(layer: int, value: Tensor, handle: Tensor) -> None:
        hiddens.append(value.detach())
        if layer == 0:
            leaf.append(get_gradient_edge(handle))
        else:
            handle.register_hook(lambda g: grads.__setitem__(layer, stream.read_grad(g.detach())))

    with torch.enable_grad(), stream.graph():
        logits = stream.forward(inputs, tap)
        losses = loss_fn(logits, y)
        (g0,) = torch.autograd.grad(losses.sum(), leaf[0])
    grads[0] = stream.read_grad(g0.detach())
    return Pass(hiddens, logits.detach(), losses.detach(), [grads[layer] for layer in range(stream.depth + 1)])


@dataclass
class Probe:
    """One batch on the float64 copy."""

    inputs: Any
    y: Tensor
    hiddens: list[Tensor]
    losses: Tensor
    resolution: Array
    """[B]: a loss change below it is rounding."""
    credits: dict[str, list[Tensor]]
    """`credit` (where given), `reference`, `random`: [B, d_l] per layer, float64."""
    by_layer: list[Tensor] | None = None
    """The losses [B] of a run from each h_l, where the states were recorded: their rounding makes the runs differ."""

    def before(self, layer: int) -> Tensor:
        """Losses [B] before h_l moves."""
        return self.losses if self.by_layer is None else self.by_layer[layer]


def first_samples(batches: Sequence[Batch], n: int = N_SAMPLES) -> list[Batch]:
    """The first n samples, batched as they were."""
    kept: list[Batch] = []
    for inputs, y in batches:
        take = min(n, len(y))
        if take:
            cut = inputs if take == len(y) else map_samples(inputs, len(y), lambda t, k=take: t[:k])
            kept.append((cut, y[:take]))
        n -= take
    return kept


def first_of(batch: CreditBatch, n: int) -> CreditBatch:
    """The first n samples of a batch."""
    if n == len(batch.y):
        return batch
    hiddens = [_samples_first(batch.stream, _samples_first(batch.stream, h)[:n]) for h in batch.hiddens]
    top = None if batch.output_grad is None else batch.output_grad[:n]
    inputs = map_samples(batch.inputs, len(batch.y), lambda t: t[:n])
    return CreditBatch(batch.stream, hiddens, batch.logits[:n], batch.y[:n], top, inputs)


def double_stream(model: nn.Module, example: Batch, blocks: Any, read: str | None) -> Stream:
    """The same stream on a float64 copy of the model; run it inside `untouched(stream.model)`."""
    names = None if blocks is None else [name for name, _ in resolve_blocks(model, blocks)]
    twin = copied(model).double()
    with untouched(twin):
        return make_stream(twin, doubled(example[0]), len(example[1]), names, read)


def doubled(inputs: Any) -> Any:
    return tree_map(lambda t: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t, inputs)


def make_probe(
    stream: Stream, batch: Batch, credit: list[Tensor] | None, loss_fn: LossFn, rng: torch.Generator
) -> Probe:
    """stream: on the float64 copy; credit: as read from the network itself, or None; rng: draws the random control."""
    inputs, y = doubled(batch[0]), batch[1]
    done = reference_pass(stream, inputs, y, loss_fn)
    credits = with_controls(credit, done.g, rng)
    return Probe(inputs, y, done.hiddens, done.losses, resolution(done.losses, done.logits), credits)


def with_controls(credit: list[Tensor] | None, g: list[Tensor], rng: torch.Generator) -> dict[str, list[Tensor]]:
    """The audited credit (where there is one) beside its controls: the reference, and N(0, 1)."""
    credits = {} if credit is None else {"credit": [a.double() for a in credit]}
    credits["reference"] = [each.double() for each in g]
    credits["random"] = [torch.randn(each.shape, generator=rng).to(each.double()) for each in g]
    return credits


def resolution(losses: Tensor, logits: Tensor) -> Array:
    """[B], [B, C] -> [B]. Rounding of a loss is relative to its logits too: a large logit makes a small loss coarse."""
    size = torch.maximum(losses.abs(), logits.abs().reshape(len(logits), -1).amax(1)).clamp_min(1.0)
    array: Array = (RESOLUTION_STEPS * torch.finfo(losses.dtype).eps * size.double()).cpu().numpy()
    return array


def displaced(stream: Stream, layer: int, h: Tensor, delta: Tensor) -> Tensor:
    """m copies of each native h_l [b, ...], moved by delta [b, m, d_l] where it is read: native [b * m, ...].

    Where it is read: at the read token, at all tokens alike (mean), or everywhere.
    """
    h = _samples_first(stream, h).unsqueeze(1)
    if len(stream.shapes[layer]) == 2 and stream.read in ("cls", "last", "mean"):
        if stream.read == "mean":
            moved = h + delta.unsqueeze(2)
        else:
            moved = h.repeat_interleave(delta.shape[1], 1)
            moved[:, :, 0 if stream.read == "cls" else -1] += delta
    else:
        moved = h + delta.reshape(*delta.shape[:2], *h.shape[2:])
    return _samples_first(stream, moved.flatten(0, 1))


def _samples_first(stream: Stream, h: Tensor) -> Tensor:
    """[T, B, d] <-> [B, T, d] where the model keeps its batch second; its own inverse."""
    return h.transpose(0, stream.batch_dim) if stream.batch_dim and h.dim() > 2 else h


def chunks(stream: Stream, probe: Probe, copies: int) -> Iterator[slice]:
    """Slices of the samples of a probe such that `copies` of each fit into one run at every layer."""
    n = len(probe.y)
    largest = max(h.numel() // n for h in probe.hiddens)
    if not isinstance(stream, InterfaceStream):  # the whole network runs, from its inputs on
        largest = max([largest, *(t.numel() // n for t in _tensors(probe.inputs, n))])
    step = max(1, CHUNK // max(1, largest * copies))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _tensors(inputs: Any, n: int) -> list[Tensor]:
    found: list[Tensor] = []
    map_samples(inputs, n, found.append)
    return found


def losses_after(stream: Stream, layer: int, probe: Probe, part: slice, delta: Tensor, loss_fn: LossFn) -> Tensor:
    """Losses [b, m] of the samples `part` after h_l moves by delta [b, m, d_l]."""
    b, m = delta.shape[:2]
    h = _samples_first(stream, _samples_first(stream, probe.hiddens[layer])[part])
    h = displaced(stream, layer, h, delta)
    inputs = None
    if not isinstance(stream, InterfaceStream):
        inputs = map_samples(probe.inputs, len(probe.y), lambda t: t[part].repeat_interleave(m, 0))
    with torch.no_grad():
        return loss_fn(stream.logits_from(layer, h, inputs), probe.y[part].repeat_interleave(m, 0)).view(b, m)


def layer_means(
    rows: Sequence[Sequence[Array]], exact_layers: tuple[int, ...], counting: tuple[int, ...] | None = None
) -> LayerMeans:
    """rows[l]: arrays of per-sample values, NaN where not measurable; counting: layers of the deep mean (None: all)."""
    values = [np.concatenate(row) if row else np.empty(0) for row in rows]  # a layer that was not asked for
    finite = [v[np.isfinite(v)] for v in values]
    means = tuple(mean_or_none(v) for v in values)
    deep = concentration(means, exact_layers, counting)
    return LayerMeans(
        mean=means,
        std=tuple(float(v.std(ddof=1)) if len(v) > 1 else None for v in finite),
        measurable=tuple(map(len, finite)),
        deep_mean=deep.deep_mean,
        deep_mean_without_exact=deep.deep_mean_without_exact,
        deep_mean_all_layers=deep.deep_mean_all_layers,
    )
