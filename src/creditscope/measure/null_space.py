"""Changes of a weight that its forward pass cannot see: rows orthogonal to every input that it meets on a batch.

With W' = W + N and N x = 0 for every input x of the batch, W'x = Wx: all activations stay, and only the transposed weight
differs. Inputs are captured at the matrix products themselves, below the modules, so that a weight without a module call
of its own (the output projection of an attention) or inside a custom autograd function is seen as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
SMALLEST_SHARE = 1 / 16
"""Of the inputs' dimensions must be free: a direction or two are often structural (a norm in front), and no test."""
FREE_ENOUGH = 0.75
"""Advice for a smaller batch: inputs fill at most this share of the dimensions."""


@dataclass
class Use:
    """How one weight was used in a forward pass."""

    inputs: list[Tensor] = field(default_factory=list)
    """[n, d_in] each: what is contracted with the last axis (of a convolution: with all but the first)."""
    left: list[Tensor] = field(default_factory=list)
    """[n, d_out] each: what is contracted with the first axis (x @ W, tied weights)."""
    refused: str = ""
    """Why the inputs are not known."""


class Products(TorchDispatchMode):
    """Records the inputs of every matrix product and convolution with one of these parameters, in the order of first use."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.uses: dict[str, Use] = {}
        self._weights: dict[int, list[tuple[str, nn.Parameter]]] = {}
        self.active = True
        """Off: products are not recorded."""
        for name, p in parameters.items():
            if p.dim() < 2:
                continue
            held = self._weights.setdefault(p.untyped_storage().data_ptr(), [])
            twins = [k for k, (_, other) in enumerate(held) if _same_memory(p, other)]
            if not twins:
                held.append((name, p))
            elif p.requires_grad and not held[twins[0]][1].requires_grad:
                held[twins[0]] = (name, p)  # two names of one weight: the one that is trained

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func.overloadpacket
        if not self.active or torch._C._current_graph_task_id() != -1:
            pass  # a product of a backward pass shows where weights are transported, not what they are given
        elif packet in (aten.mm, aten.bmm):
            self._product(args[0], args[1])
        elif packet in (aten.addmm, aten.baddbmm):
            self._product(args[1], args[2])
        elif packet is aten.convolution:
            self._convolution(*args)
        elif packet is aten.embedding:
            for name, _ in self._found(args[0]):
                self._use(name).refused = "a lookup table"
        return func(*args, **(kwargs or {}))

    def _found(self, t: Tensor) -> list[tuple[str, nn.Parameter]]:
        return self._weights.get(t.untyped_storage().data_ptr(), [])

    def _use(self, name: str) -> Use:
        return self.uses.setdefault(name, Use())

    def _product(self, a: Tensor, b: Tensor) -> None:
        for operand, other in ((b, a), (a.mT, b.mT)):
            for name, w in self._found(operand):
                use = self._use(name)
                axis = _contracted(operand, w)
                if axis is None or len(self._found(operand)) > 1:
                    use.refused = "used in slices or in batches"
                else:
                    (use.left if axis == 0 else use.inputs).append(other.detach().double().flatten(0, -2))

    def _convolution(self, x: Tensor, w: Tensor, bias: Any, stride: Any, pad: Any, dilation: Any, *rest: Any) -> None:
        transposed, _, groups = rest
        for name, _ in self._found(w):
            use = self._use(name)
            if transposed or x.dim() not in (3, 4):
                use.refused = "a transposed or three-dimensional convolution"
                continue
            x2 = x.detach().double()
            size, steps = tuple(w.shape[2:]), [tuple(v) for v in (dilation, pad, stride)]
            if x.dim() == 3:
                x2, size = x2.unsqueeze(2), (1, *size)
                steps = [(one, *v) for one, v in zip((1, 0, 1), steps, strict=True)]
            patches = F.unfold(x2, size, *steps)  # [B, C*k, places]; groups: their patches are taken together
            use.inputs.append(patches.unflatten(1, (groups, -1)).transpose(2, 3).flatten(0, 2))


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return (a.data_ptr(), a.shape, a.stride()) == (b.data_ptr(), b.shape, b.stride())


def _contracted(operand: Tensor, w: Tensor) -> int | None:
    """Which axis of the weight a product `other @ operand` sums over; None: the operand is no whole weight or transpose."""
    if w.dim() != 2 or not w.is_contiguous() or (operand.dim() == 3 and operand.shape[0] != 1):
        return None
    rows, stride = operand.shape[-2], operand.stride(-2)
    if rows == w.shape[1] and stride == 1 and (operand.shape[-1] == 1 or operand.stride(-1) == w.shape[1]):
        return 1
    if rows == w.shape[0] and stride == w.shape[1] and (operand.shape[-1] == 1 or operand.stride(-1) == 1):
        return 0
    return None


@dataclass(frozen=True)
class NullSpace:
    """Of one weight, seen as a matrix [d_out, d_in]: orthonormal rows that span its inputs on the batch."""

    basis: Tensor
    """[r, d_in]"""
    left: Tensor | None
    """[r', d_out], where the weight is used transposed as well."""
    live: Tensor
    """[d_in] bool: inputs that are not zero throughout (the gradient at a dead unit is zero as well: no test)."""
    refused: str = ""
    fitting: int | None = None
    """The largest batch that would leave a null space; None: none is known."""

    def change(self, w: Tensor, generator: torch.Generator, keep_signs: bool = False) -> Tensor | None:
        """A random matrix in the null space, as large as the weight; None: none that keeps the signs of all entries.

        Computed on the CPU, where the basis is; given on the device of the weight.
        """
        matrix = w.detach().cpu().double()
        matrix = matrix.flatten(1) if w.dim() > 1 else matrix
        n = torch.randn(matrix.shape, dtype=torch.float64, generator=generator) * self.live
        if keep_signs:
            kept = None if self.left is not None else self._signs_kept(matrix, n)
            return None if kept is None else kept.view_as(w).to(w.device)
        for _ in range(2):  # the second time takes out what rounding has left
            n = n - (n @ self.basis.mT) @ self.basis
            if self.left is not None:
                n = n - self.left.mT @ (self.left @ n)
        n = n * self.live
        size = float(matrix.norm()) or math.sqrt(matrix.shape[0])
        return (n * (size / n.norm())).view_as(w).to(w.device)

    def _signs_kept(self, matrix: Tensor, n: Tensor) -> Tensor | None:
        """Each row is changed only at its largest entries, in the null space of the inputs at these, by less than they are."""
        rank, live = len(self.basis), int(self.live.sum())
        size = rank + (live - rank + 1) // 2
        if size <= rank:
            return None
        changed = torch.zeros_like(matrix)
        for row, noise, out in zip(matrix, n, changed, strict=True):
            kept = (row.abs() * self.live).topk(size).indices
            q = torch.linalg.qr(self.basis[:, kept].mT)[0]
            v = noise[kept]
            for _ in range(2):
                v = v - q @ (q.mT @ v)
            out[kept] = v * 0.9 * float((row[kept].abs() / v.abs().clamp_min(1e-300)).min())
        return changed if bool(changed.any()) else None


def null_space(w: Tensor, use: Use, batch_size: int, tolerance: float) -> NullSpace:
    """The null space of a weight's inputs; singular values under `tolerance` of the largest count as zero."""
    d_out, d_in = len(w), w.numel() // len(w)
    none = torch.zeros(0, d_in, dtype=torch.float64)
    live = torch.ones(d_in, dtype=torch.bool)
    if use.refused:
        return NullSpace(none, None, live, use.refused)
    if use.inputs:
        rows = torch.cat([x.cpu() for x in use.inputs])
        live = rows.abs().amax(0) > 0
        basis, fitting = _span(rows, tolerance), _fitting(rows, batch_size, int(live.sum()))
        free = int(live.sum()) - len(basis)
        if free < max(2, SMALLEST_SHARE * int(live.sum())):
            return NullSpace(none, None, live, f"inputs of rank {len(basis)} in {int(live.sum())} dimensions", fitting)
    else:
        basis = none
    left = _span(torch.cat([x.cpu() for x in use.left]), tolerance) if use.left else None
    if left is not None and d_out - len(left) < max(2, SMALLEST_SHARE * d_out):
        rows = torch.cat(use.left)
        return NullSpace(
            none,
            None,
            live,
            f"inputs of rank {len(left)} in {d_out} dimensions",
            _fitting(rows, batch_size, d_out),
        )
    return NullSpace(basis, left, live)


def _span(rows: Tensor, tolerance: float) -> Tensor:
    """Orthonormal rows that span these."""
    if len(rows) > rows.shape[1]:
        rows = torch.linalg.qr(rows, mode="r")[1]
    _, s, v = torch.linalg.svd(rows, full_matrices=False)
    return v[s > tolerance * max(float(s[0]), 1e-300)] if len(s) else rows[:0]


def _fitting(rows: Tensor, batch_size: int, d: int) -> int | None:
    return int(FREE_ENOUGH * d * batch_size / len(rows)) or None


def unseen(parameters: Mapping[str, nn.Parameter], uses: Mapping[str, Use]) -> Sequence[str]:
    """Weights (two axes or more) for which no product was seen."""
    return [name for name, p in parameters.items() if p.dim() >= 2 and name not in uses]
