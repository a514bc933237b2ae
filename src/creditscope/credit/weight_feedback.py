"""Feedback per weight matrix: a backward pass through the blocks in which each weight W sends credit back through another matrix.

Skip connections, norms and activations are exact, and so is a_L (terminal norm and head): only the matrices and convolution
kernels inside the blocks are replaced. With W itself in each place the pass is backpropagation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import grad as conv_grad
from torch.overrides import TorchFunctionMode

from creditscope.credit.base import CreditBatch, CreditRule, as_interface
from creditscope.credit.bp import backward_credit, end_to_end
from creditscope.credit.dfa import require_matrices
from creditscope.errors import CreditscopeError
from creditscope.stream.interface import InterfaceStream, Stream

Product = Callable[..., Tensor]
"""F.linear or torch.conv2d."""


class Products(TorchFunctionMode):
    """While it is on, `replace(name, product, x, weight, *rest)` stands in for the products with the named weights."""

    def __init__(self, weights: Mapping[str, Tensor], replace: Callable[..., Tensor]) -> None:
        super().__init__()
        self._names = {id(weight): name for name, weight in weights.items()}
        self._replace = replace
        self._seen: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.linear or func is torch.conv2d:
            name = self._names.get(id(args[1] if len(args) > 1 else kwargs["weight"]))
            if name is not None:
                self._seen.add(name)
                return self._replace(name, func, *args, **kwargs)
        return func(*args, **kwargs)

    def require_all(self, rule: str) -> None:
        """Refuse a network some of whose matrices are used in a way that is not seen: they would be exact without a word."""
        if missing := sorted(set(self._names.values()) - self._seen):
            raise CreditscopeError(
                f"credit rule {rule!r} needs a feedback matrix for each weight of the blocks, and {missing[0]!r} is not used by "
                "a linear map or a 2-d convolution; write the block with nn.Linear or nn.Conv2d"
            )


class _Linear(torch.autograd.Function):
    """x W^T + b, with the gradient at x taken through `back` in the place of W."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, back: Tensor) -> Tensor:
        ctx.save_for_backward(x, back)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, back = ctx.saved_tensors
        (g,) = grads
        needs = ctx.needs_input_grad
        rows = g.flatten(0, -2)
        return (
            g @ back if needs[0] else None,
            rows.t() @ x.flatten(0, -2) if needs[1] else None,
            rows.sum(0) if needs[2] else None,
            None,
        )


class _Conv2d(torch.autograd.Function):
    """A 2-d convolution, with the gradient at x taken through the kernels `back` in the place of the forward ones."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, back: Tensor, *settings: Any) -> Tensor:
        ctx.save_for_backward(x, back)
        ctx.settings = settings
        return torch.conv2d(x, weight, bias, *settings)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, back = ctx.saved_tensors
        (g,) = grads
        needs = ctx.needs_input_grad
        return (
            conv_grad.conv2d_input(x.shape, back, g, *ctx.settings) if needs[0] else None,
            conv_grad.conv2d_weight(x, back.shape, g, *ctx.settings) if needs[1] else None,
            g.sum((0, 2, 3)) if needs[2] else None,
            None,
            *[None] * len(ctx.settings),
        )


def matrices(stream: InterfaceStream) -> dict[str, Tensor]:
    """The weight matrices and kernels inside the blocks, as `block.name`."""
    return {
        f"{layer}.{name}": p
        for layer, block in enumerate(stream.blocks)
        for name, p in block.named_parameters()
        if p.dim() > 1
    }


def xavier(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Uniform with standard deviation sqrt(2 / (fan in + fan out)), for the shape of a weight or a kernel."""
    return (torch.rand(*shape, generator=generator) * 2 - 1) * (3**0.5 * xavier_std(shape))


def xavier_std(shape: Sequence[int]) -> float:
    field = torch.Size(shape[2:]).numel()
    return (2 / ((shape[0] + shape[1]) * field)) ** 0.5


class WeightFeedback(CreditRule):
    """a_L exact; a_l = a_{l+1} + what comes back through f_l with every weight W replaced by `feedback(name, W)`.

    The gradients of the parameters inside a block come from the same pass. Plain stream: without a_{l+1}.
    """

    uses_norm = False
    objective = "own"
    exact_at_top = True
    runs_parts = True

    @abstractmethod
    def feedback(self, name: str, weight: Tensor) -> Tensor:
        """The matrix through which credit goes back, of the shape of `weight`."""

    def _through(self, stream: InterfaceStream) -> Products:
        weights = matrices(stream)
        with torch.no_grad():
            backs = {name: self.feedback(name, w.detach()) for name, w in weights.items()}

        def replace(
            name: str, product: Product, input: Tensor, weight: Tensor, bias: Tensor | None = None, *settings: Any
        ) -> Tensor:
            function: Any = _Linear if product is F.linear else _Conv2d
            out: Tensor = function.apply(input, weight, bias, backs[name].to(weight), *settings)
            return out

        return Products(weights, replace)

    def credit(self, batch: CreditBatch) -> list[Tensor]:
        through = self._through(as_interface(batch.stream, self.name))
        with through:
            credits = backward_credit(batch)
        through.require_all(self.name)
        return credits

    def backward(self, stream: InterfaceStream, x: Tensor, y: Tensor, first_trained: int, penalty: float) -> Tensor:
        through = self._through(stream)
        with through:
            loss = end_to_end(stream, x, y, penalty)
        through.require_all(self.name)
        return loss


class FixedWeightFeedback(WeightFeedback):
    """B of the shape of each W, drawn once: feedback alignment (Lillicrap et al. 2016) matrix by matrix, as layers do it."""

    name = "fa-weights"
    summary = "feedback alignment inside the blocks: a fixed random matrix in the place of each weight on the way back"
    has_feedback = True
    tensors: ClassVar[tuple[str, ...]] = ("B",)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.B: dict[str, Tensor] = {}

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        weights = matrices(as_interface(stream, self.name))
        self.B = {name: self.drawn(w, generator).to(w.dtype) for name, w in weights.items()}

    def drawn(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        return xavier(weight.shape, generator)

    def attach(self, stream: Stream) -> None:
        need = [n for w in matrices(as_interface(stream, self.name)).values() for n in w.shape]
        require_matrices(self.name, [n for b in self.B.values() for n in b.shape], need)

    def feedback(self, name: str, weight: Tensor) -> Tensor:
        return self.B[name]
