"""A small residual network in float64 with its formulas written out, for the tests of single rules."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creditscope.credit.base import CreditBatch, CreditRule
from creditscope.credit.registry import make_rule
from creditscope.credit.round_trip import one_batch
from creditscope.models import ResMLP
from creditscope.models.parts import FlatLinear, StreamModel
from creditscope.stream.interface import InterfaceStream
from creditscope.training.objective import Objective

N, D_IN, D, C, L = 6, 7, 5, 4, 2


class Setting:
    """A network, a batch, a rule that is set up for them."""

    def __init__(
        self, name: str, model: Any = None, seed: int = 0, n: int = N, shake: float = 0.3, **options: Any
    ) -> None:
        torch.manual_seed(seed)
        self.model: Any = model or ResMLP(D_IN, C, width=D, depth=L)
        with torch.no_grad():
            for p in self.model.parameters():
                p.add_(torch.randn_like(p) * shake)
        self.model.double().train()
        self.x, self.y = torch.randn(n, D_IN, dtype=torch.float64), torch.randint(0, C, (n,))
        self.stream = InterfaceStream(self.model, self.x[:3])
        self.rule: Any = make_rule(name, options)
        self.rule.setup(self.stream, C, torch.Generator().manual_seed(seed + 1))
        self.rule.credit_site = self.rule.site or "output"

    def batch(self) -> CreditBatch:
        return one_batch(self.stream, self.x, self.y)

    def gradients(self, rule: CreditRule | None = None) -> dict[str, Tensor]:
        """What training leaves in .grad after one batch."""
        rule = rule or self.rule
        norm = "none" if rule.uses_norm else None
        self.model.zero_grad()
        Objective(self.stream, rule, norm, rule.site or "output", 0.0, 0).backward(self.x, self.y)
        return {name: p.grad.clone() for name, p in self.model.named_parameters()}

    def assert_follows(self, found: dict[str, Tensor], part: str, objective: Tensor, **near: float) -> None:
        """What training left in a part of the model is the gradient of this objective."""
        named = dict(self.model.get_submodule(part).named_parameters())
        for key, g in zip(named, torch.autograd.grad(objective, list(named.values())), strict=True):
            torch.testing.assert_close(found[f"{part}.{key}"], g, msg=f"{part}.{key}", **near)  # type: ignore[arg-type]


class Forward:
    """A pass through a ResMLP by its formulas, with what a hand-written backward pass needs."""

    def __init__(self, model: Any, x: Tensor, y: Tensor) -> None:
        self.model = model
        self.h = [x @ model.embed.linear.weight.T + model.embed.linear.bias]
        self.parts = []
        for block in model.blocks:
            h = self.h[-1]
            normed = (h - h.mean(1, keepdim=True)) / (h.var(1, correction=0, keepdim=True) + block.norm.eps).sqrt()
            entered = normed * block.norm.weight + block.norm.bias
            z = entered @ block.linear1.weight.T + block.linear1.bias
            u = F.gelu(z)
            self.parts.append((normed, entered, z, u))
            self.h.append(h + u @ block.linear2.weight.T + block.linear2.bias)
        top = self.h[-1].detach().requires_grad_()
        logits = model.out_head(model.out_ln(top))
        (self.top,) = torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), top)
        self.e = (torch.softmax(logits, 1) - F.one_hot(y, C)).detach()

    def block_gradients(self, layer: int, f: Tensor, u: Tensor, entered: Tensor) -> dict[str, Tensor]:
        """Gradients (mean over the batch) from credit at the branch's output, at u, and at the input of linear1."""
        normed, at1, z, at2 = (t.detach() for t in self.parts[layer])
        dz = u * gelu_slope(z)
        pre, n = f"blocks.{layer}.", len(f)
        return {
            pre + "linear2.weight": f.T @ at2 / n,
            pre + "linear2.bias": f.sum(0) / n,
            pre + "linear1.weight": dz.T @ at1 / n,
            pre + "linear1.bias": dz.sum(0) / n,
            pre + "norm.weight": (entered * normed).sum(0) / n,
            pre + "norm.bias": entered.sum(0) / n,
        }


def gelu_slope(z: Tensor) -> Tensor:
    normal = torch.distributions.Normal(0.0, 1.0)
    return normal.cdf(z) + z * torch.exp(normal.log_prob(z))


def norm_back(h: Tensor, entered: Tensor, block: Any) -> Tensor:
    """Gradient at the input of LayerNorm: (w - mean(w) - x̂ mean(w x̂)) / σ with w = γ times what comes in."""
    sigma = (h.var(1, correction=0, keepdim=True) + block.norm.eps).sqrt()
    normed, w = (h - h.mean(1, keepdim=True)) / sigma, entered * block.norm.weight
    return (w - w.mean(1, keepdim=True) - normed * (w * normed).mean(1, keepdim=True)) / sigma


class PlainNet(StreamModel):
    """Stages of one Linear and an activation, as layers of other packages are used."""

    stream_kind = "plain"

    def __init__(self, act: type[nn.Module]) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(D_IN, D), act())
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(D, D), act()) for _ in range(3))
        self.out_ln = nn.Identity()
        self.out_head = nn.Linear(D, C)


class LinearStream(StreamModel):
    """Bias-free linear blocks: what a rule makes of them can be written down."""

    out_head: nn.Linear

    def __init__(self, kind: str, width: int = 5, depth: int = 3, n_in: int = D_IN, n_classes: int = C) -> None:
        super().__init__()
        self.stream_kind = kind
        self.embed = FlatLinear(n_in, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.out_ln = nn.Identity()
        self.out_head = nn.Linear(width, n_classes)
