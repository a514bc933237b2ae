"""The proof one step at a time: about (n - 1) log2(L) + 3 samples through a network where the proof layer by layer takes
3 (L + 1) n.

It only ever says yes: where a step does not come out as foretold, the proof layer by layer decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
def step_errors(
    stream: Stream, example: Any, n: int, states: list[Tensor], own: Tensor, slope: Slope | None = None
) -> list[float] | None:
    """Does h_{l+1} follow from h_l alone, whatever else the model was given? For samples that do not influence each other.

    In runs of the last sample, block l of a row is given h_l of another sample (where the row's code says so) or of the last
    one; each step must give that sample's next state, and the readout its logits. A step that takes anything from elsewhere (an
    input, a state that was kept, what another block left behind) meets a row in which that belongs to the other sample. Every
    sample takes its turn as the other one: two of them may agree in a mask, or altogether.
    Returns the relative error of each step l = 0..L; None: a step does not come out, or the stream has no steps apart.

    slope: is given one row more in the first of the runs.
    """
    if not isinstance(stream, HookedStream) or not stream.apart:
        return None
    most = SAME * ROUNDING.get(own.dtype, ROUNDING[torch.float32])
    found = [_errors_of_pair(stream, example, n, k, states, own, None if k else slope) for k in range(n - 1)]
    errors = [max(each) for each in zip(*found, strict=True)]
    return errors[1:] if max(errors) <= most else None


def _errors_of_pair(
    stream: HookedStream, example: Any, n: int, k: int, states: list[Tensor], own: Tensor, slope: Slope | None
) -> list[float]:
    """Of h_0 as the model makes it, then of each step l = 0..L, for sample k in runs of the last one."""
    of_other = codes(stream.depth + 1)
    dim, size = stream.batch_dim, len(of_other)
    rows_of_run = size + (slope is not None)

    def chosen(row: Tensor, t: Tensor, dim: int) -> Tensor:
        return torch.cat([t.narrow(dim, k if bool(one) else n - 1, 1) for one in row], dim)

    entering = [chosen(of_other[:, layer], h, dim) for layer, h in enumerate(states)]
    onward = [h.narrow(dim, n - 1, 1).repeat_interleave(rows_of_run, dim) for h in states]
    run = map_samples(example, n, lambda t: t[n - 1 : n].repeat_interleave(rows_of_run, 0))
    if slope is not None:
        entering = [torch.cat([h, moved], dim) for h, moved in zip(entering, slope.ahead(), strict=True)]
    given, logits = stream.steps(entering, onward, run)
    wanted = [
        onward[0].narrow(dim, 0, size),
        *(chosen(of_other[:, layer], h, dim) for layer, h in enumerate(states[1:])),
    ]
    if slope is not None:
        still = int(of_other[:, -1].int().argmax())  # a row whose readout is given the state of sample k itself
        slope.found = slope.errors([t.narrow(dim, size, 1) for t in given], slope.states, logits[[size, still]], 1)
    ends = (difference(a, b) for a, b in zip(logits, chosen(of_other[:, -1], own, 0), strict=False))
    return [*(difference(a.narrow(dim, 0, size), b) for a, b in zip(given, wanted, strict=True)), max(ends)]


class Slope:
    """Is g_l the gradient through step l? <g_l, v> against a finite difference of <g_{l+1}, h_{l+1}> (at L: of the loss) along v.

    On the first sample; where it holds at every step, it holds for the whole way. step: relative to ‖h_l‖.
    """

    def __init__(
        self,
        stream: HookedStream,
        y: Tensor,
        loss_fn: Callable[[Tensor, Tensor], Tensor],
        states: Sequence[Tensor],
        grads: Sequence[Tensor],
        step: float,
    ) -> None:
        dim, rng = stream.batch_dim, torch.Generator().manual_seed(SEED)
        self.stream, self.loss_fn, self.label = stream, loss_fn, y[:1]
        self.states = [t.narrow(dim, 0, 1) for t in states]
        self.grads = [t.narrow(dim, 0, 1) for t in grads]
        self.directions = [direction(stream, g, rng) for g in self.grads]
        self.lengths = [step * norms(stream, h) for h in self.states]
        self.found: list[float] | None = None
        """Relative error of each l = 0..L, once it has had its row in a run; None: something is zero or not finite."""

    def ahead(self, sign: int = 1) -> Iterator[Tensor]:
        """h_l + v, one length away."""
        for h, v, length in zip(self.states, self.directions, self.lengths, strict=True):
            yield h + scaled(self.stream, v, sign * length)

    def errors(
        self, ahead: Sequence[Tensor], behind: Sequence[Tensor], logits: Tensor, apart: int
    ) -> list[float] | None:
        """ahead, behind: what the steps gave from two states of l - 1, which are so many lengths apart; logits: of both."""
        ends = self.loss_fn(logits, self.label.repeat_interleave(2, 0)).double()
        found = []
        for layer in range(self.stream.depth + 1):
            if layer < self.stream.depth:
                one, other = (rows(self.stream, each[layer + 1]).double() for each in (ahead, behind))
                change = (rows(self.stream, self.grads[layer + 1]).double() * (one - other)).sum()
            else:
                change = ends[0] - ends[1]
            change = change / (apart * self.lengths[layer][0])
            pair = (rows(self.stream, t[layer]).double() for t in (self.grads, self.directions))
            foretold = (next(pair) * next(pair)).sum()
            size = max(abs(float(change)), abs(float(foretold)))
            error = abs(float(change - foretold)) / size if size > 0 else float("nan")
            if not error < float("inf"):
                return None
            found.append(error)
        return found


@torch.no_grad()
def slope_errors(slope: Slope, example: Any, n: int) -> list[float] | None:
    """Relative error of each l = 0..L in a run of the first sample, from h_l + v and h_l - v; None: something is zero or not
    finite."""
    stream, dim = slope.stream, slope.stream.batch_dim
    entering = [torch.cat(pair, dim) for pair in zip(slope.ahead(), slope.ahead(-1), strict=True)]
    twice = map_samples(example, n, lambda t: t[:1].repeat_interleave(2, 0))
    given, logits = stream.steps(entering, [t.repeat_interleave(2, dim) for t in slope.states], twice)
    ahead, behind = ([t.narrow(dim, k, 1) for t in given] for k in (0, 1))
    return slope.errors(ahead, behind, logits, 2)


# ---- per-sample geometry of native states -------------------------------------------------------------------------


def samples_first(stream: Stream, t: Tensor) -> Tensor:
    """Samples first; its own inverse."""
    return t.transpose(0, stream.batch_dim) if stream.batch_dim and t.dim() > 2 else t


def rows(stream: Stream, t: Tensor) -> Tensor:
    return samples_first(stream, t).flatten(1)


def norms(stream: Stream, t: Tensor) -> Tensor:
    """L2 norm of each sample in float64, also where squares over- or underflow."""
    each = rows(stream, t).double()
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
