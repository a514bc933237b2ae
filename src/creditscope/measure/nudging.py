"""Nudging: how much does the loss change after one small step against the credit?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from creditscope.measure.facts import Nudging
from creditscope.measure.functional import DTYPE, RESOLUTION, LossFn, Probe, chunks, layer_means, losses_after
from creditscope.stream.interface import Stream

Array = NDArray[np.float64]

STEP = 0.01


def unit(a: Tensor) -> Tensor:
    """a / ‖a‖ per sample, [B, d]; NaN where a is zero or not finite."""
    a = a / a.abs().amax(1, keepdim=True)  # first by the largest entry: squares of tiny credit underflow
    return a / a.norm(dim=1, keepdim=True)


def nudging(
    stream: Stream,
    probes: Sequence[Probe],
    loss_fn: LossFn,
    exact_layers: tuple[int, ...] = (),
    counting: tuple[int, ...] | None = None,
    *,
    layers: tuple[int, ...] | None = None,
    step: float = STEP,
) -> Nudging:
    """Loss change of every credit of the probes. `stream` is on the float64 copy; layers: those that are measured (None: all)."""
    rows: dict[str, list[list[Array]]] = {name: [[] for _ in stream.widths] for name in probes[0].credits}
    for layer in range(stream.depth + 1) if layers is None else layers:
        for probe in probes:
            names = list(probe.credits)
            # all credits of a sample in one run: [B, number of credits, d_l]
            delta = -step * torch.stack([unit(probe.credits[name][layer]) for name in names], dim=1)
            for part in chunks(stream, probe, len(names)):
                after = losses_after(stream, layer, probe, part, delta[part], loss_fn)
                change = (after - probe.before(layer)[part].unsqueeze(1)).double().cpu().numpy()
                known = np.isfinite(change) & (np.abs(change) >= probe.resolution[part, None])
                for k, name in enumerate(names):
                    rows[name][layer].append(np.where(known[:, k], change[:, k], np.nan))
    means = {name: layer_means(rows[name], exact_layers, counting) for name in rows}
    n = sum(len(probe.y) for probe in probes)
    return Nudging(
        credit=means.get("credit"),
        reference=means["reference"],
        random=means["random"],
        step=step,
        n_samples=n,
        samples=f"the first {n} evaluation samples",
        dtype=DTYPE,
        resolution=RESOLUTION,
        layers=layers,
    )
