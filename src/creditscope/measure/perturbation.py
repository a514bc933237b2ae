"""Perturbation correlation ρ: does the credit foretell how the loss changes when the hidden state is moved?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from creditscope.measure.facts import Perturbation
from creditscope.measure.functional import DTYPE, RESOLUTION, LossFn, Probe, chunks, layer_means, losses_after
from creditscope.measure.progress import Progress
from creditscope.stream.interface import Stream

Array = NDArray[np.float64]

DIRECTIONS = 32
EPSILON = 1e-3
SEED = 20260410


def pearson(x: Array, y: Array, least_spread: Array) -> Array:
    """Correlation over the last axis: x, y [B, M] -> [B].

    NaN (not measurable) where y spreads by less than `least_spread` [B], where x does not vary, or where either is not
    finite.
    """
    with np.errstate(invalid="ignore"):  # inf - inf: not finite, so not measurable
        spread = y.max(1) - y.min(1)
    ok = np.isfinite(x).all(1) & np.isfinite(y).all(1) & (x.max(1) > x.min(1)) & (spread > 0) & (spread >= least_spread)
    rho = np.full(len(x), np.nan)
    x, y = (_standardised(values[ok]) for values in (x, y))
    rho[ok] = (x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1))
    return rho


def _standardised(x: Array) -> Array:
    """Centred, and scaled so that squares neither overflow nor underflow."""
    x = x - x.mean(1, keepdims=True)
    scaled: Array = x / np.abs(x).max(1, keepdims=True)
    return scaled


def perturbation(
    stream: Stream,
    probes: Sequence[Probe],
    loss_fn: LossFn,
    exact_layers: tuple[int, ...] = (),
    counting: tuple[int, ...] | None = None,
    *,
    layers: tuple[int, ...] | None = None,
    directions: int = DIRECTIONS,
    epsilon: float = EPSILON,
    seed: int = SEED,
) -> Perturbation:
    """ρ of every credit of the probes. `stream` is on the float64 copy; directions come from a generator of their own.

    layers: those that are measured; None: all.
    """
    asked = set(range(stream.depth + 1) if layers is None else layers)
    parts = sum(1 for probe in probes for _ in chunks(stream, probe, directions))
    progress = Progress(f"level full, {len(asked)} of {stream.depth + 1} layers", parts * len(asked))
    rng = torch.Generator().manual_seed(seed)
    rows: dict[str, list[list[Array]]] = {name: [[] for _ in stream.widths] for name in probes[0].credits}
    for probe in probes:
        for part in chunks(stream, probe, directions):
            drawn: dict[int, Tensor] = {}  # layers of the same width share their directions
            for layer, width in enumerate(stream.widths):
                if width not in drawn:
                    v = torch.randn(part.stop - part.start, directions, width, generator=rng).to(probe.hiddens[layer])
                    drawn[width] = v.mul_(epsilon / v.norm(dim=2, keepdim=True))
                if layer not in asked:
                    continue
                v = drawn[width]
                after = losses_after(stream, layer, probe, part, v, loss_fn)
                change = (after - probe.before(layer)[part].unsqueeze(1)).double().cpu().numpy()
                # all credits at once: [b, M, d] x [b, d, number of credits]
                foretold = torch.bmm(v, torch.stack([a[layer][part] for a in probe.credits.values()], dim=2))
                for name, x in zip(probe.credits, foretold.unbind(2), strict=True):
                    rows[name][layer].append(pearson(x.cpu().numpy(), change, probe.resolution[part]))
                progress.step()
    means = {name: layer_means(rows[name], exact_layers, counting) for name in rows}
    n = sum(len(probe.y) for probe in probes)
    return Perturbation(
        credit=means.get("credit"),
        reference=means["reference"],
        random=means["random"],
        directions=directions,
        epsilon=epsilon,
        n_samples=n,
        samples=f"the first {n} evaluation samples",
        dtype=DTYPE,
        resolution=RESOLUTION,
        seed=seed,
        layers=layers,
    )
