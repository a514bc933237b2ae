"""Credit Bridge: credit as the gradient of a learned value, the loss that a hidden state leads to."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from creditscope.credit.base import CreditBatch, Options, as_interface
from creditscope.credit.bridge_net import (
    BridgeNet,
    Learning,
    condition_of,
    draw_seed,
    load_net,
    made,
    perturbed,
    read_states,
    same_buffers,
)
from creditscope.credit.dfa import DFA
from creditscope.errors import CreditscopeError
from creditscope.stream.interface import InterfaceStream, Stream

REMOVED = 2
"""What LayerNorm takes out of h_l and V is given beside it: mean and length."""


class CreditBridgeOptions(Options):
    width: int = Field(256, ge=1, le=65536)
    """Hidden features of V."""
    layers: int = Field(2, ge=1, le=16)
    """GELU layers of V."""
    lr: float = Field(3e-3, gt=0, le=10)
    """Step size of V's AdamW."""
    condition: Literal["none", "label", "error"] = "label"
    """What V sees beside h_l and t_l: nothing, the label y, or e."""
    ema: float = Field(0.95, ge=0, lt=1)
    """Share of the old target copy that is kept at each step."""
    noise: float = Field(0.3, ge=0, le=10)
    """Standard deviation of ξ in units of each sample's RMS(h_l)."""
    draws: int = Field(1, ge=1, le=64)
    """K: with more than one, the targets are soft-minima over K draws of ξ."""
    temperature: float = Field(1.0, gt=0, le=1e6)
    """Of the soft-minimum."""
    grad_match: float = Field(1.0, ge=0, le=1e6)
    """Weight of the terminal gradient matching."""
    warmup: float = Field(0.2, ge=0, le=1)
    """Share of the scheduled epochs in which the credit is DFA's."""


