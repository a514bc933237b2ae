"""Rules with feedback per weight matrix: one update against a backward pass written by hand, BioTorch's layers, alignment."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.refusals import refusal
from torch import Tensor, nn

from creditscope.credit.adamw import AdamW
from creditscope.credit.registry import make_rule
from creditscope.credit.weight_feedback import matrices
from creditscope.models import ResMLP, SmallCNN, ViTMini
from creditscope.stream.interface import InterfaceStream

from .zoo_nets import D, Forward, L, PlainNet, Setting, gelu_slope, norm_back

sys.path.append(str(Path(sys.prefix) / "peers"))  # where `make bench` puts BioTorch


def feedback(name: str, s: Setting) -> dict[str, Tensor]:
    """B by the formulas of the papers, from the weights and what the rule has drawn."""
    weights = {k: w.detach() for k, w in matrices(s.stream).items()}
    if name == "usf":
        return {k: ((w > 0) * 2.0 - 1.0).double() * (2 / sum(w.shape)) ** 0.5 for k, w in weights.items()}
    if name == "frsf":
        return {k: ((w > 0) * 2.0 - 1.0).double() * s.rule.B[k].abs() for k, w in weights.items()}
    if name == "brsf":
        rng = torch.Generator().manual_seed(s.rule.seed + s.rule.steps)
        drawn = {k: torch.rand(*w.shape, generator=rng) for k, w in weights.items()}
        return {
            k: ((w > 0) * 2.0 - 1.0).double() * (2 * drawn[k].double() - 1).abs() * (6 / sum(w.shape)) ** 0.5
            for k, w in weights.items()
        }
    return {k: b.double() for k, b in s.rule.B.items()}


RULES = ["fa-weights", "usf", "brsf", "frsf", "kp", "wm"]


@pytest.mark.parametrize("name", RULES)
def test_one_update_is_a_backward_pass_through_other_matrices(name):
    s = Setting(name)
    back, way = feedback(name, s), Forward(s.model, s.x, s.y)
    credits, expected = [way.top], dict[str, Tensor]()
    for layer in reversed(range(L)):
        block, a = s.model.blocks[layer], credits[0]
        u = a @ back[f"{layer}.linear2.weight"]
        entered = (u * gelu_slope(way.parts[layer][2])) @ back[f"{layer}.linear1.weight"]
        expected |= way.block_gradients(layer, a, u, entered)
        credits.insert(0, a + norm_back(way.h[layer], entered, block))
    expected["embed.linear.weight"] = credits[0].T @ s.x / len(s.y)
    expected["embed.linear.bias"] = credits[0].mean(0)
    found = s.gradients()
    for key, wanted in expected.items():
        torch.testing.assert_close(found[key], wanted.detach(), rtol=1e-5, atol=1e-7, msg=key)
    for layer, (a, wanted) in enumerate(zip(s.rule.credit(s.batch()), credits, strict=True)):
        torch.testing.assert_close(a, wanted.detach(), rtol=1e-5, atol=1e-7, msg=f"a_{layer}")


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "linear maps": lambda: ResMLP(3 * 4 * 4, 4, width=8, depth=2),
    "convolutions": lambda: SmallCNN(4, width=8, size=4),
    "attention": lambda: ViTMini(4, width=8, depth=2, patch=2, size=4),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_with_the_weights_themselves_it_is_backpropagation(kind):
    torch.manual_seed(0)
    model: Any = NETWORKS[kind]().double().train()
    x, y = torch.randn(5, 3, 4, 4, dtype=torch.float64), torch.randint(0, 4, (5,))
    stream = InterfaceStream(model.eval(), x[:3])
    model.train()
    rule: Any = make_rule("fa-weights")
    rule.setup(stream, 4, torch.Generator())
    rule.B = {k: w.detach().clone() for k, w in matrices(stream).items()}
    rule.backward(stream, x, y, 0, 0.0)
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(found[name], p.grad, rtol=1e-8, atol=1e-11, msg=name)


def test_a_weight_that_is_used_in_another_way_is_refused():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(D, D))

        def forward(self, h: Tensor) -> Tensor:
            return h @ self.weight

    model = PlainNet(nn.Tanh)
    model.blocks[1] = Odd()
    s = Setting("usf", model)
    assert "'1.weight' is not used by a linear map or a 2-d convolution" in refusal(lambda: s.rule.credit(s.batch()))


# ---- feedback that learns --------------------------------------------------------------------------------------------


def steps(s: Setting, n: int, lr: float, weight_decay: float) -> None:
    optimizer = AdamW(dict(s.model.named_parameters()), lr, weight_decay)
    for _ in range(n):
        s.gradients()
        optimizer.step()
        s.rule.after_step(s.stream, optimizer)


def gaps(s: Setting) -> dict[str, Tensor]:
    return {k: (w - s.rule.B[k]).detach().clone() for k, w in matrices(s.stream).items()}


def alignment(s: Setting) -> float:
    pairs = [(w.detach().flatten(), s.rule.B[k].double().flatten()) for k, w in matrices(s.stream).items()]
    return min(float(F.cosine_similarity(a, b, dim=0)) for a, b in pairs)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_the_gap_of_kolen_pollack_shrinks_by_the_decays_alone(decay):
    s = Setting("kp", decay=decay)
    before = gaps(s)
    steps(s, 5, lr=0.1, weight_decay=0.2)
    for k, gap in gaps(s).items():
        torch.testing.assert_close(gap, before[k] * ((1 - 0.1 * 0.2) * (1 - 0.1 * decay)) ** 5, msg=k)


def test_kolen_pollack_feedback_aligns_with_its_decay_and_not_without():
    found = {}
    for decay in (0.0, 8.0):
        s = Setting("kp", decay=decay)
        assert alignment(s) < 0.5
        steps(s, 100, lr=0.01, weight_decay=0.01)
        found[decay] = alignment(s)
    assert found[8.0] > 0.99 > found[0.0]


def test_frozen_weights_and_their_feedback_stay():
    s = Setting("kp")
    before = {k: b.clone() for k, b in s.rule.B.items()}
    s.model.blocks.requires_grad_(False)
    optimizer = AdamW({n: p for n, p in s.model.named_parameters() if p.requires_grad}, 0.1, 0.01)
    s.model.zero_grad()
    s.rule.backward(s.stream, s.x, s.y, L, 0.0)
    optimizer.step()
    s.rule.after_step(s.stream, optimizer)
    assert all(torch.equal(b, before[k]) for k, b in s.rule.B.items())


def test_one_phase_of_the_mirror_is_its_formula():
    s = Setting("wm", rate=0.25, samples=3, every=2)
    before = {k: b.double() for k, b in s.rule.B.items()}
    optimizer = AdamW({}, 0.1, 0.0)
    s.rule.after_step(s.stream, optimizer)
    assert all(torch.equal(b.double(), before[k]) for k, b in s.rule.B.items())  # every second step
    s.rule.after_step(s.stream, optimizer)
    rng = torch.Generator().manual_seed(s.rule.seed + 2)
    for k, w in matrices(s.stream).items():
        noise = torch.randn(3, w.shape[1], generator=rng).double()
        mean = sum(torch.outer(w.detach() @ row, row) for row in noise) / 3
        torch.testing.assert_close(s.rule.B[k], 0.75 * before[k] + 0.25 * mean, msg=k)


def test_the_mirror_aligns_with_the_weights():
    s = Setting("wm", rate=0.02, samples=64)
    assert alignment(s) < 0.5
    for _ in range(300):
        s.rule.after_step(s.stream, AdamW({}, 0.1, 0.0))
    assert alignment(s) > 0.98


def test_magnitudes_of_brsf_are_redrawn_by_a_step_and_by_nothing_else():
    s = Setting("brsf")
    first, again = s.rule.credit(s.batch()), s.rule.credit(s.batch())
    assert torch.equal(first[0], again[0])
    s.rule.after_step(s.stream, AdamW({}, 0.1, 0.0))
    assert not torch.equal(first[0], s.rule.credit(s.batch())[0])


# ---- BioTorch -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "mode", "act"),
    [
        ("fa-weights", "fa", nn.Tanh),
        ("fa", "fa", nn.Identity),
        ("usf", "usf", nn.Tanh),
        ("frsf", "frsf", nn.Tanh),
        ("brsf", "brsf", nn.Tanh),
        ("dfa", "dfa", nn.Tanh),
    ],
)
def test_updates_are_those_of_biotorchs_layers(name, mode, act, monkeypatch):
    pytest.importorskip("biotorch", reason="BioTorch is not there (make bench installs it)")
    from biotorch.layers.dfa import Linear as DFALinear  # type: ignore[import-not-found, unused-ignore]
    from biotorch.layers.fa_constructor import Linear as FALinear  # type: ignore[import-not-found, unused-ignore]

    s = Setting(name, PlainNet(act))
    theirs = [nn.Linear(s.x.shape[1], D), act()]
    ours = [block[0] for block in s.model.blocks]
    layers: list[Any] = []
    for k, linear in enumerate(ours):
        if mode == "dfa":
            layer: Any = DFALinear(D, D, 4, True, {"type": "dfa"})
            layer.weight_backward = nn.Parameter(s.rule.B[k].double(), requires_grad=False)
        else:
            layer = FALinear(D, D, True, {"type": mode})
            if name == "fa":
                layer.weight_backward = nn.Parameter(s.rule.B[k].t().double().contiguous(), requires_grad=False)
            elif mode in ("fa", "frsf"):
                layer.weight_backward = nn.Parameter(s.rule.B[f"{k}.0.weight"].double(), requires_grad=False)
        layer.weight, layer.bias = (nn.Parameter(p.detach().clone()) for p in (linear.weight, linear.bias))
        layers.append(layer)
        theirs += [layer, act()]
    if mode == "brsf":  # they draw anew in every forward pass: let them draw what ours has drawn
        rng = torch.Generator().manual_seed(s.rule.seed + s.rule.steps)
        drawn = iter([(torch.rand(D, D, generator=rng) * 2 - 1) * (3 / D) ** 0.5 for _ in layers])
        monkeypatch.setattr(nn.init, "xavier_uniform_", lambda t: t.copy_(next(drawn)))
    head: Any = nn.Linear(D, 4)
    if mode == "dfa":
        head = DFALinear(D, 4, 4, True, {"type": "dfa"})
        head.weight_backward = nn.Parameter(s.rule.B[3].double(), requires_grad=False)
        layers.append(head)
    net = nn.Sequential(*theirs, head)
    with torch.no_grad():
        for mine, other in ((s.model.embed[0], net[0]), (s.model.out_head, head)):
            other.weight = nn.Parameter(mine.weight.detach().clone())
            other.bias = nn.Parameter(mine.bias.detach().clone())
    out = net.double()(s.x)
    loss = F.cross_entropy(out, s.y)
    if mode == "dfa":
        for layer in layers:
            layer.loss_gradient = torch.autograd.grad(loss, out, retain_graph=True)[0]
    loss.backward()
    found = s.gradients()
    pairs = {"embed.0": net[0], "out_head": head} | {f"blocks.{k}.0": layers[k] for k in range(3)}
    for key, layer in pairs.items():
        for part in ("weight", "bias"):
            torch.testing.assert_close(found[f"{key}.{part}"], getattr(layer, part).grad, rtol=1e-5, atol=1e-7, msg=key)
