"""A block and its gradients by hand, for local credit: no graph, and one matrix product less than autograd.

No gradient crosses a block boundary, so a block needs only the gradients of its own weights. With x̂ the normalised input,
z = W(γ x̂ + β) + b and G = dLoss/dz, autograd first forms G W (a matrix product) to reach γ and β. All of it follows from
M = Gᵀ x̂, which replaces the product that gives dW:

    dW = M γ + (Σ G) βᵀ      dγ_j = Σ_i W_ij M_ij      dβ = Wᵀ Σ G      db = Σ G

Backpropagation and every measurement use the modules themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook as has_any_global_hook

Pull = Callable[[Tensor], None]
"""pull(push) adds the gradients of <f, push> to the .grad of the block's parameters."""

gelu_backward = torch.ops.aten.gelu_backward.default
FORMULA: dict[type[nn.Module], Any] = {
    module: module.forward for module in (nn.Linear, nn.LayerNorm, nn.GELU, nn.Sequential)
}
"""What the short way computes without calling it."""


class LocalBlock(nn.Module, ABC):
    """A block that knows its gradients; `local` is called without grad mode."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        FORMULA[cls] = cls.forward

    @abstractmethod
    def local(self, h: Tensor) -> tuple[Tensor, Pull] | None:
        """f_l(h) without a graph, and how its gradients follow from the credit; None where the modules were changed."""


def local_branch(block: nn.Module, h: Tensor) -> tuple[Tensor, Pull] | None:
    """f_l(h) without a graph and its `Pull`, of a block that knows them or is a linear map behind modules without parameters
    (ReLU, Linear: a stage of a plain MLP); None: leave it to autograd. Called without grad mode."""
    if isinstance(block, LocalBlock):
        return block.local(h)
    if type(block) is not nn.Sequential or h.dim() != 2:
        return None
    *before, last = block._modules.values() or (block,)
    if not isinstance(last, nn.Linear) or any(m._parameters or m._modules for m in before):
        return None
    parts = [(block, nn.Sequential), *((m, type(m)) for m in before), (last, nn.Linear)]
    return linear_behind(h, before, last) if unchanged(parts) else None


def unchanged(modules: Sequence[tuple[nn.Module, type[nn.Module]]]) -> bool:
    """Is calling them nothing but their formula, with all parameters trained? Not so if somebody has put another module, a
    parametrization, a hook or a forward of its own in the place of one, has frozen it, has left out weight or bias or put a
    tensor in its place, or has a weight that does not lie in memory row by row (its gradient would)."""
    if has_any_global_hook():
        return False
    for module, kind in modules:
        own = module.__dict__  # at every step of a training: the way through getattr is four times as long
        if type(module) is not kind or "forward" in own or FORMULA.get(kind, kind.forward) is not kind.forward:
            return False
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
            return False
        params = own["_parameters"]
        if (kind is nn.Linear or kind is nn.LayerNorm) and not ("weight" in params and "bias" in params):
            return False
        for p in params.values():
            if p is None or not p.requires_grad or p._backward_hooks or p._post_accumulate_grad_hooks:
                return False
            if not p.is_contiguous():
                return False
    return True


def norm_mlp(h: Tensor, norm: nn.LayerNorm, linear1: nn.Linear, linear2: nn.Linear) -> tuple[Tensor, Pull]:
    """(linear2(GELU(linear1(norm(h)))), its `Pull`); [B, d] -> [B, d]."""
    scale, shift, w1, b1, w2, b2 = norm.weight, norm.bias, linear1.weight, linear1.bias, linear2.weight, linear2.bias
    x = F.layer_norm(h, h.shape[-1:], eps=norm.eps)
    z = F.linear(torch.addcmul(shift, x, scale), w1, b1)
    u = F.gelu(z)

    def pull(push: Tensor) -> None:
        with torch.no_grad():
            dz = gelu_backward(push @ w2, z)
            m, total = dz.t() @ x, dz.sum(0)
            _add(w2, push.t() @ u)
            _add(b2, push.sum(0))
            _add(scale, (w1 * m).sum(0))
            _add(shift, total @ w1)
            _add(w1, m.mul_(scale).addcmul_(total[:, None], shift))
            _add(b1, total)

    return F.linear(u, w2, b2), pull


def linear_behind(h: Tensor, before: Sequence[nn.Module], linear: nn.Linear) -> tuple[Tensor, Pull]:
    """(linear(before(h)), its `Pull`); `before` has no parameters; [B, d] -> [B, d']."""
    weight, bias = linear.weight, linear.bias
    for module in before:
        h = module(h)
    h = h.detach()  # whatever a rule does with the state that it sees

    def pull(push: Tensor) -> None:
        _add(weight, push.t() @ h)
        _add(bias, push.sum(0))

    return F.linear(h, weight, bias), pull


def _add(parameter: Tensor, grad: Tensor) -> None:
    parameter.grad = grad if parameter.grad is None else parameter.grad + grad
