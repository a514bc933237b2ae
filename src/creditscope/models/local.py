"""A branch and its gradients by hand, for local credit: no graph, and one matrix product less than autograd.

No gradient crosses a block boundary, so a block needs only the gradients of its own weights. With x̂ the normalised input,
z = W(γ x̂ + β) + b and G = dLoss/dz, autograd first forms G W (a matrix product) to reach γ and β. All of it follows from
M = Gᵀ x̂, which replaces the product that gives dW:

    dW = M γ + (Σ G) βᵀ      dγ_j = Σ_i W_ij M_ij      dβ = Wᵀ Σ G      db = Σ G

Backpropagation and every measurement use the modules themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook as has_any_global_hook

Pull = Callable[[Tensor], None]
"""pull(push) adds the gradients of <f, push> to the .grad of the block's parameters."""

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def unchanged(modules: Sequence[tuple[nn.Module, type[nn.Module]]]) -> bool:
    """Is calling them nothing but their formula, with all parameters trained? Not so if somebody has put another module, a
    parametrization, a hook or a forward of its own in the place of one, has frozen it, or has left out weight or bias."""
    if has_any_global_hook():
        return False
    for module, kind in modules:
        if type(module) is not kind or "forward" in vars(module) or any(getattr(module, name) for name in HOOKS):
            return False
        if any(p is None or not p.requires_grad or _hooked(p) for p in module._parameters.values()):
            return False
    return True


def _hooked(p: Tensor) -> bool:
    return bool(p._backward_hooks or p._post_accumulate_grad_hooks)


@torch.no_grad()
def norm_mlp(h: Tensor, norm: nn.LayerNorm, linear1: nn.Linear, linear2: nn.Linear) -> tuple[Tensor, Pull]:
    """(linear2(GELU(linear1(norm(h)))), its `Pull`); [B, d] -> [B, d]."""
    x = F.layer_norm(h, h.shape[-1:], eps=norm.eps)
    z = F.linear(torch.addcmul(norm.bias, x, norm.weight), linear1.weight, linear1.bias)
    u = F.gelu(z)

    @torch.no_grad()
    def pull(push: Tensor) -> None:
        dz = torch.ops.aten.gelu_backward(push @ linear2.weight, z)
        m, total = dz.t() @ x, dz.sum(0)
        _add(linear2.weight, push.t() @ u)
        _add(linear2.bias, push.sum(0))
        _add(norm.weight, (linear1.weight * m).sum(0))
        _add(norm.bias, total @ linear1.weight)
        _add(linear1.weight, m.mul_(norm.weight).addcmul_(total[:, None], norm.bias))
        _add(linear1.bias, total)

    return F.linear(u, linear2.weight, linear2.bias), pull


def _add(parameter: Tensor, grad: Tensor) -> None:
    parameter.grad = grad if parameter.grad is None else parameter.grad + grad
