"""The proof one step at a time: about (n - 1) log2(L) samples through a network where the proof layer by layer takes
3 (L + 1) n.

It only ever says yes: where a step does not come out as foretold, the proof layer by layer decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from creditscope.measure.loss import LossFn, loss_change
from creditscope.measure.proof.geometry import direction, norms, rows, scaled
from creditscope.stream.batches import map_samples
from creditscope.stream.hooks import HookedStream
from creditscope.stream.interface import ROUNDING, Stream, difference
from creditscope.stream.ranks import recover

SAME = 0.1
"""Of the rounding of a dtype: a step from the same state gives the same state."""
ALONG = 3.0
"""Of the direction of one step: the part along g, in deviations of what a drawn one has along g. What is missing in g, in a
direction of its own, is then seen in states of any width."""
AGREE = 8
"""Two finite differences agree where they differ by so many times less than they do from what g foretells."""
COMMON = 0.1
"""Of what rounding may make of a change: what it commonly makes."""
ROUNDED = 100
"""A change below so many rounding steps is not measurable."""
SEED = 20261117


def codes(layers: int) -> Tensor:
    """[rows, layers] of True and False: any two layers differ in some row, and every layer is True in some and False in some.

    The layers are numbered in binary, so that one with a False turned into True is a later one, or none: a layer differs from
    every earlier one in some row beside any one of its Falses.
    """
    numbers = torch.arange(1, layers + 1)
    return torch.stack([(numbers >> k) % 2 == 1 for k in range((layers + 1).bit_length())])


@torch.no_grad()
def step_errors(
    stream: Stream, example: Any, n: int, states: list[Tensor], own: Tensor, slope: Slope | None = None
) -> list[float] | None:
    """Does h_{l+1} follow from h_l alone, whatever else the model was given? For samples that do not influence each other.

    In runs of the last sample, block l of a row is given h_l of another sample (where the row's code says so) or of the last
    one; each step must give that sample's next state, and the readout its logits. A step that takes anything from elsewhere (an
    input, a state that was kept, what an earlier block left behind) meets a row in which that belongs to the other sample. Every
    sample takes its turn as the other one: two of them may agree in a mask, or altogether.
    Returns the relative error of each step l = 0..L; None: a step does not come out, or the stream has no steps apart.

    slope: of the last sample; in the first of the runs it has one of the rows in which a step is given that sample's state.
    """
    if not isinstance(stream, HookedStream) or not stream.apart:
        return None
    most = SAME * ROUNDING.get(own.dtype, ROUNDING[torch.float32])
    errors = [0.0] * (stream.depth + 2)
    for k in range(n - 1):
        found = _errors_of_pair(stream, example, n, k, states, own, None if k else slope)
        if found is None:
            return None
        errors = [max(each) for each in zip(errors, found, strict=True)]
    return errors[1:] if max(errors) <= most else None


def _steps(
    stream: HookedStream, entering: Sequence[Tensor], onward: Sequence[Tensor], inputs: Any
) -> tuple[list[Tensor], Tensor] | None:
    """None: the model does not run so (it may take batches of some sizes only)."""
    try:
        return stream.steps(entering, onward, inputs)
    except Exception:  # it is the user's code: anything may come, and the proof layer by layer tells it
        recover(stream.model)
        return None


def _errors_of_pair(
    stream: HookedStream, example: Any, n: int, k: int, states: list[Tensor], own: Tensor, slope: Slope | None
) -> list[float] | None:
    """Of h_0 as the model makes it, then of each step l = 0..L, for sample k in runs of the last one."""
    of_other = codes(stream.depth + 1)
    dim, size = stream.batch_dim, len(of_other)

    def chosen(row: Tensor, t: Tensor, dim: int) -> Tensor:
        return torch.cat([t.narrow(dim, k if bool(one) else n - 1, 1) for one in row], dim)

    entering = [chosen(of_other[:, layer], h, dim) for layer, h in enumerate(states)]
    onward = [h.narrow(dim, n - 1, 1).repeat_interleave(size, dim) for h in states]
    run = map_samples(example, n, lambda t: t[n - 1 : n].repeat_interleave(size, 0))
    moved = (~of_other).int().argmax(0).tolist()
    if slope is not None:
        for row, h, ahead in zip(moved, entering, slope.ahead(), strict=True):
            h.narrow(dim, row, 1).copy_(ahead)
    ran = _steps(stream, entering, onward, run)
    if ran is None:
        return None
    given, logits = ran
    wanted = [chosen(of_other[:, layer], h, dim) for layer, h in enumerate(states[1:])]
    ends = {row: k if bool(one) else n - 1 for row, one in enumerate(of_other[:, -1])}
    if slope is not None:
        for t, each, row in zip(wanted, given[1:], moved, strict=False):
            ahead = each.narrow(dim, row, 1)
            slope.add(ahead, t.narrow(dim, row, 1).clone())
            t.narrow(dim, row, 1).copy_(ahead)  # it is foretold along v alone
        slope.add(logits[moved[-1]].unsqueeze(0), own[n - 1 :][:1])
        del ends[moved[-1]]
    last = max(difference(logits[row], own[sample]) for row, sample in ends.items())
    return [*(difference(a, b) for a, b in zip(given, [onward[0], *wanted], strict=True)), last]


class Slope:
    """Is g_l the gradient through step l? <g_l, v> against a finite difference of <g_{l+1}, h_{l+1}> (at L: of the loss) along v.

    On one sample; where it holds at every step, it holds for the whole way.
    """

    def __init__(
        self,
        stream: HookedStream,
        sample: int,
        y: Tensor,
        loss_fn: LossFn,
        states: Sequence[Tensor],
        grads: Sequence[Tensor],
        step: float,
        draw: int = 0,
    ) -> None:
        """sample: its number among y, states and gradients; step: relative to ‖h_l‖; draw: which direction is drawn."""
        dim, rng = stream.batch_dim, torch.Generator().manual_seed(SEED + draw)
        self.stream, self.loss_fn, self.sample, self.label = stream, loss_fn, sample, y[sample : sample + 1]
        self.states = [t.narrow(dim, sample, 1) for t in states]
        self.grads = [t.narrow(dim, sample, 1) for t in grads]
        self.directions = [direction(stream, g, rng, ALONG / g.numel() ** 0.5) for g in self.grads]
        self.lengths = [step * norms(stream, h) for h in self.states]
        self.changes: list[float] = []
        self.resolutions: list[float] = []
        """What rounding may make of a change."""

    def ahead(self, sign: int = 1) -> Iterator[Tensor]:
        """h_l one length along v, l = 0..L."""
        for h, v, length in zip(self.states, self.directions, self.lengths, strict=True):
            yield h + scaled(self.stream, v, sign * length)

    def add(self, ahead: Tensor, behind: Tensor, apart: int = 1) -> None:
        """What the next step (l = 0..L in turn) gave from two states that are so many lengths apart: next states, or logits."""
        layer = len(self.changes)
        if layer < self.stream.depth:
            one, other, g = (rows(self.stream, t).double() for t in (ahead, behind, self.grads[layer + 1]))
            change, rounded = (g * (one - other)).sum(), (g * one).norm()
        else:
            change, rounded = loss_change(self.loss_fn, ahead, behind, self.label)
        between = apart * self.lengths[layer][0]
        self.changes.append(float(change / between))
        self.resolutions.append(float(ROUNDED * torch.finfo(ahead.dtype).eps * rounded / between))

    def errors(self) -> list[float] | None:
        """Relative error of each l = 0..L; None: something is zero or not finite."""
        found = []
        for layer, change in enumerate(self.changes):
            foretold = self.foretold(layer)
            size = max(abs(change), abs(foretold))
            error = abs(change - foretold) / size if size > 0 else float("nan")
            if not error < float("inf"):
                return None
            found.append(error)
        return found

    def wrong(self, most: float) -> set[int]:
        """Layers whose error is above `most`, by more than rounding makes."""
        found = self.errors() or []
        return {k for k, e in enumerate(found) if e > most and abs(self.changes[k]) * most > self.resolutions[k]}

    def contradicted(self, again: Slope, most: float) -> dict[int, float]:
        """Layers at which this slope and that of another length agree with each other, and with g_l not: by a relative `most` and
        by more than rounding commonly makes; and how far they are from it."""
        found = {}
        for k, (one, other) in enumerate(zip(self.changes, again.changes, strict=True)):
            foretold = self.foretold(k)
            off = min(abs(one - foretold), abs(other - foretold))
            least = max(most * abs(foretold), COMMON * self.resolutions[k], COMMON * again.resolutions[k])
            if off > least and self.agrees(again, k, off):
                found[k] = off
        return found

    def agrees(self, again: Slope, layer: int, off: float) -> bool:
        """With the slope of another length, if g_l is so far off."""
        return abs(self.changes[layer] - again.changes[layer]) * AGREE < off

    def foretold(self, layer: int) -> float:
        """<g_l, v>."""
        g, v = (rows(self.stream, t[layer]).double() for t in (self.grads, self.directions))
        return float((g * v).sum())


@torch.no_grad()
def slope_errors_ahead(slope: Slope, example: Any, logits: Tensor) -> list[float] | None:
    """Relative error of each l = 0..L in a run of the one sample of `example`, whose logits are known, to one side of h_l; None:
    something is zero or not finite, or the model makes another h_0 of the sample."""
    ran = _steps(slope.stream, list(slope.ahead()), slope.states, example)
    if ran is None or difference(ran[0][0], slope.states[0]) > ROUNDING.get(logits.dtype, ROUNDING[torch.float32]):
        return None
    for ahead, h in zip(ran[0][1:], slope.states[1:], strict=True):
        slope.add(ahead, h)
    slope.add(ran[1], logits)
    return slope.errors()


@torch.no_grad()
def slope_errors(slope: Slope, example: Any, n: int) -> list[float] | None:
    """Relative error of each l = 0..L in a run of the sample, from both sides of h_l; None: something is zero or not finite."""
    stream, dim, k = slope.stream, slope.stream.batch_dim, slope.sample
    entering = [torch.cat(pair, dim) for pair in zip(slope.ahead(), slope.ahead(-1), strict=True)]
    twice = map_samples(example, n, lambda t: t[k : k + 1].repeat_interleave(2, 0))
    ran = _steps(stream, entering, [t.repeat_interleave(2, dim) for t in slope.states], twice)
    if ran is None:
        return None
    given, logits = ran
    for t in given[1:]:
        slope.add(t.narrow(dim, 0, 1), t.narrow(dim, 1, 1), 2)
    slope.add(logits[:1], logits[1:], 2)
    return slope.errors()
