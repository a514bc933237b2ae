"""PEPITA (Dellaferrera and Kreiman 2022): a second forward pass whose input is modulated by the error."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from creditscope.credit.base import CreditBatch, CreditRule, Options, as_interface, gaussian
from creditscope.credit.bp import backward_from, parts_of, states_of
from creditscope.credit.bridge_net import same_buffers
from creditscope.credit.dfa import require_matrices
from creditscope.errors import CreditscopeError
from creditscope.stream.interface import InterfaceStream, Stream


class PepitaOptions(Options):
    scale: float = Field(0.05, gt=0, le=1e3)
    """Standard deviation of F's entries in units of sqrt(2 / number of inputs)."""


class Pepita(CreditRule):
    """First pass x -> h_l, e; second pass x + F e -> h'_l. Block l learns from a_{l+1} = h_{l+1} - h'_{l+1} at its input h'_l of
    the second pass, the embedding from a_0 = h_0 - h'_0 at x + F e; terminal norm and head from the exact gradient of the
    first pass.
    """

    name = "pepita"
    summary = "PEPITA: the difference between a forward pass and a second one with the input modulated by the error"
    uses_norm = False
    objective = "own"
    has_feedback = True
    tensors = ("F",)
    Options = PepitaOptions
    options: PepitaOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.F = torch.zeros(0, 0)

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        n = input_size(stream, self.name)
        self.F = gaussian((n_classes, n), self.options.scale * (2 / n) ** 0.5, generator)

    def attach(self, stream: Stream) -> None:
        require_matrices(self.name, [self.F.shape[1]], [input_size(stream, self.name)])

    def modulated(self, x: Tensor, e: Tensor) -> Tensor:
        """x + F e."""
        return x + (e @ self.F.to(e)).view_as(x)

    @torch.no_grad()
    def credit(self, batch: CreditBatch) -> list[Tensor]:
        stream = as_interface(batch.stream, self.name)
        with same_buffers(stream.model):
            second = states_of(stream, self.modulated(batch.inputs, batch.error))
        return [stream.read_grad(a - b) for a, b in zip(batch.hiddens, second, strict=True)]

    def backward(self, stream: InterfaceStream, x: Tensor, y: Tensor, first_trained: int, penalty: float) -> Tensor:
        n = len(y)
        with torch.no_grad():
            first = states_of(stream, x)
        logits = stream.readout(first[-1])
        loss = F.cross_entropy(logits, y)
        loss.backward()
        e = torch.softmax(logits.detach(), 1) - F.one_hot(y, logits.shape[1])
        roots, second = parts_of(stream, self.modulated(x, e))
        pushes = [(first[0] - second[0]) / n]
        for before, h, f in zip(first[1:], second[1:], roots[1:], strict=True):
            pushes.append((before - h + 2 * penalty * f.detach()) / n)
        backward_from(roots, pushes)
        return loss.detach()


def input_size(stream: Stream, name: str) -> int:
    """Numbers of one input."""
    shape = as_interface(stream, name).input_shape
    if shape is None:
        raise CreditscopeError(f"credit rule {name!r} changes the input, which must be one tensor")
    return int(torch.Size(shape).numel())
