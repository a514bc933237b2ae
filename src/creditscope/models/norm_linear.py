"""LayerNorm followed by a linear map, for an input that takes no gradient: the backward pass needs one product less.

With x̂ the normalised input, z = W(γ x̂ + β) + b and G = dLoss/dz, autograd first forms G W (a matrix product) to reach γ and β.
All of it follows from M = Gᵀ x̂, which replaces the product that gives dW:

    dW = M γ + (Σ G) βᵀ      dγ_j = Σ_i W_ij M_ij      dβ = Wᵀ Σ G      db = Σ G

Local credit always has such an input (no gradient crosses a block boundary); backpropagation and measurement do not.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook as has_any_global_hook


class _NormLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gamma: Tensor, beta: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        normalised = F.layer_norm(x, x.shape[-1:], eps=eps)
        ctx.save_for_backward(normalised, gamma, beta, weight)
        return F.linear(torch.addcmul(beta, normalised, gamma), weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        normalised, gamma, beta, weight = ctx.saved_tensors
        m, total = grad.t() @ normalised, grad.sum(0)
        d_gamma = (weight * m).sum(0)
        return None, d_gamma, total @ weight, m.mul_(gamma).addcmul_(total[:, None], beta), total, None


HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Is calling it nothing but the formula? Not so if somebody has put another module, a parametrization, a hook or a forward
    of its own in its place, or has left out weight or bias."""
    if type(module) is not kind or "forward" in vars(module) or has_any_global_hook():
        return False
    return not any(getattr(module, name) for name in HOOKS) and None not in (module.weight, module.bias)


def norm_linear(x: Tensor, norm: nn.LayerNorm, linear: nn.Linear) -> Tensor:
    """linear(norm(x)); [B, d] -> [B, n]."""
    if not (_plain(norm, nn.LayerNorm) and _plain(linear, nn.Linear)) or len(norm.normalized_shape) != 1:
        other: Tensor = linear(norm(x))
        return other
    trained = norm.weight.requires_grad and linear.weight.requires_grad and torch.is_grad_enabled()
    if not trained or x.requires_grad or x.dim() != 2 or torch.is_autocast_enabled("cpu"):
        out: Tensor = linear(norm(x))
        return out
    return _NormLinear.apply(x, norm.weight, norm.bias, linear.weight, linear.bias, norm.eps)  # type: ignore[no-untyped-call]
