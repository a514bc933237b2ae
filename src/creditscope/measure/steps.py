"""The proof one step at a time: about 2 log2(L) + 10 samples through a network where the proof layer by layer takes 3 (L + 1) n.

It only ever says yes: where a step does not come out as foretold, the proof layer by layer decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from creditscope.stream.batches import map_samples
from creditscope.stream.hooks import HookedStream
from creditscope.stream.interface import ROUNDING, Stream, difference

SAME = 0.1
"""Of the rounding of a dtype: a step from the same state gives the same state."""
TINY = 1e-305
"""What a norm is at the least where it is divided by."""
SEED = 20261117


def codes(layers: int) -> Tensor:
    """[rows, layers] of True and False: any two layers differ in some row, and every layer is True in some."""
    numbers = torch.arange(1, layers + 1)
    return torch.stack([(numbers >> k) % 2 == 1 for k in range(layers.bit_length())])


@torch.no_grad()
def step_errors(stream: Stream, example: Any, n: int, states: list[Tensor], own: Tensor) -> list[float] | None:
    """Does h_{l+1} follow from h_l alone, whatever else the model was given? For samples that do not influence each other.

    In runs of the last sample, block l of a row is given h_l of another sample (where the row's code says so) or of the last
    one; each step must give that sample's next state, and the readout its logits. A step that takes anything from elsewhere (an
    input, a state that was kept, what another block left behind) meets a row in which that belongs to the other sample. Every
    sample takes its turn as the other one: two of them may agree in a mask, or altogether.
    Returns the relative error of each step l = 0..L; None: a step does not come out, or the stream has no steps apart.
    """
    if not isinstance(stream, HookedStream) or not stream.apart:
        return None
    most = SAME * ROUNDING.get(own.dtype, ROUNDING[torch.float32])
    found = [_errors_of_pair(stream, example, n, k, states, own) for k in range(n - 1)]
    errors = [max(each) for each in zip(*found, strict=True)]
    return errors[1:] if max(errors) <= most else None


def _errors_of_pair(
    stream: HookedStream, example: Any, n: int, k: int, states: list[Tensor], own: Tensor
) -> list[float]:
    """Of h_0 as the model makes it, then of each step l = 0..L, for sample k in runs of the last one."""
    of_other = codes(stream.depth + 1)
    dim, size = stream.batch_dim, len(of_other)

    def chosen(row: Tensor, t: Tensor, dim: int) -> Tensor:
        return torch.cat([t.narrow(dim, k if bool(one) else n - 1, 1) for one in row], dim)

    entering = [chosen(of_other[:, layer], h, dim) for layer, h in enumerate(states)]
    onward = [h.narrow(dim, n - 1, 1).repeat_interleave(size, dim) for h in states]
    run = map_samples(example, n, lambda t: t[n - 1 : n].repeat_interleave(size, 0))
    given, logits = stream.steps(entering, onward, run)
    wanted = [onward[0], *(chosen(of_other[:, layer], h, dim) for layer, h in enumerate(states[1:]))]
    ends = (difference(a, b) for a, b in zip(logits, chosen(of_other[:, -1], own, 0), strict=True))
    return [*(difference(a, b) for a, b in zip(given, wanted, strict=True)), max(ends)]


@torch.no_grad()
def slope_errors(
    stream: HookedStream,
    example: Any,
    y: Tensor,
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    states: Sequence[Tensor],
    grads: Sequence[Tensor],
    step: float,
) -> list[float] | None:
    """Is g_l the gradient through step l? <g_l, v> against a finite difference of <g_{l+1}, h_{l+1}> (at L: of the loss) along v.

    On the first sample; where it holds at every step, it holds for the whole way. step: relative to ‖h_l‖. Returns the relative
    error of each l = 0..L; None: something is zero or not finite.
    """
    n, dim = len(y), stream.batch_dim
    rng = torch.Generator().manual_seed(SEED)
    h = [t.narrow(dim, 0, 1) for t in states]
    g = [t.narrow(dim, 0, 1) for t in grads]
    v = [direction(stream, each, rng) for each in g]
    lengths = [step * norms(stream, each) for each in h]
    moves = [scaled(stream, each, size) for each, size in zip(v, lengths, strict=True)]
    entering = [torch.cat([a + m, a - m], dim) for a, m in zip(h, moves, strict=True)]
    twice = map_samples(example, n, lambda t: t[:1].repeat_interleave(2, 0))
    given, logits = stream.steps(entering, [t.repeat_interleave(2, dim) for t in h], twice)
    ends = loss_fn(logits, y[:1].repeat_interleave(2, 0)).double()
    errors = []
    for layer in range(stream.depth + 1):
        if layer < stream.depth:
            ahead, behind = rows(stream, given[layer + 1]).double()
            change = (rows(stream, g[layer + 1]).double()[0] * (ahead - behind)).sum()
        else:
            change = ends[0] - ends[1]
        change = change / (2 * lengths[layer][0])
        foretold = (rows(stream, g[layer]).double() * rows(stream, v[layer]).double()).sum()
        size = max(abs(float(change)), abs(float(foretold)))
        error = abs(float(change - foretold)) / size if size > 0 else float("nan")
        if not error < float("inf"):
            return None
        errors.append(error)
    return errors


# ---- per-sample geometry of native states -------------------------------------------------------------------------


def samples_first(stream: Stream, t: Tensor) -> Tensor:
    """Samples first; its own inverse."""
    return t.transpose(0, stream.batch_dim) if stream.batch_dim and t.dim() > 2 else t


def rows(stream: Stream, t: Tensor) -> Tensor:
    return samples_first(stream, t).flatten(1)


def norms(stream: Stream, t: Tensor) -> Tensor:
    """L2 norm of each sample in float64, also where squares over- or underflow."""
    each = rows(stream, t)
    found = torch.linalg.vector_norm(each, dim=1, dtype=torch.float64)
    if bool(((found > 1e-150) & (found < float("inf"))).all()):
        return found
    each = each.double()
    largest = each.abs().amax(1).clamp_min(TINY)
    return largest * (each / largest.unsqueeze(1)).norm(dim=1)


def scaled(stream: Stream, t: Tensor, factor: Tensor) -> Tensor:
    """Each sample of a native tensor times its factor [B]."""
    first = samples_first(stream, t)
    return samples_first(stream, first * factor.to(t.dtype).view(-1, *[1] * (first.dim() - 1)))


def direction(stream: Stream, g: Tensor, rng: torch.Generator) -> Tensor:
    """Unit length per sample: half along g, so that <g, v> is not small by chance, half drawn."""
    drawn = torch.randn(g.shape, generator=rng).to(g)
    v = sum((scaled(stream, t, 1 / norms(stream, t).clamp_min(TINY)) for t in (g, drawn)), torch.zeros_like(g))
    return scaled(stream, v, 1 / norms(stream, v))
