"""A residual network small enough to be trained in milliseconds, for reproducers that need a trained one.

    h_0 = x W_0,   h_{l+1} = h_l + tanh(h_l U_l) V_l,   logits = h_L H

Everything is float64, written out by hand (no autograd), drawn from its own generator. The credit of DFA is a_l = e B_l;
block l learns from a_l by the local objective <f_l(h_l), a_l>, as in PROTOCOL.md (credit_site input, credit_norm none).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

N_IN, WIDTH, CLASSES, DEPTH = 8, 16, 4, 2
N_TRAIN, N_TEST = 256, 1000


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, rng: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=rng, dtype=torch.float64)


@dataclass
class Task:
    """Labels by the largest of CLASSES random scores, linear with a small quadratic part: depth helps a little."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


def make_task(seed: int = 0) -> Task:
    rng = generator(seed)
    linear, forms = randn(N_IN, CLASSES, rng=rng), randn(CLASSES, N_IN, N_IN, rng=rng) * 0.1
    x, test_x = randn(N_TRAIN, N_IN, rng=rng), randn(N_TEST, N_IN, rng=rng)

    def label(x: Tensor) -> Tensor:
        return (x @ linear + torch.einsum("ni,cij,nj->nc", x, forms, x)).argmax(1)

    return Task(x, label(x), test_x, label(test_x))


@dataclass
class Net:
    W0: Tensor
    U: list[Tensor]
    V: list[Tensor]
    H: Tensor
    B: list[Tensor]
    """Feedback matrices [CLASSES, WIDTH], one per state h_0..h_L."""


def make_net(seed: int) -> Net:
    rng = generator(seed)
    return Net(
        W0=randn(N_IN, WIDTH, rng=rng) / N_IN**0.5,
        U=[randn(WIDTH, WIDTH, rng=rng) / WIDTH**0.5 for _ in range(DEPTH)],
        V=[randn(WIDTH, WIDTH, rng=rng) * 0.05 for _ in range(DEPTH)],
        H=randn(WIDTH, CLASSES, rng=rng) / WIDTH**0.5,
        B=feedback(rng),
    )


def feedback(rng: torch.Generator) -> list[Tensor]:
    return [randn(CLASSES, WIDTH, rng=rng) / CLASSES**0.5 for _ in range(DEPTH + 1)]


def states(net: Net, x: Tensor) -> list[Tensor]:
    """h_0..h_L, each [n, WIDTH]."""
    h = [x @ net.W0]
    for u, v in zip(net.U, net.V, strict=True):
        h.append(h[-1] + torch.tanh(h[-1] @ u) @ v)
    return h


def error(net: Net, h: Tensor, y: Tensor) -> Tensor:
    """e = softmax - onehot, [n, CLASSES]: the gradient of each sample's own loss at the logits."""
    return torch.softmax(h @ net.H, 1) - F.one_hot(y, CLASSES)


def reference(net: Net, x: Tensor, y: Tensor) -> list[Tensor]:
    """g_0..g_L of the per-sample loss."""
    h = states(net, x)
    g = [error(net, h[-1], y) @ net.H.T]
    for below, u, v in zip(h[-2::-1], net.U[::-1], net.V[::-1], strict=True):
        slope = 1 - torch.tanh(below @ u) ** 2
        g.append(g[-1] + ((g[-1] @ v.T) * slope) @ u.T)
    return g[::-1]


def train_dfa(net: Net, task: Task, steps: int, lr: float = 0.3, frozen: bool = False) -> Net:
    """Full-batch gradient descent in place; `frozen` leaves the blocks at their initialisation (matched null)."""
    n = len(task.x)
    for _ in range(steps):
        h = states(net, task.x)
        e = error(net, h[-1], task.y)
        a = [e @ b / n for b in net.B]
        step_h = h[-1].T @ e / n
        if not frozen:
            for layer in range(DEPTH):
                t = torch.tanh(h[layer] @ net.U[layer])
                back = (a[layer] @ net.V[layer].T) * (1 - t**2)
                net.V[layer] = net.V[layer] - lr * t.T @ a[layer]
                net.U[layer] = net.U[layer] - lr * h[layer].T @ back
        net.W0 = net.W0 - lr * task.x.T @ a[0]
        net.H = net.H - lr * step_h
    return net


def accuracy(net: Net, x: Tensor, y: Tensor) -> float:
    logits = states(net, x)[-1] @ net.H
    return float((logits.argmax(1) == y).double().mean())


def cosine(a: Tensor, g: Tensor) -> Tensor:
    """Per-sample cosine [n] of two [n, d] in float64, NaN where a vector is zero."""
    a, g = a.double(), g.double()
    return (a * g).sum(1) / (a.square().sum(1).sqrt() * g.square().sum(1).sqrt())


def layers(seed: int, cosines: Sequence[float], sizes: Sequence[float]) -> tuple[list[Tensor], list[Tensor]]:
    """a, g: layers of [64, 32], each with its cosine between the two and its size of g."""
    rng = generator(seed)
    g = [randn(64, 32, rng=rng) * size for size in sizes]
    return [with_cosine(x, cos, rng) for x, cos in zip(g, cosines, strict=True)], g


def with_cosine(g: Tensor, cos: float, rng: torch.Generator) -> Tensor:
    """A vector per row of g [n, d] with exactly this cosine to it and length 1."""
    unit = g / g.square().sum(1, keepdim=True).sqrt()
    other = randn(*g.shape, rng=rng)
    other = other - (other * unit).sum(1, keepdim=True) * unit
    other = other / other.square().sum(1, keepdim=True).sqrt()
    return cos * unit + (1 - cos**2) ** 0.5 * other
