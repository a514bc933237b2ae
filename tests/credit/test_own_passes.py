"""Rules with heads, inverses, relaxations or passes of their own, each against its formula written out once more."""

from __future__ import annotations

import copy
import math
from itertools import pairwise
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creditscope import CreditscopeError
from creditscope.credit.registry import make_rule
from creditscope.models import ResMLP, ViTMini
from creditscope.models.resmlp import MLPBranch
from creditscope.stream.interface import InterfaceStream

from .zoo_nets import D_IN, C, D, Forward, L, LinearStream, Setting


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return F.cosine_similarity(a, b, dim=1)


# ---- greedy ---------------------------------------------------------------------------------------------------------


def test_each_block_follows_the_loss_of_its_own_classifier():
    s = Setting("greedy")
    heads = [copy.deepcopy(head).double() for head in s.rule._heads()]
    s.rule.learn = lambda batch: None
    found, way = s.gradients(), Forward(s.model, s.x, s.y)
    readouts = [*heads, lambda h: s.model.out_head(s.model.out_ln(h))]
    for layer, block in enumerate(s.model.blocks):
        h = way.h[layer].detach()
        loss = F.cross_entropy(readouts[layer + 1](h + block(h)), s.y)
        s.assert_follows(found, f"blocks.{layer}", loss, rtol=1e-4, atol=1e-7)
    s.assert_follows(found, "embed", F.cross_entropy(heads[0](s.model.embed(s.x)), s.y), rtol=1e-4, atol=1e-7)


def test_the_classifiers_are_trained_by_adamw_on_their_own_loss():
    s = Setting("greedy", lr=0.01)
    heads = copy.deepcopy(s.rule._heads())
    s.gradients()
    way = Forward(s.model, s.x, s.y)
    for layer, (head, trained) in enumerate(zip(heads, s.rule._heads(), strict=True)):
        optimizer = torch.optim.AdamW(head.parameters(), lr=0.01, weight_decay=0.01)
        F.cross_entropy(head(way.h[layer].detach().float()), s.y).backward()
        optimizer.step()
        torch.testing.assert_close(trained.weight, head.weight, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["greedy", "dtp", "sb", "cb"])
def test_networks_of_a_rule_do_not_depend_on_the_default_dtype(name):
    found = Setting(name).gradients()
    torch.set_default_dtype(torch.float64)
    try:
        again = Setting(name).gradients()
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.keys() == again.keys()


# ---- predictive coding ------------------------------------------------------------------------------------------------


def energy(s: Setting, states: list[Tensor]) -> Tensor:
    """½ Σ‖h_l - prediction‖² + loss, summed over the batch."""
    predicted = [s.model.embed(s.x), *(h + block(h) for h, block in zip(states, s.model.blocks, strict=False))]
    squares = sum((0.5 * (h - p).square().sum() for h, p in zip(states, predicted, strict=True)), torch.zeros(()))
    return squares + F.cross_entropy(s.model.out_head(s.model.out_ln(states[-1])), s.y, reduction="sum")


def relaxed(s: Setting, steps: int, size: float) -> list[Tensor]:
    states = [h.detach().requires_grad_() for h in Forward(s.model, s.x, s.y).h]
    for _ in range(steps):
        grads = torch.autograd.grad(energy(s, states), states)
        states = [(h - size * g).detach().requires_grad_() for h, g in zip(states, grads, strict=True)]
    return states


def errors_relaxed(s: Setting, steps: int, size: float) -> list[Tensor]:
    """The states after gradient steps on the errors."""

    def unrolled(errors: list[Tensor]) -> list[Tensor]:
        states = [s.model.embed(s.x) + errors[0]]
        for block, e in zip(s.model.blocks, errors[1:], strict=True):
            states.append(states[-1] + block(states[-1]) + e)
        return states

    errors = [torch.zeros(len(s.y), D, dtype=torch.float64) for _ in range(L + 1)]
    for _ in range(steps):
        errors = [e.requires_grad_() for e in errors]
        top = unrolled(errors)[-1]
        loss = F.cross_entropy(s.model.out_head(s.model.out_ln(top)), s.y, reduction="sum")
        total = loss + sum((0.5 * e.square().sum() for e in errors), torch.zeros(()))
        errors = [(e - size * g).detach() for e, g in zip(errors, torch.autograd.grad(total, errors), strict=True)]
    return [h.detach() for h in unrolled(errors)]


