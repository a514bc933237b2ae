"""The weights stay as they are while a credit rule is measured; a rule that writes to them is refused."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from creditscope.credit.base import CreditRule
from creditscope.errors import CreditscopeError
from creditscope.stream.ranks import is_sharded, own_part, reshard

ROUNDED = 1e-5
"""Relative difference of a weight that the network itself writes to, and which stays the same."""


class Weights:
    """The weights of a network while a credit rule is measured: they may not change, and need no gradients."""

    def __init__(self, model: nn.Module, summed: bool) -> None:
        self.model = model
        reshard(model)
        self.named = list(model.named_parameters())
        self.flags = [(p, p.requires_grad) for _, p in self.named]
        self._versions, self._sums = self._now(), self._summed() if summed else {}
        self._own: set[str] = set()
        """Weights to which the network writes itself."""

    def _now(self) -> list[tuple[int, int]]:
        """Every write to a tensor raises its version; other data have another address. Of parts that several ranks hold the
        values alone are compared: `fully_shard` moves them about."""
        return [(0, 0) if is_sharded(p) else (p._version, p.data_ptr()) for _, p in self.named]

    @torch.no_grad()
    def _summed(self) -> dict[str, tuple[float, float]]:
        """Sum and length of each weight: a write through `.data` raises no version."""
        reshard(self.model)
        weights = ((name, own_part(p)) for name, p in self.model.named_parameters() if p.is_floating_point())
        return {name: (p.sum().item(), torch.linalg.vector_norm(p).item()) for name, p in weights}

    def begin(self) -> None:
        """From here on it is the rule that runs: what was written until now the network wrote in its own forward pass."""
        now = self._now()
        self._own |= {name for (name, _), a, b in zip(self.named, now, self._versions, strict=True) if a != b}
        self._versions = now

    def require_unchanged(self, credit: CreditRule, values: bool = False) -> None:
        """values: compare the numbers too, not only what torch knows of writes."""
        changed = [n for (n, _), a, b in zip(self.named, self._now(), self._versions, strict=True) if a != b]
        if values:
            now, nothing = self._summed(), (0.0, 0.0)
            moved = [n for n in now if not np.array_equal(now[n], self._sums.get(n, nothing), equal_nan=True)]
            changed += [n for n in moved if n not in self._own]
            for n in moved:  # a norm that is bounded again and again is rounded
                if n in self._own and not np.allclose(
                    now[n], self._sums[n], rtol=ROUNDED, atol=ROUNDED, equal_nan=True
                ):
                    raise CreditscopeError(
                        f"the model writes to its weight {n!r} in its forward pass, and it is another network after each: "
                        "measure one that keeps its weights"
                    )
        if changed:
            raise CreditscopeError(
                f"credit rule {credit.name or type(credit).__name__!r} wrote to the weight {changed[0]!r} while it was "
                "measured; let it work on a copy of the network"
            )
