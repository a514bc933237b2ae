"""PEPITA (Dellaferrera and Kreiman 2022): a second forward pass whose input is modulated by the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from creditscope.credit.base import CreditBatch, CreditRule, Options, gaussian
from creditscope.credit.bp import backward_from
from creditscope.credit.bridge_net import as_interface, same_buffers
from creditscope.credit.dfa import require_shapes
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
    Options = PepitaOptions
    options: PepitaOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.F = torch.zeros(0, 0)

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        n = input_size(stream, self.name)
        self.F = gaussian((n_classes, n), self.options.scale * (2 / n) ** 0.5, generator)

    def attach(self, stream: Stream) -> None:
        require_shapes(self.name, [self.F.shape[1]], [input_size(stream, self.name)])

    def modulated(self, x: Tensor, e: Tensor) -> Tensor:
        """x + F e."""
        return x + (e @ self.F.to(e)).view_as(x)

    @torch.no_grad()
    def credit(self, batch: CreditBatch) -> list[Tensor]:
        stream = as_interface(batch.stream, self.name)
        with same_buffers(stream.model):
            h = stream.embed(self.modulated(batch.inputs, batch.error))
            second = [h]
            for layer in range(stream.depth):
                second.append(stream.advance(layer, second[-1]))
        return [stream.read_grad(a - b) for a, b in zip(batch.hiddens, second, strict=True)]

    def backward(self, stream: InterfaceStream, x: Tensor, y: Tensor, first_trained: int, penalty: float) -> Tensor:
        n = len(y)
        with torch.no_grad():
            first = [stream.embed(x)]
            for layer in range(stream.depth):
                first.append(stream.advance(layer, first[-1]))
        logits = stream.readout(first[-1])
        loss = F.cross_entropy(logits, y)
        loss.backward()
        e = torch.softmax(logits.detach(), 1) - F.one_hot(y, logits.shape[1])
        roots = [stream.embed(self.modulated(x, e))]
        h = roots[0].detach()
        pushes = [(first[0] - h) / n]
        for layer in range(stream.depth):
            f = stream.branch(layer, h)
            h = f.detach() if stream.kind == "plain" else h + f.detach()
            roots.append(f)
            pushes.append((first[layer + 1] - h + 2 * penalty * f.detach()) / n)
        backward_from(roots, pushes)
        return loss.detach()

    def state(self) -> dict[str, Tensor]:
        return {"F": self.F}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.F = state["F"]


def input_size(stream: Stream, name: str) -> int:
    """Numbers of one input."""
    shape = as_interface(stream, name).input_shape
    if shape is None:
        raise CreditscopeError(f"credit rule {name!r} changes the input, which must be one tensor")
    return int(torch.Size(shape).numel())
