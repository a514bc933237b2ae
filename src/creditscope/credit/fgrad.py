"""Forward gradient (Baydin et al. 2022; in the space of activities: Ren et al. 2023)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from creditscope.credit.base import CreditBatch, Options, as_interface
from creditscope.credit.bridge_net import same_buffers
from creditscope.credit.random import Drawing, DrawOptions
from creditscope.stream.devices import moved
from creditscope.stream.interface import InterfaceStream, Stream


class FGradOptions(DrawOptions):
    draws: int = Field(1, ge=1, le=10_000)
    """Directions per sample and layer; their estimates are averaged."""


class ForwardGradient(Drawing):
    """a_l = (g_l · v) v with v ~ N(0, 1) of its own for every sample and layer; g_l · v by forward-mode differentiation.

    Unbiased. With one draw its cosine to g_l is |N(0, 1)| / √d_l on average √(2 / π d_l): .05 at d = 256. The directions follow
    from the rule's key and the batch, so that measuring changes nothing.
    """

    name = "fgrad"
    summary = "forward gradient: the directional derivative along a random direction, times that direction (unbiased)"
    uses_norm = False
    site = "output"
    runs_parts = True
    Options: ClassVar[type[Options]] = FGradOptions

    @torch.no_grad()
    def credit(self, batch: CreditBatch) -> list[Tensor]:
        stream, rng, n = as_interface(batch.stream, self.name), self.generator(batch), self.options.draws
        credits = []
        with same_buffers(stream.model):
            for layer, width in enumerate(stream.widths):
                total = batch.logits.new_zeros(len(batch.y), width)
                for _ in range(n):
                    v = moved(torch.randn(len(batch.y), width, generator=rng), batch.logits)
                    total += self.slope(stream, batch, layer, v).unsqueeze(1) * v
                credits.append(total / n)
        return credits

    def slope(self, stream: InterfaceStream, batch: CreditBatch, layer: int, v: Tensor) -> Tensor:
        """g_l · v, [B]."""
        with forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):  # the other attention kernels know no forward mode
            h = forward_ad.make_dual(batch.hiddens[layer].detach(), native(stream, v, layer))
            loss = F.cross_entropy(stream.logits_from(layer, h, batch.inputs), batch.y, reduction="none")
            return forward_ad.unpack_dual(loss).tangent


def native(stream: Stream, v: Tensor, layer: int) -> Tensor:
    """v [B, d_l] as a change of h_l in its native shape: of the read token, or of all tokens alike (mean)."""
    shape = stream.shapes[layer]
    if len(shape) != 2 or stream.read not in ("cls", "last", "mean"):
        return v.reshape(len(v), *shape)
    if stream.read == "mean":
        return v.unsqueeze(1).expand(-1, *shape).contiguous()
    out = v.new_zeros(len(v), *shape)
    out[:, 0 if stream.read == "cls" else -1] = v
    return out
