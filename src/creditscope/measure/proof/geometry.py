"""Per-sample geometry of native states: rows, norms, directions."""

from __future__ import annotations

import torch
from torch import Tensor

from creditscope.stream.interface import Stream

TINY = 1e-305
"""What a norm is at the least where it is divided by."""


def samples_first(stream: Stream, t: Tensor) -> Tensor:
    """Samples first; its own inverse."""
    return t.transpose(0, stream.batch_dim) if stream.batch_dim and t.dim() > 2 else t


def rows(stream: Stream, t: Tensor) -> Tensor:
    return samples_first(stream, t).flatten(1)


def norms(stream: Stream, t: Tensor) -> Tensor:
    """L2 norm of each sample in float64, also where squares over- or underflow."""
    each = rows(stream, t)
    found = torch.linalg.vector_norm(each, dim=1, dtype=torch.float64)
    if bool(((found > 1e-150) & (found < float("inf"))).all()):
        return found
    each = each.double()
    largest = each.abs().amax(1).clamp_min(TINY)
    return largest * (each / largest.unsqueeze(1)).norm(dim=1)


def scaled(stream: Stream, t: Tensor, factor: Tensor) -> Tensor:
    """Each sample of a native tensor times its factor [B]."""
    first = samples_first(stream, t)
    return samples_first(stream, first * factor.to(t.dtype).view(-1, *[1] * (first.dim() - 1)))


def direction(stream: Stream, g: Tensor, rng: torch.Generator, along: float = 1.0) -> Tensor:
    """Unit length per sample: a part along g, so that <g, v> is not small by chance, the rest drawn."""
    drawn = torch.randn(g.shape, generator=rng).to(g)
    parts = ((g, along), (drawn, 1.0))
    v = sum((scaled(stream, t, part / norms(stream, t).clamp_min(TINY)) for t, part in parts), torch.zeros_like(g))
    return scaled(stream, v, 1 / norms(stream, v))