@pytest.mark.parametrize(("name", "relax"), [("pc", relaxed), ("epc", errors_relaxed)])
def test_parameters_learn_from_the_prediction_errors_after_the_stated_steps(name, relax):
    s = Setting(name, steps=7, step_size=0.1)
    found, states = s.gradients(), relax(s, 7, 0.1)
    embed = [h.detach() for h in states]
    for part in ("embed", "blocks"):
        s.assert_follows(found, part, energy(s, embed) / len(s.y), rtol=1e-6, atol=1e-9)
    predicted = [s.model.embed(s.x), *(h + b(h) for h, b in zip(embed, s.model.blocks, strict=False))]
    for a, h, p in zip(s.rule.credit(s.batch()), embed, predicted, strict=True):
        torch.testing.assert_close(a, (p - h).detach(), rtol=1e-6, atol=1e-9)


def smooth(name: str) -> Setting:
    """No terminal LayerNorm and small branches: one minimum, and 250 steps reach it."""
    torch.manual_seed(0)
    model = ResMLP(D_IN, C, width=D, depth=L, terminal_norm=False)
    return Setting(name, model, shake=0.05, steps=250, step_size=0.3)


def test_both_reach_the_same_minimum():
    pc, epc = (smooth(name) for name in ("pc", "epc"))
    for a, b in zip(pc.rule.credit(pc.batch()), epc.rule.credit(epc.batch()), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    assert pc.rule.last[0].residual_max < 1e-6
    assert epc.rule.last[0].residual_max < 1e-6


def test_under_a_small_loss_the_energy_gives_backpropagation():
    s = smooth("pc")
    small = s.rule.relaxation.model_copy(update={"beta": 1e-4})
    rule = make_rule("ep", small.model_dump())
    for a, g in zip(rule.credit(s.batch()), make_rule("bp").credit(s.batch()), strict=True):
        torch.testing.assert_close(a, g, rtol=2e-3, atol=1e-5)


def test_the_first_step_over_errors_is_backpropagation():
    s = Setting("epc", steps=1, step_size=0.3)
    for a, g in zip(s.rule.credit(s.batch()), make_rule("bp").credit(s.batch()), strict=True):
        torch.testing.assert_close(a, 0.3 * g)


# ---- difference target propagation --------------------------------------------------------------------------------------


def test_on_an_invertible_linear_network_the_target_is_that_of_gauss_newton():
    s = Setting("dtp", LinearStream("plain", 4, 3))
    exact = []
    for block in s.model.blocks:
        inverse = nn.Linear(4, 4, bias=False)
        inverse.weight = nn.Parameter(torch.linalg.inv(block.weight.detach()).float())
        exact.append(inverse)
    s.rule.inverses = lambda: exact
    g: Any = s.batch().output_grad
    map_to_top = torch.eye(4, dtype=torch.float64)
    credits = s.rule.credit(s.batch())
    for layer in reversed(range(3)):
        map_to_top = map_to_top @ s.model.blocks[layer].weight.detach()
        step = torch.linalg.lstsq(map_to_top, g.T).solution.T  # argmin over δ of ‖J δ - g_L‖²
        torch.testing.assert_close(credits[layer], step, rtol=1e-3, atol=1e-4, msg=f"a_{layer}")


def test_targets_are_the_difference_rule():
    s = Setting("dtp", step=0.5)
    way = Forward(s.model, s.x, s.y)
    h = [t.detach().float() for t in way.h]
    target = h[-1] - 0.5 * way.top.float()
    credits = s.rule.credit(s.batch())
    for layer in reversed(range(L)):
        inverse = s.rule.inverses()[layer]
        target = h[layer] + (inverse(target) - inverse(h[layer + 1]))
        torch.testing.assert_close(credits[layer].float(), (h[layer] - target) / 0.5, rtol=1e-3, atol=1e-4)


def test_inverses_learn_to_invert():
    torch.manual_seed(0)
    model = ResMLP(D_IN, C, width=D, depth=L)
    with torch.no_grad():
        for block in model.blocks:
            cast(MLPBranch, block).linear2.weight.mul_(60)
    s = Setting("dtp", model, n=64, width=64, lr=3e-3)
    batch = s.batch()

    def error() -> list[float]:
        pairs = zip(s.rule.inverses(), batch.hiddens, batch.hiddens[1:], strict=False)
        return [float((g(above.float()) - h).square().mean().detach()) for g, h, above in pairs]

    before = error()
    for _ in range(300):
        s.rule.learn(batch)
    assert all(after < 0.2 * first for after, first in zip(error(), before, strict=True))


# ---- forward gradient, node perturbation -----------------------------------------------------------------------------------


SIGMA: dict[str, Any] = {"fgrad": {}, "nodepert": {"sigma": 1e-5}}


@pytest.mark.parametrize("name", ["fgrad", "nodepert"])
def test_one_draw_is_the_slope_along_a_direction_times_it(name):
    s = Setting(name, **SIGMA[name])
    batch = s.batch()
    rng = s.rule.generator(batch)
    reference = make_rule("bp").credit(batch)
    for a, g in zip(s.rule.credit(batch), reference, strict=True):
        v = torch.randn(a.shape, generator=rng).double()
        torch.testing.assert_close(a, (g * v).sum(1, keepdim=True) * v, rtol=1e-3, atol=1e-4)


def test_draws_from_the_labels_follow_the_step_and_not_the_logits():
    s = Setting("random", source="labels")
    batch = s.batch()
    first = s.rule.credit(batch)
    batch.logits = batch.logits + 1e-3  # as another device would round them, and more
    assert all(torch.equal(a, b) for a, b in zip(first, s.rule.credit(batch), strict=True))
    s.rule.after_step(s.stream, None)
    assert not any(torch.equal(a, b) for a, b in zip(first, s.rule.credit(batch), strict=True))
    loaded = make_rule("random", {"source": "labels"})
    loaded.load(s.rule.state())
    assert all(torch.equal(a, b) for a, b in zip(s.rule.credit(batch), loaded.credit(batch), strict=True))


@pytest.mark.parametrize("name", ["fgrad", "nodepert"])
def test_the_mean_over_ten_thousand_draws_is_the_gradient(name):
    """1,000 copies of a sample, 10 draws each: every copy has directions of its own."""
    s = Setting(name, draws=10, **SIGMA[name])
    s.x, s.y = s.x[:1].repeat(1000, 1), s.y[:1].repeat(1000)
    batch = s.batch()
    for a, g in zip(s.rule.credit(batch), make_rule("bp").credit(batch), strict=True):
        error = a.std(0) / 1000**0.5
        assert float(((a.mean(0) - g[0]) / error).abs().max()) < 4.5


def test_a_single_draw_is_hardly_aligned():
    d = 64
    s = Setting("fgrad", ResMLP(D_IN, C, width=d, depth=1), n=400)
    for a, g in zip(s.rule.credit(s.batch()), make_rule("bp").credit(s.batch()), strict=True):
        assert float(cosine(a, g).mean()) == pytest.approx(math.sqrt(2 / (math.pi * d)), rel=0.15)


def test_forward_mode_goes_through_attention_and_reads_the_cls_token():
    torch.manual_seed(0)
    model = ViTMini(4, width=8, depth=2, patch=2, size=4).double().eval()
    s = Setting.__new__(Setting)
    s.model, s.x, s.y = model, torch.randn(30, 3, 4, 4, dtype=torch.float64), torch.randint(0, 4, (30,))
    s.stream, s.rule = InterfaceStream(model, s.x[:3]), make_rule("fgrad", {"draws": 60})
    s.rule.setup(s.stream, 4, torch.Generator().manual_seed(0))
    for a, g in zip(s.rule.credit(s.batch()), make_rule("bp").credit(s.batch()), strict=True):
        assert float(cosine(a, g).mean()) > 0.8


# ---- PEPITA ---------------------------------------------------------------------------------------------------------------


def test_pepita_learns_from_the_difference_of_two_passes():
    s = Setting("pepita", scale=3.0)
    first = Forward(s.model, s.x, s.y)
    second = Forward(s.model, s.x + first.e @ s.rule.F.double(), s.y)
    found = s.gradients()
    differences = [(a - b).detach() for a, b in zip(first.h, second.h, strict=True)]
    for a, wanted in zip(s.rule.credit(s.batch()), differences, strict=True):
        torch.testing.assert_close(a, wanted)
    x2 = s.x + first.e @ s.rule.F.double()
    torch.testing.assert_close(found["embed.linear.weight"], differences[0].T @ x2 / len(s.y))
    for layer, block in enumerate(s.model.blocks):
        objective = (block(second.h[layer].detach()) * differences[layer + 1]).sum() / len(s.y)
        s.assert_follows(found, f"blocks.{layer}", objective)


# ---- Forward-Forward ----------------------------------------------------------------------------------------------------


def written(x: Tensor, y: Tensor, scale: float) -> Tensor:
    out = x.clone()
    for row, label in enumerate(y.tolist()):
        for k in range(C):
            out[row, k] += scale * ((k == label) - 1 / C)
    return out


def test_each_part_follows_its_own_goodness():
    s = Setting("ff", threshold=0.7, scale=2.0)
    wrong = s.rule.negatives(s.y, C)
    assert bool((wrong != s.y).all())
    found = s.gradients()
    ways = [Forward(s.model, written(s.x, y, 2.0), s.y) for y in (s.y, wrong)]
    inputs = [[None, *(h.detach() for h in way.h)] for way in ways]
    for layer in range(L + 1):
        module = s.model.embed if layer == 0 else s.model.blocks[layer - 1]
        loss = torch.zeros((), dtype=torch.float64)
        for sign, way, labels in zip((1, -1), inputs, (s.y, wrong), strict=True):
            made = module(written(s.x, labels, 2.0) if layer == 0 else way[layer])
            loss = loss + torch.log1p(torch.exp(sign * (0.7 - (made**2).mean(1)))).mean()
        s.assert_follows(found, "embed" if layer == 0 else f"blocks.{layer - 1}", loss)


def test_its_credit_is_the_gradient_of_the_goodness_of_each_part():
    s = Setting("ff", threshold=0.7)
    h = [t.detach() for t in s.batch().hiddens]
    parts = [h[0], *(b - a for a, b in pairwise(h))]
    for a, part in zip(s.rule.credit(s.batch()), parts, strict=True):
        part = part.detach().requires_grad_()
        (g,) = torch.autograd.grad(F.softplus(0.7 - part.square().mean(1)).sum(), part)
        torch.testing.assert_close(a, g)


def test_goodness_separates_and_predicts():
    from creditscope.credit.adamw import AdamW

    s = Setting("ff", ResMLP(D_IN, C, width=32, depth=2), n=256, scale=2.0)
    s.x = s.x + 3 * torch.eye(C, D_IN, dtype=torch.float64)[s.y]
    optimizer = AdamW(dict(s.model.named_parameters()), 3e-3, 0.0)
    for _ in range(150):
        s.gradients()
        optimizer.step()
        s.rule.after_step(s.stream, optimizer)
    numbers = s.rule.diagnostics()
    assert numbers["goodness_positive"] > 1.5 * numbers["goodness_negative"]
    assert float((s.rule.predicted(s.stream, s.x, C) == s.y).double().mean()) > 0.7
    assert "Γ is not what it optimises" in s.rule.counting_note(L, "residual")


def test_an_input_without_room_for_the_label_is_refused():
    model = ResMLP(3, C, width=D, depth=1)
    stream = InterfaceStream(model, torch.randn(3, 3))
    with pytest.raises(CreditscopeError, match="writes the label into 4 numbers of the input, which has 3"):
        make_rule("ff").setup(stream, C, torch.Generator())