class CreditBridge(Learning):
    """a_l = gradient over h_l of V(h_l, t_l, y), the learned value (predicted loss) of a hidden state.

    V sees LayerNorm(h_l), the mean and log standard deviation that LayerNorm takes out (without them V could not
    represent the radial part of a gradient), a depth embedding and the label. The label is needed: without it the
    gradient is that of E[loss | h_l], which holds nothing about y. With e in its place V can ignore h_l, since
    loss = -log(1 + e_y); so `error` is offered and is not the default.

    Training, on each batch: V(h_l + ξ) is regressed on V̄(h_l + ξ + f_l(h_l + ξ)) at layer l+1 and, at l = L, on the loss of
    h_L + ξ itself; V̄ is an exponential moving average of V. With K > 1 draws V(h_l) is regressed on the soft-minimum
    -τ log mean_k exp(-target_k / τ). Added is `grad_match` times ‖grad V(h_L) - g_L‖² / ‖g_L‖², g_L the exact output gradient.
    The blocks are only run forward. During the warm-up V learns already, while the credit (also when measured) is that of DFA.
    """

    name = "cb"
    has_feedback = True
    summary = "Credit Bridge: gradient of a learned value of h_l; DFA credit for the first 20 % of the epochs"
    numbers = ("widths", "n_classes", "noise_seed", "steps", "warming")
    Options = CreditBridgeOptions
    options: CreditBridgeOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.target = torch.nn.Module()
        self.dfa = DFA()
        self.warming = self.options.warmup > 0
        """Whether the credit is DFA's for now."""
        self.noise_seed = 0

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        super().setup(stream, n_classes, generator)
        self.dfa.setup(stream, n_classes, generator)
        self.noise_seed = draw_seed(generator)

    def network(self, widths: list[int], size: int) -> nn.Module:
        o = self.options
        self.widths, self.n_classes = widths, size
        net = BridgeNet([d + REMOVED for d in widths], 1, o.width, o.layers, size, o.condition).float()
        self.target = copy.deepcopy(net).requires_grad_(False)
        return net

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        self.warming = epoch - 1 < self.options.warmup * epochs - 1e-9

    def learn(self, batch: CreditBatch) -> None:
        net = made(self.learner, self.name).net
        if batch.output_grad is None:
            raise CreditscopeError("credit rule 'cb' learns from the exact gradient at h_L and none was given")
        layers, label = range(len(self.widths)), condition_of(batch, self.options.condition)
        states, targets = self._regression(batch, label)
        with torch.enable_grad():
            loss = (value(net, states, layers, label) - targets).square().mean()
            if self.options.grad_match:
                top = read_states(batch)[-1].requires_grad_()
                v = value(net, [top], layers[-1:], label)
                (slope,) = torch.autograd.grad(v.sum(), top, create_graph=True)
                loss = loss + self.options.grad_match * relative_error(slope, batch.output_grad.float())
            made(self.learner, self.name).step(loss)
        move_average(self.target, net, self.options.ema)
        self.steps += 1

    @torch.no_grad()
    def _regression(self, batch: CreditBatch, label: Tensor | None) -> tuple[list[Tensor], Tensor]:
        """Where V is evaluated ([B, d_l] for l = 0..L) and what it is to be there ([L+1, B])."""
        o, stream = self.options, as_interface(batch.stream, self.name)
        # a generator of this step alone: a resumed run draws the same noise
        generator = torch.Generator().manual_seed(self.noise_seed + self.steps)
        draws = []
        with same_buffers(stream.model):
            for _ in range(o.draws):
                noisy = [perturbed(h, o.noise, generator) for h in batch.hiddens]
                draws.append(self._targets(stream, noisy, batch.y, label))
        if o.draws == 1:
            return [stream.read_state(h).float() for h in noisy], draws[0]
        return read_states(batch), soft_minimum(torch.stack(draws), o.temperature)

    def _targets(self, stream: InterfaceStream, noisy: list[Tensor], y: Tensor, label: Tensor | None) -> Tensor:
        ahead = [stream.read_state(stream.advance(layer, noisy[layer])).float() for layer in range(stream.depth)]
        values = value(self.target, ahead, range(1, stream.depth + 1), label)
        loss = F.cross_entropy(stream.readout(noisy[-1]).float(), y, reduction="none")
        return torch.cat([values, loss.unsqueeze(0)])

    def credit(self, batch: CreditBatch) -> Sequence[Tensor]:
        if self.warming:
            return self.dfa.credit(batch)
        net = made(self.learner, self.name).net
        with torch.enable_grad():
            states = [h.requires_grad_() for h in read_states(batch)]
            v = value(net, states, range(len(states)), condition_of(batch, self.options.condition))
            credits = torch.autograd.grad(v.sum(), states)
        return [a.to(batch.hiddens[0].dtype) for a in credits]

    def redraw(self, stream: Stream, n_classes: int, generator: torch.Generator) -> CreditBridge:
        fresh = cast(CreditBridge, super().redraw(stream, n_classes, generator))
        fresh.warming = self.warming
        return fresh

    def state(self) -> dict[str, Tensor]:
        if self.learner is None:
            return {}
        target = {f"target.{name}": t.clone() for name, t in self.target.state_dict().items()}
        feedback = {f"dfa.{name}": b.clone() for name, b in self.dfa.state().items()}
        return {**target, **feedback, **super().state()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        super().load(state)
        load_net(self.target, state, "target.")
        self.dfa.load({f"B.{layer}": state[f"dfa.B.{layer}"] for layer in range(len(self.widths))})


def value(net: torch.nn.Module, states: Sequence[Tensor], layers: Sequence[int], label: Tensor | None) -> Tensor:
    """V of states[i] ([B, d_l], l = layers[i]) -> [len(layers), B]."""
    out: Tensor = net([normalised(h) for h in states], layers, label)
    return out.squeeze(-1)


def normalised(h: Tensor) -> Tensor:
    """[LayerNorm(h), mean / std, log std]: [B, d] -> [B, d + 2]."""
    std = h.std(dim=1, correction=0, keepdim=True) + 1e-8
    mean = h.mean(dim=1, keepdim=True) / std
    return torch.cat([F.layer_norm(h, h.shape[1:]), mean, std.log()], dim=1)


@torch.no_grad()
def move_average(average: torch.nn.Module, net: torch.nn.Module, keep: float) -> None:
    """average <- keep * average + (1 - keep) * net, for every parameter."""
    for old, new in zip(average.parameters(), net.parameters(), strict=True):
        old.lerp_(new, 1 - keep)


def relative_error(slope: Tensor, g: Tensor) -> Tensor:
    """‖slope - g‖² / ‖g‖² over the batch."""
    return (slope - g).square().sum() / (g.square().sum() + torch.finfo(g.dtype).tiny)


def soft_minimum(targets: Tensor, temperature: float) -> Tensor:
    """-τ log mean_k exp(-x_k / τ) over the first dimension."""
    return -temperature * (torch.logsumexp(-targets / temperature, dim=0) - math.log(len(targets)))
