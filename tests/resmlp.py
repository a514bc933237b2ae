"""The ResMLP of the audits in plain numpy, with a backward pass derived by hand; and what two reports are compared by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import erf, logsumexp, softmax
from torch import Tensor

from creditscope import DiagnosticReport, frozen_blocks
from creditscope.models import ResMLP

Array = np.ndarray[Any, Any]
EPS = 1e-5
DEPTH, WIDTH, N_IN, CLASSES = 3, 16, 12, 5


def layer_norm(h: Array, gain: Array, bias: Array) -> tuple[Array, Any]:
    centred = h - h.mean(1, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(1, keepdims=True) + h.dtype.type(EPS))
    unit = centred / deviation

    def back(d: Array) -> Array:
        d = d * gain
        return (d - d.mean(1, keepdims=True) - unit * (d * unit).mean(1, keepdims=True)) / deviation

    return unit * gain + bias, back


def gelu(z: Array) -> tuple[Array, Array]:
    """(value, derivative)"""
    half = z.dtype.type(0.5)
    below = half * (1 + erf(z / z.dtype.type(math.sqrt(2))))
    return z * below, below + z * np.exp(-half * z * z) / z.dtype.type(math.sqrt(2 * math.pi))


@dataclass
class NumpyResMLP:
    """w: the state dict of `creditscope.models.ResMLP` as numpy arrays."""

    w: Mapping[str, Array]
    depth: int = DEPTH

    def embed(self, x: Array) -> Array:
        return x @ self.w["embed.linear.weight"].T + self.w["embed.linear.bias"]

    def step(self, layer: int, h: Array) -> tuple[Array, Any]:
        w = {k.removeprefix(f"blocks.{layer}."): v for k, v in self.w.items() if k.startswith(f"blocks.{layer}.")}
        unit, through_norm = layer_norm(h, w["norm.weight"], w["norm.bias"])
        act, slope = gelu(unit @ w["linear1.weight"].T + w["linear1.bias"])
        after = h + act @ w["linear2.weight"].T + w["linear2.bias"]
        return after, lambda d: d + through_norm(((d @ w["linear2.weight"]) * slope) @ w["linear1.weight"])

    def readout(self, h: Array) -> tuple[Array, Any]:
        unit, back = layer_norm(h, self.w["out_ln.weight"], self.w["out_ln.bias"])
        return unit @ self.w["out_head.weight"].T + self.w["out_head.bias"], lambda d: back(
            d @ self.w["out_head.weight"]
        )

    def states(self, x: Array) -> list[Array]:
        hs = [self.embed(x)]
        for layer in range(self.depth):
            hs.append(self.step(layer, hs[-1])[0])
        return hs

    def batch(self, x: Array, y: Array) -> dict[str, Any]:
        """h, g, logits of the per-sample cross-entropy."""
        hs = self.states(x)
        logits, back = self.readout(hs[-1])
        error = softmax(logits, axis=1)
        error[np.arange(len(y)), y] -= 1
        gs = [back(error)]
        for layer in reversed(range(self.depth)):
            gs.insert(0, self.step(layer, hs[layer])[1](gs[0]))
        return {"h": hs, "g": gs, "logits": logits, "labels": y, "x": x}

    def loss_from(self, layer: int, h: Array, y: Array) -> Array:
        for k in range(layer, self.depth):
            h = self.step(k, h)[0]
        logits = self.readout(h)[0]
        return logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]


def network(dtype: torch.dtype = torch.float64) -> ResMLP:
    """A ResMLP whose branches are not small, so that every layer differs."""
    torch.manual_seed(3)
    model = ResMLP(N_IN, CLASSES, width=WIDTH, depth=DEPTH)
    for p in model.parameters():
        p.data += 0.3 * torch.randn_like(p)
    return model.to(dtype).eval()


def weights(model: torch.nn.Module, dtype: Any = None) -> dict[str, Array]:
    return {k: v.numpy().astype(dtype or v.numpy().dtype) for k, v in model.state_dict().items()}


def samples(sizes: tuple[int, ...], seed: int, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(sizes), N_IN, generator=rng, dtype=torch.float64)
    y = (x[:, :CLASSES] + 0.3 * torch.randn(len(x), CLASSES, generator=rng, dtype=torch.float64)).argmax(1)
    return list(zip(x.to(dtype).split(list(sizes)), y.split(list(sizes)), strict=True))


FEEDBACK = np.random.default_rng(5).standard_normal((DEPTH + 1, CLASSES, WIDTH))


def direct_feedback(logits: Array, y: Array) -> list[Array]:
    """DFA: a_l = e B_l."""
    e = softmax(np.asarray(logits, dtype=np.float64), axis=1)
    e[np.arange(len(y)), y] -= 1
    return [(e @ b).astype(logits.dtype) for b in FEEDBACK]


def torch_rule(hiddens: list[Tensor], logits: Tensor, y: Tensor) -> list[Tensor]:
    return [torch.from_numpy(a) for a in direct_feedback(logits.numpy(), y.numpy())]


def twin_of(model: ResMLP) -> ResMLP:
    """What `depth_profile` takes for the twin: seed 0, the embedding kept."""
    return frozen_blocks(model, seed=0, rest="keep")  # type: ignore[return-value]


TEXT = {
    "convention.mode",
    "stream.notes",
    "alignment.counting_note",
    "perturbation.dtype",
    "nudging.dtype",
    "profile.notes",
    "profile.rest",
}
"""Words that say where the numbers come from."""


def same(ours: DiagnosticReport, theirs: DiagnosticReport, rtol: float, atol: float, but: tuple[str, ...] = ()) -> None:
    """Every field of the facts, the checks and the verdict."""
    a, b = (dict(flat(r.to_dict()["facts"])) for r in (ours, theirs))
    skipped = tuple(TEXT) + but
    a, b = ({k: v for k, v in x.items() if not k.startswith(skipped)} for x in (a, b))
    assert a.keys() == b.keys()
    for key, value in b.items():
        if isinstance(value, float) and not isinstance(value, bool):
            assert a[key] == pytest.approx(value, rel=rtol, abs=atol), key
        else:
            assert a[key] == value, key
    assert ours.status == theirs.status
    assert {k: c.answer for k, c in ours.checks.items()} == {k: c.answer for k, c in theirs.checks.items()}


def flat(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        for k, v in value.items():
            yield from flat(v, f"{name}.{k}" if name else k)
    elif isinstance(value, list):
        yield f"{name}.len", len(value)
        for k, v in enumerate(value):
            yield from flat(v, f"{name}.{k}")
    else:
        yield name, value
