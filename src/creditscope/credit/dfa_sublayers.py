"""DFA at every sublayer (the `micro` reading of Launay et al. 2020 for transformers; `dfa` itself is the reading per block)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from creditscope.credit.base import as_interface, gaussian
from creditscope.credit.bp import backward_from, parts_of
from creditscope.credit.dfa import DFA, require_matrices
from creditscope.credit.weight_feedback import Product, Products, matrices
from creditscope.stream.interface import InterfaceStream, Stream
from creditscope.stream.untouched import untouched


class SublayerDFA(DFA):
    """The output of each block gets a_{l+1} = B_{l+1}^T e, and the input of each weight inside it S^T e, with an S of its own.

    No gradient crosses a weight matrix: what stands between two of them (norm, activation, attention) is exact. Token models:
    the same S^T e at every token.
    """

    name = "dfa-sublayers"
    summary = "DFA inside the blocks too: the output error through a fixed random matrix to the input of every weight"
    uses_norm = False
    objective = "own"
    tensors = ("B", "S")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.S: dict[str, Tensor] = {}

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        super().setup(stream, n_classes, generator)
        found = self._widths(as_interface(stream, self.name))
        self.S = {name: gaussian((n_classes, width), n_classes**-0.5, generator) for name, width in found.items()}

    def _widths(self, stream: InterfaceStream) -> dict[str, int]:
        """Length of the vector that enters each weight (of one token)."""
        inputs: list[tuple[str, Tensor]] = []
        with untouched(stream.model), torch.no_grad():
            like = next(stream.model.parameters())
            for layer, shape in enumerate(stream.shapes[:-1]):
                self._run(stream, layer, like.new_zeros(2, *shape), inputs)
        return {name: x.shape[-1] if x.dim() <= 3 else x[0].numel() for name, x in inputs}

    def _run(self, stream: InterfaceStream, layer: int, h: Tensor, inputs: list[tuple[str, Tensor]]) -> Tensor:
        """f_l(h), cut in front of every weight; what enters them, with its graph, is added to `inputs`."""

        def cut(name: str, product: Product, input: Tensor, *rest: Any) -> Tensor:
            inputs.append((name, input))
            return product(input.detach(), *rest)

        own = {name: w for name, w in matrices(stream).items() if name.partition(".")[0] == str(layer)}
        cuts = Products(own, cut)
        with cuts:
            f = stream.branch(layer, h)
        cuts.require_all(self.name)
        return f

    def attach(self, stream: Stream) -> None:
        super().attach(stream)
        need = self._widths(as_interface(stream, self.name))
        require_matrices(self.name, [s.shape[1] for s in self.S.values()], list(need.values()))

    def backward(self, stream: InterfaceStream, x: Tensor, y: Tensor, first_trained: int, penalty: float) -> Tensor:
        n, inputs = len(y), list[tuple[str, Tensor]]()
        roots, states = parts_of(stream, x, lambda layer, h: self._run(stream, layer, h, inputs))
        logits = stream.readout(states[-1])
        loss = F.cross_entropy(logits, y)
        loss.backward()
        e = (torch.softmax(logits.detach(), 1) - F.one_hot(y, logits.shape[1])) / n
        pushes = []
        for layer, root in enumerate(roots):
            push = stream.write_credit(e @ self.B[layer].to(e), layer).expand_as(root)
            pushes.append(push + root.detach() * (2 * penalty / n) if penalty and layer else push)
        for name, entered in inputs:
            s = e @ self.S[name].to(e)
            roots.append(entered)
            pushes.append(s.unsqueeze(1).expand_as(entered) if entered.dim() == 3 else s.view_as(entered))
        backward_from(roots, pushes)
        return loss.detach()
