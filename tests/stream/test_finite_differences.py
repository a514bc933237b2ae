"""g_l against central differences of the loss in float64, on every architecture; once through numpy alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from creditscope import diagnose
from creditscope.models import ResMLP, SmallCNN, StudentNet, ViTMini
from creditscope.stream.interface import Stream, make_stream
from creditscope.stream.untouched import untouched

from .nets import D_IN, Array, C, EncoderClassifier, T, batch, floats, norms, shaken

EPS = 1e-6


def resmlp() -> tuple[Any, tuple[int, ...]]:
    return ResMLP(D_IN, C, width=8, depth=2, ratio=2), (D_IN,)


def student() -> tuple[Any, tuple[int, ...]]:
    return StudentNet(D_IN, C, width=8, depth=2), (D_IN,)


def vit() -> tuple[Any, tuple[int, ...]]:
    return ViTMini(C, width=8, depth=2, size=8), (3, 8, 8)


def small_cnn() -> tuple[Any, tuple[int, ...]]:
    return SmallCNN(C, width=8, size=4), (3, 4, 4)


def encoder_mean() -> tuple[Any, tuple[int, ...]]:
    return EncoderClassifier("mean", batch_first=False), (T - 1, D_IN)


def states(stream: Stream, x: Tensor) -> list[Tensor]:
    seen: list[Tensor] = []
    stream.forward(x, lambda layer, value, handle: seen.append(value.detach().clone()))
    return seen


def differences(stream: Stream, layer: int, h: Tensor, x: Tensor, y: Tensor, stride: int = 1) -> Tensor:
    """[B, d] by central differences: one feature (of every `stride`) of the read vector at a time, all samples at once.

    cls: the first token is moved; mean: all tokens move together (the derivative along a common shift).
    """
    width = stream.widths[layer]
    columns = []
    for k in range(0, width, stride):
        step = torch.zeros(len(y), width, dtype=h.dtype)
        step[:, k] = EPS
        if stream.read == "cls":
            move = torch.zeros_like(h)
            move[:, 0] = step
        elif stream.read == "mean":
            move = step.unsqueeze(0 if stream.batch_dim else 1).expand_as(h)
        else:
            move = step.view_as(h)
        up = F.cross_entropy(stream.logits_from(layer, h + move, x), y, reduction="none")
        down = F.cross_entropy(stream.logits_from(layer, h - move, x), y, reduction="none")
        columns.append((up - down) / (2 * EPS))
    return torch.stack(columns, dim=1)


@pytest.mark.parametrize("make", [resmlp, student, vit, small_cnn, encoder_mean])
def test_gradient_at_every_layer_equals_central_differences(make):
    torch.manual_seed(0)
    net, shape = make()
    model = shaken(net, std=0.4).double()
    n = 1 if isinstance(net, SmallCNN) else 2
    x, y = batch(shape, n=n)
    x = x.double()
    blocks = "encoder.layers.*" if isinstance(net, EncoderClassifier) else None
    with untouched(model), torch.no_grad():
        stream = make_stream(model, x, n, blocks)
        expected = [differences(stream, layer, h, x, y) for layer, h in enumerate(states(stream, x))]
    # the differences handed in as the credit: their cosine with g_l must be 1, their norm ‖g_l‖
    facts = diagnose(model, [(x, y)], credit=lambda hiddens, logits, y: expected, blocks=blocks).facts
    assert facts.alignment is not None
    for layer, g in enumerate(expected):
        size, mean = norms(g).mean(), facts.alignment.mean[layer]
        assert size > 1e-4, "a vanishing gradient would prove nothing"
        assert facts.reference.per_sample[layer] == pytest.approx(size, rel=1e-5)
        assert facts.alignment.credit_norm[layer] == pytest.approx(size, rel=1e-12)
        # relative error r of a vector bounds its angle: 1 - cos <= r^2 / 2
        assert mean is not None
        assert 1 - mean < 1e-10 / 2


@pytest.mark.parametrize("make", [resmlp, vit, small_cnn])
def test_gradient_vectors_themselves_are_within_1e_5_of_central_differences(make):
    torch.manual_seed(0)
    net, shape = make()
    model = shaken(net, std=0.4).double().eval()
    x, y = batch(shape, n=2)
    x = x.double()
    grads: dict[int, Tensor] = {}
    handles: list[Tensor] = []

    def tap(layer: int, value: Tensor, handle: Tensor) -> None:
        handles.append(handle)
        handle.register_hook(lambda g: grads.__setitem__(layer, g))

    stream = make_stream(model, x, 2)
    F.cross_entropy(stream.forward(x, tap), y, reduction="sum").backward()
    with torch.no_grad():
        for layer, h in enumerate(handles):
            stride = -(-stream.widths[layer] // 64)
            expected = differences(stream, layer, h.detach(), x, y, stride)
            error = (stream.read_grad(grads[layer])[:, ::stride] - expected).norm() / expected.norm()
            assert error < 1e-5


def numpy_losses(p: dict[str, Array], layer: int, h: Array, y: Array, depth: int) -> Array:
    """Per-sample cross-entropy of a ResMLP from h_layer on, in numpy alone."""

    def norm(z: Array, name: str) -> Array:
        centred = z - z.mean(1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
        return scaled * p[f"{name}.weight"] + p[f"{name}.bias"]

    def linear(z: Array, name: str) -> Array:
        return z @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def gelu(z: Array) -> Array:
        return 0.5 * z * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))

    for k in range(layer, depth):
        inner = gelu(linear(norm(h, f"blocks.{k}.norm"), f"blocks.{k}.linear1"))
        h = h + linear(inner, f"blocks.{k}.linear2")
    z = linear(norm(h, "out_ln"), "out_head")
    z = z - z.max(1, keepdims=True)
    return np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y.astype(int)]


def test_resmlp_gradient_equals_differences_of_a_numpy_network_that_shares_no_code():
    model = shaken(ResMLP(D_IN, C, width=8, depth=2, ratio=2), std=0.4).double()
    x, y = batch((D_IN,), n=3)
    p = {name: t.detach().numpy() for name, t in model.state_dict().items()}
    h = x.double().numpy() @ p["embed.linear.weight"].T + p["embed.linear.bias"]
    expected: list[Tensor] = []
    labels = y.numpy()
    hiddens = [h]
    for k in range(2):  # h_{k+1} through the loss function's own recursion is not visible: advance by one block
        hiddens.append(_advance(p, k, hiddens[-1]))
    for layer, state in enumerate(hiddens):
        g = np.zeros_like(state)
        for j in range(8):
            step = np.zeros_like(state)
            step[:, j] = EPS
            up = numpy_losses(p, layer, state + step, labels, 2)
            g[:, j] = (up - numpy_losses(p, layer, state - step, labels, 2)) / (2 * EPS)
        expected.append(torch.from_numpy(g))
    facts = diagnose(model, [(x.double(), y)], credit=lambda *_: expected).facts
    assert facts.alignment is not None
    np.testing.assert_allclose(facts.scale.mean, [np.linalg.norm(s, axis=1).mean() for s in hiddens], rtol=1e-10)
    np.testing.assert_allclose(facts.reference.per_sample, [norms(g).mean() for g in expected], rtol=1e-5)
    np.testing.assert_allclose(floats(facts.alignment.mean), 1, atol=1e-10 / 2)
    assert facts.loss == pytest.approx(numpy_losses(p, 0, h, labels, 2).mean(), rel=1e-10)


def _advance(p: dict[str, Array], k: int, h: Array) -> Array:
    mean, var = h.mean(1, keepdims=True), h.var(1, keepdims=True)
    z = (h - mean) / np.sqrt(var + 1e-5) * p[f"blocks.{k}.norm.weight"] + p[f"blocks.{k}.norm.bias"]
    z = z @ p[f"blocks.{k}.linear1.weight"].T + p[f"blocks.{k}.linear1.bias"]
    z = z * 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    return h + z @ p[f"blocks.{k}.linear2.weight"].T + p[f"blocks.{k}.linear2.bias"]
