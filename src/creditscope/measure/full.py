"""Level full: the functional metrics with their controls, and the fresh-B null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.credit.base import CreditBatch, CreditRule
from creditscope.errors import CreditscopeError
from creditscope.measure.facts import FreshB, Nudging, Perturbation
from creditscope.measure.functional import (
    CONTROL_SEED,
    DTYPE,
    N_SAMPLES,
    RESOLUTION,
    Batch,
    LossFn,
    double_stream,
    first_of,
    first_samples,
    make_probe,
)
from creditscope.measure.loss import cross_entropy
from creditscope.measure.nudging import STEP, nudging
from creditscope.measure.nulls import FreshNull
from creditscope.measure.perturbation import DIRECTIONS, EPSILON, SEED, perturbation
from creditscope.stream.untouched import untouched


class Full:
    """Watches a sweep for what the full level needs of it, and measures the rest afterwards."""

    def __init__(self, credit: CreditRule | None, layers: tuple[int, ...] | None = None) -> None:
        """layers: those of the functional metrics; None: all."""
        self.credit = credit
        self.layers = layers
        self._kept: list[list[Tensor]] = []
        self._n = 0
        self._null: FreshNull | None = None

    def watch(self, batch: CreditBatch, g: list[Tensor], a: list[Tensor]) -> None:
        if self.credit is None:
            return
        if self._null is None:
            self._null = FreshNull(self.credit, batch.stream.depth, batch.stream.kind)
        take = min(N_SAMPLES - self._n, len(batch.y))
        if take > 0:
            self._n += take
            # the credit as it is: from the network itself, in its own dtype (a user's rule may own float32 matrices)
            self._kept.append([x[:take] for x in a])
            self._null.add(first_of(batch, take), [x[:take] for x in g], self._kept[-1])

    def facts(
        self,
        model: nn.Module,
        batches: Sequence[Batch],
        *,
        blocks: Any,
        read: str | None,
        loss_fn: LossFn | None,
        coupled: bool = False,
    ) -> dict[str, Perturbation | Nudging | FreshB | None]:
        """The fields `perturbation`, `nudging`, `fresh_b` of the facts. Call after the sweep over the same batches.

        coupled: samples influence each other, so that none can be moved, and run many times over, by itself.
        """
        if coupled:
            rho, nudge = not_measured(
                "samples influence each other through the batch; ρ and nudging move them one by one"
            )
        else:
            with untouched(model):  # for the RNGs: everything runs on a copy
                rho, nudge = self._probed(model, first_samples(batches), blocks, read, loss_fn or cross_entropy)
        return {"perturbation": rho, "nudging": nudge, "fresh_b": None if self._null is None else self._null.fact()}

    def _probed(
        self, model: nn.Module, batches: list[Batch], blocks: Any, read: str | None, loss_fn: LossFn
    ) -> tuple[Perturbation, Nudging]:
        credits: list[list[Tensor]] | list[None] = self._kept or [None] * len(batches)
        rng = torch.Generator().manual_seed(CONTROL_SEED)
        try:
            stream = double_stream(model, batches[0], blocks, read)
            with untouched(stream.model):
                probes = [make_probe(stream, batch, a, loss_fn, rng) for batch, a in zip(batches, credits, strict=True)]
        except (
            RuntimeError,
            TypeError,
            CreditscopeError,
        ) as error:  # it cannot be copied, or has float32 written into its code
            return not_measured(f"the network does not run as a float64 copy: {' '.join(str(error).split())[:200]}")
        if wrong := [layer for layer in self.layers or () if layer > stream.depth]:
            raise CreditscopeError(
                f"layers= names layer {wrong[0]} and the network has layers 0 to {stream.depth}; give some of these"
            )
        exact: tuple[int, ...] = ()
        counting: tuple[int, ...] | None = None
        if self.credit is not None:
            exact = self.credit.exact_layers(stream.depth)
            counting = self.credit.trained_layers(stream.depth, stream.kind)
            if self.credit.is_exact:
                for probe in probes:
                    probe.credits["credit"] = probe.credits["reference"]
        with untouched(stream.model):
            return (
                perturbation(stream, probes, loss_fn, exact, counting, layers=self.layers),
                nudging(stream, probes, loss_fn, exact, counting, layers=self.layers),
            )


def not_measured(reason: str) -> tuple[Perturbation, Nudging]:
    common: dict[str, Any] = {"n_samples": 0, "samples": "", "dtype": DTYPE, "resolution": RESOLUTION, "reason": reason}
    return Perturbation(directions=DIRECTIONS, epsilon=EPSILON, seed=SEED, **common), Nudging(step=STEP, **common)
