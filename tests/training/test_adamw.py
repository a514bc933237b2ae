"""The optimiser against torch's own class, to the bit, and against the formula in float64."""

from __future__ import annotations

import pytest
import torch
from tests.known import known
from torch import Tensor

from creditscope.credit.adamw import AdamW


def weights(seed: int = 0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    shapes = {"w": (7, 5), "b": (7,), "unused": (3,)}
    return {name: torch.randn(shape, generator=g).requires_grad_() for name, shape in shapes.items()}


def give_gradients(params: dict[str, Tensor], step: int) -> None:
    g = torch.Generator().manual_seed(100 + step)
    for name, p in params.items():
        p.grad = None if name == "unused" else torch.randn(p.shape, generator=g)


@pytest.mark.parametrize("joins", [0, 3])
def test_it_is_torchs_fused_adamw_to_the_bit(joins):
    """Also where a parameter joins later: it counts its own steps."""
    ours, theirs = weights(), weights()
    mine = AdamW(ours, lr=0.01, weight_decay=0.1)
    reference = torch.optim.AdamW(theirs.values(), lr=0.01, weight_decay=0.1, fused=True)
    for step in range(20):
        mine.lr = reference.param_groups[0]["lr"] = 0.01 * (1 - step / 20)
        for params in (ours, theirs):
            give_gradients(params, step)
            if step < joins:
                params["b"].grad = None
        mine.step()
        reference.step()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert torch.equal(ours["unused"], weights()["unused"])


def test_it_follows_the_formula():
    params = weights()
    optimizer = AdamW(params, lr=0.01, weight_decay=0.1)
    w = params["w"].detach().double().clone()
    m, v = torch.zeros_like(w), torch.zeros_like(w)
    for t in range(1, 31):
        give_gradients(params, t)
        grad = params["w"].grad
        g = known(grad).double()
        optimizer.step()
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - 0.01 * 0.1 * w - 0.01 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    torch.testing.assert_close(params["w"].double(), w, rtol=1e-5, atol=1e-6)


def test_memory_may_be_in_any_order():
    """The kernel walks over memory: parameter, gradient and moments must lie alike, also after a state came back."""
    rows, columns = (weights()["w"].detach() for _ in range(2))
    columns = columns.t().contiguous().t()
    found = []
    for w in (rows, columns):
        p = {"w": w.requires_grad_()}
        optimizer = AdamW(p, 0.01, 0.1)
        for step in range(4):
            if step == 2:
                state = {name: t.contiguous() for name, t in optimizer.state().items()}
                optimizer = AdamW(p, 0.01, 0.1)
                optimizer.load(state)
            give_gradients(p, step)
            optimizer.step()
        found.append(w.detach())
    assert found[1].stride() == (1, 7)
    assert torch.equal(*found)


def test_what_state_gave_goes_on_to_the_same_bits():
    whole, first = weights(), weights()
    one, two = AdamW(whole, 0.01, 0.1), AdamW(first, 0.01, 0.1)
    assert not two.started()
    for step in range(4):
        give_gradients(whole, step)
        one.step()
        if step < 2:
            give_gradients(first, step)
            two.step()
    assert two.started()
    second = {name: p.detach().clone().requires_grad_() for name, p in first.items()}
    three = AdamW(second, 0.01, 0.1)
    three.load(two.state())
    for step in (2, 3):
        give_gradients(second, step)
        three.step()
    assert all(torch.equal(whole[name], second[name]) for name in whole)
    three.zero_grad()
    assert all(p.grad is None for p in second.values())
