"""Node perturbation (Werfel, Xie and Seung 2005), layer by layer."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from creditscope.credit.base import CreditBatch, Options
from creditscope.credit.fgrad import FGradOptions, ForwardGradient, native
from creditscope.stream.interface import InterfaceStream


class NodePertOptions(FGradOptions):
    sigma: float = Field(0.01, gt=0, le=1e3)
    """Size of the perturbation."""


class NodePerturbation(ForwardGradient):
    """a_l = (loss(h_l + σ v) - loss(h_l)) / σ · v with v ~ N(0, 1): the forward gradient with a finite difference for g_l · v."""

    name = "nodepert"
    summary = "node perturbation: the change of the loss under noise at a layer, times that noise"
    needs_float64 = True
    Options: ClassVar[type[Options]] = NodePertOptions

    def slope(self, stream: InterfaceStream, batch: CreditBatch, layer: int, v: Tensor) -> Tensor:
        sigma, h = self.options.sigma, batch.hiddens[layer].detach()
        noisy, clean = (
            F.cross_entropy(stream.logits_from(layer, state, batch.inputs).double(), batch.y, reduction="none")
            for state in (h + sigma * native(stream, v, layer), h)
        )
        return ((noisy - clean) / sigma).to(v.dtype)
