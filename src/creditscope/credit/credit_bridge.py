"""Credit Bridge: credit as the gradient of a learned value (the loss that a hidden state leads to)."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from creditscope.credit.base import CreditBatch, CreditRule, Options
from creditscope.credit.bridge_net import (
    BridgeNet,
    Learner,
    as_interface,
    condition_of,
    draw_seed,
    load_net,
    read_states,
    require_widths,
    same_buffers,
    seeded,
)
from creditscope.credit.dfa import DFA
from creditscope.stream import Stream


class CreditBridgeOptions(Options):
    width: int = Field(256, ge=1, le=65536)
    """Hidden features of V."""
    layers: int = Field(2, ge=1, le=16)
    """GELU layers of V."""
    lr: float = Field(1e-3, gt=0, le=10)
    """Step size of V's AdamW."""
    condition: Literal["none", "label", "error"] = "label"
    """What V sees beside h_l and t_l: nothing, the label y, or e."""
    ema: float = Field(0.99, ge=0, lt=1)
    """Of the target copy, per step."""
    noise: float = Field(0.1, ge=0, le=10)
    """Standard deviation of ξ in units of each sample's RMS(h_l)."""
    draws: int = Field(1, ge=1, le=64)
    """K: with more than one, V(h_l) learns the soft-min over K draws of the target."""
    temperature: float = Field(1.0, gt=0)
    """Of the soft-min."""
    grad_match: float = Field(1.0, ge=0)
    """Weight of the terminal gradient matching."""
    statistics: bool = True
    warmup: float = Field(0.2, ge=0, le=1)
    """Share of the epochs whose credit is DFA's."""


class CreditBridge(CreditRule):
    name = "cb"
    summary = "Credit Bridge: gradient of a learned value of h_l; DFA credit for the first 20 % of the epochs"
    Options = CreditBridgeOptions
    options: CreditBridgeOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.widths: list[int] = []
        self.n_classes = 0
        self.learner: Learner | None = None
        self.target: BridgeNet | None = None
        self.dfa = DFA()
        self.warming = self.options.warmup > 0
        self.noise_seed = 0
        self.steps = 0

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        with seeded(generator):
            self._build(list(stream.widths), n_classes)
        self.dfa.setup(stream, n_classes, generator)
        self.noise_seed = draw_seed(generator)

    def _build(self, widths: list[int], n_classes: int) -> None:
        o = self.options
        self.widths, self.n_classes = widths, n_classes
        net = BridgeNet([w + 2*o.statistics for w in widths], 1, o.width, o.layers, n_classes, o.condition)
        self.target = copy.deepcopy(net).requires_grad_(False)
        self.learner = Learner(net, o.lr)

    def attach(self, stream: Stream) -> None:
        require_widths(self.name, self.widths, stream.widths)

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        self.warming = epoch - 1 < self.options.warmup * epochs - 1e-9

    def value(self, net: BridgeNet, states, layers, condition) -> Tensor:
        """[len(layers), B]."""
        xs = [F.layer_norm(h, h.shape[1:]) for h in states]
        if self.options.statistics:
            xs = [torch.cat([x, *stats(h)], 1) for x, h in zip(xs, states)]
        return net(xs, layers, condition).squeeze(-1)

    def learn(self, batch: CreditBatch) -> None:
        o = self.options
        stream = as_interface(batch.stream, self.name)
        depth = stream.depth
        generator = torch.Generator().manual_seed(self.noise_seed + self.steps)
        cond = condition_of(batch, o.condition)
        with torch.no_grad(), same_buffers(stream.model):
            noisy, target = [], []
            for h in batch.hiddens:
                dims = tuple(range(1, h.dim()))
                rms = h.square().mean(dims, keepdim=True).sqrt()
                noisy.append(h + o.noise * rms * torch.randn(h.shape, generator=generator))
            nxt = [stream.read_state(stream.advance(l, noisy[l])) for l in range(depth)]
            tv = self.value(self.target, nxt, range(1, depth + 1), cond)
            tl = F.cross_entropy(stream.readout(noisy[-1]), batch.y, reduction="none")
            target = torch.cat([tv, tl[None]])
            states = [stream.read_state(h) for h in noisy]
        net = self.learner.net
        with torch.enable_grad():
            v = self.value(net, states, range(depth + 1), cond)
            loss = (v - target).square().mean()
            if o.grad_match:
                top = read_states(batch)[-1].requires_grad_()
                (slope,) = torch.autograd.grad(self.value(net, [top], [depth], cond).sum(), top, create_graph=True)
                g = batch.output_grad
                loss = loss + o.grad_match * (slope - g).square().sum() / (g.square().sum() + 1e-12)
            self.learner.step(loss)
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(net.parameters()), 1 - o.ema)
        self.steps += 1

    def credit(self, batch: CreditBatch) -> Sequence[Tensor]:
        if self.warming:
            return self.dfa.credit(batch)
        with torch.enable_grad():
            states = [h.requires_grad_() for h in read_states(batch)]
            v = self.value(self.learner.net, states, range(len(states)), condition_of(batch, self.options.condition))
            credits = torch.autograd.grad(v.sum(), states)
        return [a.to(batch.hiddens[0].dtype) for a in credits]


def stats(h):
    std = h.std(1, correction=0, keepdim=True) + 1e-8
    return h.mean(1, keepdim=True) / std.detach(), std.log()
