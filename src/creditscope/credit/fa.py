"""FA: feedback alignment (Lillicrap et al. 2016) on a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.credit.base import CreditBatch, CreditRule, gaussian
from creditscope.credit.dfa import require_matrices
from creditscope.stream.interface import InterfaceStream, Stream


class FA(CreditRule):
    """a_L = dLoss/dh_L exact, a_l = B_l a_{l+1}; B_l in R^{d_l x d_{l+1}} fixed, N(0, 1)/sqrt(d_{l+1}).

    A block with a `linear_twin` (a convolution stage) sends credit back through the transpose of that twin, whose kernels
    have the forward shape and are drawn N(0, 1)/sqrt(fan-out of the kernel), in place of B_l. The chain is raw:
    credit_norm, where used, comes after it. Language models: the chain runs at every token, with one B_l for all tokens.
    """

    name = "fa"
    has_feedback = True
    exact_at_top = True
    tensors = ("B",)
    summary = "feedback alignment: the exact output gradient sent back through fixed random matrices, layer by layer"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.B: list[Tensor] = []
        self._twins: list[nn.Module | None] = []

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        self._find_twins(stream)
        widths = stream.feedback_widths
        self.B = []
        for layer in range(stream.depth):
            kernel = _kernel(self._twins[layer])
            if kernel is None:
                b = gaussian((widths[layer], widths[layer + 1]), widths[layer + 1] ** -0.5, generator)
                self.B.append(_by_columns(b))
            else:
                fan_out = kernel.shape[0] * kernel[0, 0].numel()
                self.B.append(gaussian(tuple(kernel.shape), fan_out**-0.5, generator))

    def _find_twins(self, stream: Stream) -> None:
        blocks = stream.blocks if isinstance(stream, InterfaceStream) else [None] * stream.depth
        with torch.random.fork_rng(devices=[]):  # the values that a twin is made with are not used
            self._twins = [block.linear_twin() if hasattr(block, "linear_twin") else None for block in blocks]  # type: ignore[union-attr,operator]

    def attach(self, stream: Stream) -> None:
        self._find_twins(stream)
        widths = stream.feedback_widths
        have = [list(b.shape) for b in self.B]
        need = [
            [widths[layer], widths[layer + 1]] if (k := _kernel(twin)) is None else list(k.shape)
            for layer, twin in enumerate(self._twins)
        ]
        require_matrices(self.name, [n for shape in have for n in shape], [n for shape in need for n in shape])

    def credit(self, batch: CreditBatch) -> list[Tensor]:
        credits = [batch.exact_top("fa")]
        for layer in reversed(range(len(self.B))):
            credits.append(self._back(layer, credits[-1], batch))
        return credits[::-1]

    def _back(self, layer: int, a: Tensor, batch: CreditBatch) -> Tensor:
        twin, b = self._twins[layer], self.B[layer].to(a)
        if _kernel(twin) is None:
            if batch.stream.scores_tokens:
                return (a.unflatten(1, (-1, b.shape[1])) @ b.t()).flatten(1)
            return a @ b.t()
        assert twin is not None
        shape = (len(a), *batch.stream.shapes[layer])
        with torch.enable_grad():
            zero = torch.zeros(shape, dtype=a.dtype, device=a.device, requires_grad=True)
            out = torch.func.functional_call(twin, {_kernel_name(twin): b}, (zero,))
            (back,) = torch.autograd.grad(out, zero, a.reshape(out.shape))
        return back.flatten(1)

    def load(self, state: Mapping[str, Tensor]) -> None:
        super().load(state)
        self.B = [_by_columns(b) for b in self.B]


def _by_columns(b: Tensor) -> Tensor:
    """The same matrix, in memory column by column: a @ B^T then reads it in order (an eighth faster)."""
    return b.t().contiguous().t() if b.dim() == 2 else b


def _kernel_name(twin: nn.Module) -> str:
    return next(name for name, _ in twin.named_parameters())


def _kernel(twin: nn.Module | None) -> Tensor | None:
    return None if twin is None else next(twin.parameters())
