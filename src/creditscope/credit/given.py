"""Credit that came as arrays from another framework: it is measured, and cannot be asked again."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import torch
from torch import Tensor

from creditscope.credit.base import CreditBatch, CreditRule, checked
from creditscope.credit.layers import idle_note
from creditscope.errors import CreditscopeError
from creditscope.stream.recorded import ArrayBatch, RecordedStream


def _layers(name: str, given: Sequence[int], depth: int) -> set[int]:
    try:
        layers = {index(layer) for layer in given}
    except TypeError:
        raise CreditscopeError(f"{name} is {given!r}; give a list of layers, 0 to {depth}") from None
    if wrong := sorted(layers - {*range(depth + 1)}):
        raise CreditscopeError(f"{name} names layer {wrong[0]!r}; layers are 0 to {depth}")
    return layers


class GivenCredit(CreditRule):
    """Credit that came as arrays."""

    name = "arrays"

    def __init__(
        self, a: Sequence[Tensor | None], trained: Sequence[int] | None, exact: Sequence[int], depth: int
    ) -> None:
        super().__init__()
        self.missing = frozenset(layer for layer, each in enumerate(a) if each is None)
        self._trained = None
        if trained is not None:
            self._trained = tuple(sorted(_layers("trained_layers", trained, depth) - self.missing))
        self._exact = tuple(sorted(_layers("exact_layers", exact, depth)))

    def filled(self, a: Sequence[Tensor | None], batch: ArrayBatch, stream: RecordedStream) -> list[Tensor]:
        """Zero credit where there is none; what does not fit the states, or is not finite without cause, is refused."""
        missing = frozenset(layer for layer, each in enumerate(a) if each is None)
        if missing != self.missing:
            raise CreditscopeError(
                f"a is None at layers {sorted(missing)} in one batch and at {sorted(self.missing)} in another; always "
                "give None at the same layers"
            )
        full = [torch.zeros(batch.n, stream.widths[k]) if each is None else each for k, each in enumerate(a)]
        logits = batch.h[-1] if batch.logits is None else batch.logits
        return checked(full, CreditBatch(stream, batch.h, logits, batch.y, batch.g[-1]), self.name)

    def credit(self, batch: CreditBatch) -> list[Tensor]:
        raise CreditscopeError("credit given as arrays cannot be evaluated at other states; give the rule itself")

    def exact_layers(self, depth: int) -> tuple[int, ...]:
        return self._exact

    def trained_layers(self, depth: int, kind: str) -> tuple[int, ...]:
        if self._trained is not None:
            return self._trained
        return tuple(k for k in range(depth + 1) if k not in self.missing)

    def counting_note(self, depth: int, kind: str) -> str:
        if self._trained is None:
            return "credit is given as arrays: every layer that has one counts"
        return idle_note(depth, self._trained)
