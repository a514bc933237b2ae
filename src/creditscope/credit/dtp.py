"""DTP: difference target propagation (Lee et al. 2015) with learned inverses."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from creditscope.credit.base import CreditBatch, Options, as_interface
from creditscope.credit.bridge_net import Learning, draw_seed, made, perturbed, read_states, same_buffers
from creditscope.stream.interface import Stream


class DTPOptions(Options):
    width: int = Field(256, ge=1, le=65536)
    """Hidden features of each inverse."""
    lr: float = Field(1e-3, gt=0, le=10)
    """Step size of the inverses' AdamW."""
    noise: float = Field(0.1, ge=0, le=10)
    """Standard deviation of ξ in units of each sample's RMS(h_l)."""
    step: float = Field(0.1, gt=0, le=1e3)
    """η: how far the target of h_L is set against the gradient."""


class Inverse(nn.Module):
    """G_l: h_{l+1} -> h_l. Residual stream: the identity plus a network that starts near zero; plain: the network alone."""

    def __init__(self, above: int, below: int, width: int, skip: bool) -> None:
        super().__init__()
        self.inner, self.outer, self.skip = nn.Linear(above, width), nn.Linear(width, below), skip
        if skip:
            nn.init.normal_(self.outer.weight, std=0.01)
            nn.init.zeros_(self.outer.bias)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = self.outer(nn.functional.gelu(self.inner(h)))
        return h + out if self.skip else out


class DTP(Learning):
    """t_L = h_L - η dLoss/dh_L, t_l = h_l + G_l(t_{l+1}) - G_l(h_{l+1}); a_l = (h_l - t_l) / η. Block l learns from a_{l+1}.

    G_l is trained on ‖G_l(F_l(h_l + ξ)) - (h_l + ξ)‖², F_l the step of the stream to h_{l+1}. With exact inverses and small η
    a_l = J^{-1} a_{l+1}, J the Jacobian of F_l: on a linear network the target of Gauss-Newton, where BP has Jᵀ a_{l+1}.
    """

    name = "dtp"
    summary = "difference target propagation: targets sent down through learned inverses"
    uses_norm = False
    site = "output"
    has_feedback = True
    exact_at_top = True
    runs_parts = True
    numbers = ("widths", "skip", "seed", "steps")
    Options = DTPOptions
    options: DTPOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.skip = False

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        super().setup(stream, stream.kind != "plain", generator)
        self.seed = draw_seed(generator)

    def network(self, widths: list[int], size: int) -> nn.Module:
        """`size`: whether the inverses have a skip."""
        self.widths, self.skip = widths, bool(size)
        pairs = zip(widths[1:], widths[:-1], strict=True)
        return nn.ModuleList(Inverse(above, below, self.options.width, self.skip) for above, below in pairs)

    def inverses(self) -> list[nn.Module]:
        return list(made(self.learner, self.name).net.children())

    def learn(self, batch: CreditBatch) -> None:
        stream, losses = as_interface(batch.stream, self.name), list[Tensor]()
        generator = self.step_generator()
        self.steps += 1
        for layer, inverse in enumerate(self.inverses()):
            noisy = perturbed(batch.hiddens[layer].detach(), self.options.noise, generator)
            with torch.no_grad(), same_buffers(stream.model):
                above = stream.read_state(stream.advance(layer, noisy)).float()
            wanted = stream.read_state(noisy).float()
            with torch.enable_grad():
                losses.append((inverse(above) - wanted).square().mean() / wanted.square().mean().clamp_min(1e-12))
        made(self.learner, self.name).step(sum(losses[1:], losses[0]))

    @torch.no_grad()
    def credit(self, batch: CreditBatch) -> list[Tensor]:
        top, states, step = batch.exact_top(self.name), read_states(batch), self.options.step
        credits = [top]
        target = states[-1] - step * top.float()
        for layer, inverse in reversed(list(enumerate(self.inverses()))):
            target = states[layer] + inverse(target) - inverse(states[layer + 1])
            credits.append(((states[layer] - target) / step).to(top.dtype))
        return credits[::-1]
