"""Relatives of DFA against their formulas: sign, target, sparse, and inside the blocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from creditscope.credit.registry import make_rule
from creditscope.models import ViTMini
from creditscope.stream.interface import InterfaceStream

from .zoo_nets import C, D, Forward, L, Setting

SIGNALS: dict[str, Any] = {
    "sdfa": lambda e, y: torch.where(e > 0, 1.0, -1.0).double(),
    "drtp": lambda e, y: -torch.eye(C, dtype=torch.float64)[y],
    "sparse-dfa": lambda e, y: e,
}


@pytest.mark.parametrize("name", list(SIGNALS))
def test_credit_is_the_signal_through_one_matrix_per_layer(name):
    s = Setting(name)
    way = Forward(s.model, s.x, s.y)
    signal = SIGNALS[name](way.e, s.y)
    for layer, a in enumerate(s.rule.credit(s.batch())):
        expected = torch.stack([s.rule.B[layer].double().T @ row for row in signal])
        torch.testing.assert_close(a, expected, msg=f"a_{layer}")


@pytest.mark.parametrize("name", list(SIGNALS))
def test_a_block_learns_from_the_credit_at_its_output(name):
    """Site output: autograd of <f_l(h_l), a_{l+1}> with h_l held."""
    s = Setting(name)
    way, found, credits = Forward(s.model, s.x, s.y), s.gradients(), s.rule.credit(s.batch())
    for layer, block in enumerate(s.model.blocks):
        objective = (block(way.h[layer].detach()) * credits[layer + 1]).sum() / len(s.y)
        s.assert_follows(found, f"blocks.{layer}", objective)


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_sparse_feedback_has_the_share_of_entries_and_the_same_size(share):
    s = Setting("sparse-dfa", share=share)
    s.rule.setup(_Wide(), 10, torch.Generator().manual_seed(0))
    (b,) = s.rule.B
    assert int((b != 0).sum()) == round(share * b.numel())
    assert float(b.square().sum(0).mean()) == pytest.approx(1.0, rel=0.1)  # as of N(0, 1)/sqrt(C) entries


class _Wide:
    feedback_widths = (2000,)


def test_every_sublayer_gets_an_error_of_its_own():
    s = Setting("dfa-sublayers")
    way, found = Forward(s.model, s.x, s.y), s.gradients()
    sent = {k: way.e @ m.double() for k, m in s.rule.S.items()}
    assert {k: tuple(m.shape) for k, m in s.rule.S.items()} == {
        f"{layer}.linear{i}.weight": (C, D) for layer in range(L) for i in (1, 2)
    }
    for layer in range(L):
        f = way.e @ s.rule.B[layer + 1].double()
        expected = way.block_gradients(layer, f, sent[f"{layer}.linear2.weight"], sent[f"{layer}.linear1.weight"])
        for key, wanted in expected.items():
            torch.testing.assert_close(found[key], wanted.detach(), rtol=1e-6, atol=1e-9, msg=key)
    a0 = way.e @ s.rule.B[0].double()
    torch.testing.assert_close(found["embed.linear.weight"], a0.T @ s.x / len(s.y))


def test_in_a_transformer_no_gradient_crosses_a_weight_matrix():
    """qkv hears of the feedback at the input of proj alone; the weights behind it do not matter."""
    torch.manual_seed(0)
    model: Any = ViTMini(4, width=8, depth=1, patch=2, size=4).double()
    x, y = torch.randn(3, 3, 4, 4, dtype=torch.float64), torch.randint(0, 4, (3,))
    stream = InterfaceStream(model.eval(), x)
    rule: Any = make_rule("dfa-sublayers")
    rule.setup(stream, 4, torch.Generator().manual_seed(0))
    assert set(rule.S) == {f"0.{n}.weight" for n in ("qkv", "proj", "linear1", "linear2")}
    rule.backward(stream, x, y, 0, 0.0)
    block, h = model.blocks[0], model.embed(x).detach()
    with torch.no_grad():
        e = torch.softmax(model(x), 1) - F.one_hot(y, 4)
    q, k, v = block.qkv(block.norm1(h).detach()).view(3, 5, 3, 4, 2).permute(2, 0, 3, 1, 4)
    weights = torch.softmax(q @ k.transpose(-1, -2) / 2**0.5, -1)
    entered = (weights @ v).transpose(1, 2).reshape(3, 5, 8)
    push = (e @ rule.S["0.proj.weight"].double()).unsqueeze(1)
    (g,) = torch.autograd.grad((entered * push).sum() / 3, block.qkv.weight)
    torch.testing.assert_close(block.qkv.weight.grad, g)
