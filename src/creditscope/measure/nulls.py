"""Fresh-B null: is the alignment with the trained feedback matrices more than with any others?"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from creditscope.credit.base import CallableRule, CreditBatch, CreditRule
from creditscope.measure.facts import FreshB

DRAWS = 20
SEED = 20260411


class FreshNull:
    """Cosines of `draws` redrawn rules, taken batch by batch next to the trained one's; no further backward pass.

    The trained value is taken on the same samples as the null (fewer than the alignment fact has: the credit of a bridge
    costs a pass through its network, and there are 20 of them).
    """

    def __init__(
        self, rule: CreditRule, depth: int, kind: str = "residual", draws: int = DRAWS, seed: int = SEED
    ) -> None:
        self.rule, self.depth, self.draws, self.seed = rule, depth, draws, seed
        self.layers = tuple(sorted(set(rule.trained_layers(depth, kind)) - {0} - set(rule.exact_layers(depth))))
        self._fresh: list[CreditRule] | None = None
        shape = (1 + draws, len(self.layers))
        self._sum, self._count = np.zeros(shape), np.zeros(shape)
        self._n = 0
        self.reason = ""
        if rule.is_exact:
            self.reason = "not applicable: the credit is the reference itself"
        elif not self.layers:
            self.reason = "not applicable: every deep layer is exact by construction or trains nothing"

    def add(self, batch: CreditBatch, g: list[Tensor], a: list[Tensor]) -> None:
        """g, a: [B, d_l] for l = 0..L; a is the trained rule's."""
        if self._fresh is None and not self.reason:
            self._fresh = self._redrawn(batch)
        if self.reason or self._fresh is None:
            return
        self._n += len(batch.y)
        units = {layer: _unit(g[layer]) for layer in self.layers}
        products = [_products(a[layer], units[layer]) for layer in self.layers]
        with torch.no_grad():
            for rule in self._fresh:
                credits = rule.credit(batch)
                products += [
                    _products(batch.stream.read_grad(credits[layer].detach()), units[layer]) for layer in self.layers
                ]
        dot, norm = (torch.stack(column) for column in zip(*products, strict=True))
        cos = (dot.double() / norm).cpu().numpy().reshape(*self._sum.shape, -1)
        cos[~np.isfinite(cos)] = np.nan
        self._sum += np.nansum(cos, axis=2)
        self._count += np.isfinite(cos).sum(axis=2)

    def _redrawn(self, batch: CreditBatch) -> list[CreditRule]:
        rng = torch.Generator().manual_seed(self.seed)
        fresh: list[CreditRule] = []
        for _ in range(self.draws):
            rule = self.rule.redraw(batch.stream, batch.logits.shape[-1], rng)
            if rule is None:
                self.reason = f"not applicable: {self._not_redrawn()}"
                return []
            rule.to(batch.logits.device).attach(batch.stream)
            fresh.append(rule)
        return fresh

    def _not_redrawn(self) -> str:
        if isinstance(self.rule, CallableRule):
            return "a function does not say what is random in it; a CreditRule with has_feedback and setup() does"
        return f"rule {self.rule.name!r} has no random feedback to draw anew"

    def fact(self) -> FreshB:
        if self.reason:
            return FreshB(layers=self.layers, seed=self.seed, reason=self.reason)
        means = np.divide(self._sum, self._count, out=np.full(self._sum.shape, np.nan), where=self._count > 0)
        trained, *draws = [float(row[np.isfinite(row)].mean()) if np.isfinite(row).any() else None for row in means]
        known = [v for v in draws if v is not None]
        mean = float(np.mean(known)) if known else None
        std = float(np.std(known, ddof=1)) if len(known) > 1 else None
        z = (trained - mean) / std if trained is not None and mean is not None and std else None
        return FreshB(
            trained=trained,
            mean=mean,
            std=std,
            z=z,
            draws=tuple(draws),
            layers=self.layers,
            n_samples=self._n,
            samples=f"the first {self._n} evaluation samples",
            seed=self.seed,
            reason="" if z is not None else "not measurable: no finite cosines, or the draws do not vary",
        )


def _unit(g: Tensor) -> Tensor:
    """g / ‖g‖ per sample, [B, d]; the norm in float64. NaN where g is zero."""
    return (g.double() / torch.linalg.vector_norm(g, dim=1, keepdim=True, dtype=torch.float64)).to(g.dtype)


def _products(a: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """<a, unit> in the network's dtype (unit vectors neither over- nor underflow) and ‖a‖ in float64; [B] each."""
    return (a * unit).sum(1), torch.linalg.vector_norm(a, dim=1, dtype=torch.float64)
