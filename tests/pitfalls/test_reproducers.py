"""Every reproducer: the right value against a second computation, the wrong value against its closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.refusals import refusal

from creditscope.pitfalls import PITFALLS, Reproduction, get_pitfall, pf05_aggregation, tiny
from creditscope.pitfalls.base import times


@pytest.fixture(scope="module")
def done() -> dict[int, Reproduction]:
    before = torch.get_rng_state()
    result = {p.number: p.reproduce() for p in PITFALLS}
    assert torch.equal(before, torch.get_rng_state()), "reproducers draw from their own generators"
    return result


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def twin(net: tiny.Net, task: tiny.Task, steps: int, frozen: bool, lr: float = 0.3) -> tiny.Net:
    """DFA by autograd on the local objectives: a second way to the same weights."""
    weights = [net.W0, *net.U, *net.V, net.H]
    for _ in range(steps):
        leaves = [w.detach().clone().requires_grad_() for w in weights]
        w0, u, v, head = leaves[0], leaves[1:3], leaves[3:5], leaves[5]
        h = [task.x @ w0]
        branches = []
        for k in range(2):
            branches.append(torch.tanh(h[-1].detach() @ u[k]) @ v[k])
            h.append(h[-1].detach() + branches[-1])
        logits = h[-1].detach() @ head
        loss = F.cross_entropy(logits, task.y)
        e = (torch.softmax(logits, 1) - F.one_hot(task.y, 4)).detach()
        total = loss + (h[0] * (e @ net.B[0])).sum(1).mean()
        if not frozen:
            total = total + sum((f * (e @ net.B[k])).sum(1).mean() for k, f in enumerate(branches))
        grads: tuple[torch.Tensor | None, ...] = torch.autograd.grad(total, leaves, allow_unused=True)
        weights = [w if g is None else w - lr * g for w, g in zip(weights, grads, strict=True)]
    return tiny.Net(weights[0], weights[1:3], weights[3:5], weights[5], net.B)


def gradient_size(h: torch.Tensor, head: torch.Tensor, y: torch.Tensor) -> float:
    """Mean per-sample ‖g‖ behind a layer norm without weights and a linear head, by its formula."""
    spread = h.std(1, keepdim=True, correction=0)
    z = (h - h.mean(1, keepdim=True)) / spread
    back = (torch.softmax(z @ head, 1) - F.one_hot(y, head.shape[1])) @ head.T
    back = (back - back.mean(1, keepdim=True) - z * (back * z).mean(1, keepdim=True)) / spread
    return back.norm(dim=1).mean().item()


def twin_accuracy(seed: int, steps: int, frozen: bool) -> float:
    task = tiny.make_task()
    net = twin(tiny.make_net(seed), task, steps, frozen)
    h = task.test_x @ net.W0
    for u, v in zip(net.U, net.V, strict=True):
        h = h + torch.tanh(h @ u) @ v
    return ((h @ net.H).argmax(1) == task.test_y).double().mean().item()


def test_the_catalogue_is_whole() -> None:
    assert [p.number for p in PITFALLS] == list(range(1, 16))
    assert [p.id for p in PITFALLS][:2] == ["PF01", "PF02"]
    assert all(p.title and p.why and p.fix and p.tensors is not None for p in PITFALLS)
    assert len({p.title for p in PITFALLS}) == 15


@pytest.mark.parametrize("name", [2, "2", "02", "PF02", "pf2", " PF02 "])
def test_a_pitfall_by_name(name: str | int) -> None:
    assert get_pitfall(name).number == 2


@pytest.mark.parametrize("name", ["", "0", "16", "PF", "-1", "norm", "²"])
def test_an_unknown_pitfall_is_one_line(name: str) -> None:
    assert "from 1 to 15" in refusal(lambda: get_pitfall(name))


def test_factor() -> None:
    assert times(2.0, -8.0) == 4
    assert times(8, 2) == 4
    assert times(0.0, 0.0) == 1
    assert math.isinf(times(0.0, 1e-9))


def test_every_reproducer_differs_by_its_factor(done: dict[int, Reproduction]) -> None:
    for r in done.values():
        assert math.isfinite(r.wrong)
        assert math.isfinite(r.right)
        assert r.factor > 1.03, r
        if math.isfinite(r.factor):
            assert math.isclose(abs(max(r.wrong, r.right, key=abs)), r.factor * abs(min(r.wrong, r.right, key=abs)))
        assert r.what
        assert r.sentence
        assert "\n" not in r.sentence


def test_pf01(done: dict[int, Reproduction]) -> None:
    h = torch.randn(64, 256, generator=rng(1)).numpy().astype(np.float64)
    assert math.isclose(done[1].right, np.sqrt((h**2).sum(1)).mean(), rel_tol=1e-5)
    assert math.isclose(done[1].wrong, 1 / (1 / np.abs(h)).sum(), rel_tol=1e-3)


@pytest.mark.parametrize(
    ("number", "wrong", "right"),
    [(2, 0.5 * 1e-10 / 1e-8, 0.5), (6, 0.48 / 5, 0.03 / 4), (14, (60 + 40 * 0.1) / 100, 0.1)],
)
def test_closed_form(done: dict[int, Reproduction], number: int, wrong: float, right: float) -> None:
    assert (done[number].wrong, done[number].right) == pytest.approx((wrong, right), rel=1e-9)


def test_pf03_against_float64(done: dict[int, Reproduction]) -> None:
    g = rng(3)
    h = torch.randn(128, 64, generator=g).double() * 2e6
    head = (torch.randn(64, 10, generator=g) / 8).double()
    y = torch.randint(10, (128,), generator=g)
    assert math.isclose(done[3].right, gradient_size(h, head, y) / 128, rel_tol=1e-3)
    assert done[3].wrong == 0
    assert math.isinf(done[3].factor)


def test_pf04_against_autograd(done: dict[int, Reproduction]) -> None:
    task = tiny.make_task()
    net = twin(tiny.make_net(4), task, 60, frozen=False)
    h = [(task.test_x @ net.W0).requires_grad_()]
    for u, v in zip(net.U, net.V, strict=True):
        h.append(h[-1] + torch.tanh(h[-1] @ u) @ v)
    logits = h[-1] @ net.H
    g = torch.autograd.grad(F.cross_entropy(logits, task.test_y, reduction="sum"), h)
    e = (torch.softmax(logits, 1) - F.one_hot(task.test_y, 4)).detach()

    def gamma(feedback: list[torch.Tensor]) -> float:
        return float(np.mean([F.cosine_similarity(e @ b, x, eps=0).mean() for b, x in zip(feedback, g, strict=True)]))

    draw = rng(40)
    fresh = [[torch.randn(4, 16, generator=draw, dtype=torch.float64) / 2 for _ in range(3)] for _ in range(20)]
    assert math.isclose(done[4].wrong, gamma(net.B), abs_tol=1e-6)
    assert math.isclose(done[4].right, float(np.mean([gamma(b) for b in fresh])), abs_tol=1e-6)
    assert done[4].wrong > 0.2
    assert abs(done[4].right) < 0.06


def test_pf05_changes_sign(done: dict[int, Reproduction]) -> None:
    a, g = ([x.numpy() for x in part] for part in tiny.layers(5, **pf05_aggregation.EXAMPLE))
    cos = [
        np.mean([x @ y / np.sqrt((x @ x) * (y @ y)) for x, y in zip(p, q, strict=True)])
        for p, q in zip(a, g, strict=True)
    ]
    size = [np.linalg.norm(q, axis=1).mean() for q in g]
    assert math.isclose(done[5].right, (0.3 - 0.2 - 0.2) / 3, rel_tol=1e-9)
    assert math.isclose(done[5].right, float(np.mean(cos)), rel_tol=1e-9)
    assert math.isclose(done[5].wrong, float(np.average(cos, weights=size)), rel_tol=1e-9)
    assert done[5].wrong > 0 > done[5].right


def test_pf07(done: dict[int, Reproduction]) -> None:
    g = rng(7)
    # the second network draws a head too before it is overwritten by load_state_dict
    shapes = ((16, 4), (4, 16), (16, 4), (128, 4))
    head, b, _, e = (torch.randn(shape, generator=g, dtype=torch.float64).numpy() for shape in shapes)
    a, ref = e @ b, e @ head.T
    right = np.mean((a * ref).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(ref, axis=1))
    assert math.isclose(done[7].right, right, rel_tol=1e-9)
    assert math.isclose(done[7].wrong, 1.0, rel_tol=1e-12)


def test_pf08(done: dict[int, Reproduction]) -> None:
    assert math.isclose(done[8].right, 0.4, rel_tol=1e-9)
    assert abs(done[8].wrong) < 0.05


def test_pf09_and_pf12_against_autograd(done: dict[int, Reproduction]) -> None:
    acc = twin_accuracy(9, 60, frozen=False)
    assert math.isclose(done[9].right, 100 * (acc - twin_accuracy(9, 60, frozen=True)), abs_tol=0.11)
    assert math.isclose(done[9].wrong, 100 * (acc - twin_accuracy(9, 5, frozen=True)), abs_tol=0.11)
    acc = twin_accuracy(12, 60, frozen=False)
    assert math.isclose(done[12].wrong, 100 * (acc - 0.25), abs_tol=0.11)
    assert math.isclose(done[12].right, 100 * (acc - twin_accuracy(12, 60, frozen=True)), abs_tol=0.11)
    assert done[9].wrong > done[9].right + 5
    assert done[12].wrong > done[12].right + 30


def test_pf10_against_the_formula_of_batch_norm(done: dict[int, Reproduction]) -> None:
    g = rng(10)
    head = torch.randn(32, 5, generator=g, dtype=torch.float64) / 32**0.5
    x = torch.randn(128, 32, generator=g, dtype=torch.float64)
    onehot = F.one_hot(torch.randint(5, (128,), generator=g), 5)

    def back(z: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(z @ head, 1) - onehot) @ head.T

    std = (torch.linspace(0.05, 4.0, 32, dtype=torch.float64) + 1e-5).sqrt()
    in_eval = back(x / std) / std
    std = (x.var(0, correction=0) + 1e-5).sqrt()
    z = (x - x.mean(0)) / std
    d = back(z)
    in_train = (d - d.mean(0) - z * (d * z).mean(0)) / std
    assert math.isclose(done[10].wrong, F.cosine_similarity(in_train, in_eval, eps=0).mean().item(), rel_tol=1e-6)
    assert math.isclose(done[10].right, 1.0, rel_tol=1e-9)


def test_pf11(done: dict[int, Reproduction]) -> None:
    g = rng(11)
    h = first = torch.randn(64, 32, generator=g, dtype=torch.float64).numpy()
    for _ in range(3):
        h = h @ (np.eye(32) + 5 * torch.randn(32, 32, generator=g, dtype=torch.float64).numpy())
    size = [np.sqrt((x**2).sum(1)).mean() for x in (first, h)]
    assert math.isclose(done[11].right, size[1] / size[0], rel_tol=1e-9)
    assert math.isclose(done[11].wrong, 1.0, rel_tol=1e-9)


def test_pf13_against_the_formula_of_layer_norm(done: dict[int, Reproduction]) -> None:
    g = rng(13)
    h = torch.randn(1024, 32, generator=g, dtype=torch.float64) * 1e4
    head = torch.randn(32, 4, generator=g, dtype=torch.float64) * 0.05
    y = torch.randint(4, (1024,), generator=g)
    each = gradient_size(h, head, y)
    assert math.isclose(done[13].right, each / 128, rel_tol=1e-9)
    assert math.isclose(done[13].wrong, each / 1024, rel_tol=1e-9)
    assert done[13].wrong < 1e-7 < done[13].right, "the verdict of D2 turns with the batch"


def test_pf15_by_normal_equations(done: dict[int, Reproduction]) -> None:
    task = tiny.make_task(15)
    accs = []
    for seed in range(20):
        w = torch.randn(8, 24, generator=rng(seed), dtype=torch.float64).numpy() / 8**0.5
        z, test = np.tanh(task.x[:64].numpy() @ w), np.tanh(task.test_x.numpy() @ w)
        readout = np.linalg.solve(z.T @ z, z.T @ np.eye(4)[task.y[:64].numpy()])
        accs.append(float(((test @ readout).argmax(1) == task.test_y.numpy()).mean()))
    assert math.isclose(done[15].right, float(np.mean(accs)), abs_tol=2e-4)
    assert math.isclose(done[15].wrong, float(np.mean(np.sort(accs)[-3:])), abs_tol=1e-3)
