"""The bridges against closed forms: a linear stream, whose credit is known, and the formulas of their losses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.refusals import refusal
from tests.trust.oracle import left_as_found
from torch import Tensor, nn

from creditscope.credit import CreditBatch, CreditBridge, CreditRule, StateBridge, make_rule
from creditscope.credit.bridge_net import BridgeNet, perturbed
from creditscope.credit.credit_bridge import move_average, relative_error, soft_minimum
from creditscope.credit.state_bridge import normalised_error
from creditscope.errors import CreditscopeError
from creditscope.measure.sweep import sweep
from creditscope.models import ResMLP, SmallCNN, ViTMini
from creditscope.models.parts import StreamModel
from creditscope.stream.interface import InterfaceStream
from creditscope.stream.untouched import untouched
from creditscope.training.objective import Objective

TINY: dict[str, dict[str, Any]] = {"sb": {"width": 16}, "cb": {"width": 16, "warmup": 0.0}}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class LinearNet(StreamModel):
    """h_{l+1} = (I + A_l) h_l, logits = W h_L."""

    def __init__(self, d: int, depth: int, n_classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.embed, self.out_ln = nn.Identity(), nn.Identity()
        self.A = [torch.randn(d, d, generator=generator) * 0.5 * d**-0.5 for _ in range(depth)]
        self.W = torch.randn(n_classes, d, generator=generator) * d**-0.5
        self.blocks = nn.ModuleList(fixed(matrix) for matrix in self.A)
        self.out_head = fixed(self.W)

    def batch(self, stream: InterfaceStream, n: int, generator: torch.Generator) -> tuple[CreditBatch, list[Tensor]]:
        """A batch of Gaussian inputs with random labels, and its true credit from the matrices themselves."""
        n_classes, d = self.W.shape
        x = torch.randn(n, d, generator=generator)
        y = torch.randint(n_classes, (n,), generator=generator)
        with torch.no_grad():
            hiddens = self.hidden_states(x)
            logits = self.readout(hiddens[-1])
        g = [(torch.softmax(logits, 1) - F.one_hot(y, n_classes)) @ self.W]
        for matrix in reversed(self.A):
            g.insert(0, g[0] @ (torch.eye(d) + matrix))
        return CreditBatch(stream, hiddens, logits, y, g[-1]), g


def fixed(matrix: Tensor) -> nn.Linear:
    linear = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
    linear.weight.data.copy_(matrix)
    return linear


def linear(d: int = 8, depth: int = 2, n_classes: int = 4) -> tuple[LinearNet, InterfaceStream]:
    model = LinearNet(d, depth, n_classes, seeded(0))
    return model, InterfaceStream(model, torch.randn(3, d, generator=seeded(1)))


def small(
    method: str, model: nn.Module, x: Tensor, n_classes: int = 5, **options: Any
) -> tuple[CreditRule, CreditBatch]:
    """A rule set up for a network, and one batch of it."""
    with untouched(model):
        stream = InterfaceStream(model, x[:2])
    rule = make_rule(method, {**TINY[method], **options})
    rule.setup(stream, n_classes, seeded(3))
    y = torch.arange(len(x)) % n_classes
    with torch.no_grad():
        hiddens = model.hidden_states(x)  # type: ignore[operator]
    top = hiddens[-1].requires_grad_()
    logits = stream.readout(top)
    (g,) = torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), top)
    return rule, CreditBatch(stream, [h.detach() for h in hiddens], logits.detach(), y, stream.read_grad(g))


def resmlp(method: str, **options: Any) -> tuple[CreditRule, CreditBatch]:
    torch.manual_seed(0)
    return small(method, ResMLP(12, 5, width=8, depth=2), torch.randn(16, 12), **options)


@pytest.mark.parametrize(
    ("method", "options", "steps"),
    [
        ("sb", {"width": 32, "lr": 3e-3}, 400),
        ("sb", {"width": 32, "residual": True}, 200),
        ("cb", {"width": 48, "warmup": 0.0, "lr": 5e-3}, 600),
    ],
)
def test_recovers_the_credit_of_a_linear_stream(method, options, steps):
    model, stream = linear()
    rule = make_rule(method, options)
    rule.setup(stream, 4, seeded(2))
    draw = seeded(3)
    for _ in range(steps):
        rule.learn(model.batch(stream, 64, draw)[0])
    batch, true = model.batch(stream, 512, draw)
    for a, g in zip(rule.credit(batch), true, strict=True):
        assert F.cosine_similarity(a, g, dim=1, eps=1e-30).mean() > 0.95


def test_value_without_the_label_cannot_give_its_credit():
    """V(h) alone has the same gradient whatever y is."""
    rule, batch = resmlp("cb", condition="none")
    rule.learn(batch)
    before = rule.credit(batch)
    batch.y = batch.y.roll(1)
    assert all(torch.equal(a, b) for a, b in zip(before, rule.credit(batch), strict=True))


def test_state_credit_is_the_gradient_of_the_predicted_loss():
    """Against finite differences of CE(readout(G(h_l)), y)."""
    rule, batch = resmlp("sb")
    assert isinstance(rule, StateBridge)
    rule.learn(batch)
    a = rule.credit(batch)[1]

    def loss(h: Tensor) -> Tensor:
        states = [batch.hiddens[0], h, batch.hiddens[2]]
        with torch.no_grad():
            logits = batch.stream.readout(rule.predict(states, None)[1])  # type: ignore[attr-defined]
        return F.cross_entropy(logits, batch.y, reduction="none")

    v = torch.randn(a.shape, generator=seeded(5))
    slope = (loss(batch.hiddens[1] + 1e-2 * v) - loss(batch.hiddens[1] - 1e-2 * v)) / 2e-2
    torch.testing.assert_close((a * v).sum(1), slope, rtol=2e-2, atol=2e-4)


def test_normalised_error_is_one_minus_r_squared():
    target = torch.tensor([[1.0, 0.0], [3.0, 4.0]])  # variance 1 and 4: mean 2.5
    predicted = torch.stack([target, target.mean(0).expand(2, 2), target + 2])
    assert normalised_error(predicted[:1], target) == 0
    assert normalised_error(predicted[1:2], target) == pytest.approx(1)
    assert normalised_error(predicted[2:], target) == pytest.approx(4 / 2.5)


def test_moving_average():
    old, new = nn.Linear(2, 2), nn.Linear(2, 2)
    expected = [0.9 * a.detach() + 0.1 * b.detach() for a, b in zip(old.parameters(), new.parameters(), strict=True)]
    move_average(old, new, 0.9)
    for p, e in zip(old.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach(), e)


def test_learning_moves_the_target_copy_by_the_moving_average():
    rule, batch = resmlp("cb", ema=0.75)
    assert isinstance(rule, CreditBridge)
    before = copy.deepcopy(rule.target.state_dict())
    rule.learn(batch)
    assert rule.learner is not None
    for name, now in rule.learner.net.state_dict().items():
        torch.testing.assert_close(rule.target.state_dict()[name], 0.75 * before[name] + 0.25 * now)


def test_value_targets_are_the_copy_one_layer_on_and_the_loss_at_the_end():
    rule, batch = resmlp("cb", noise=0.0)
    assert isinstance(rule, CreditBridge)
    label = F.one_hot(batch.y, 5).float()
    states, targets = rule._regression(batch, label)
    for h, state in zip(batch.hiddens, states, strict=True):
        torch.testing.assert_close(h, state)
    torch.testing.assert_close(targets[2], F.cross_entropy(batch.logits, batch.y, reduction="none"))
    h = batch.hiddens[2]
    x = torch.cat([F.layer_norm(h, (8,)), h.mean(1, True) / h.std(1, correction=0, keepdim=True)], 1)
    x = torch.cat([x, h.std(1, correction=0, keepdim=True).log()], 1)
    torch.testing.assert_close(targets[1], rule.target([x], [2], label)[0, :, 0].detach())


def test_soft_minimum_lies_between_minimum_and_mean():
    x = torch.tensor([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]])
    torch.testing.assert_close(soft_minimum(x, 1e-3), x.min(0).values, atol=2e-3, rtol=0)
    torch.testing.assert_close(soft_minimum(x, 1e4), x.mean(0), atol=1e-2, rtol=0)
    assert soft_minimum(x, 1.0)[1] == pytest.approx(5)
    rule, batch = resmlp("cb", draws=3)
    rule.learn(batch)
    assert all(bool(torch.isfinite(a).all()) for a in rule.credit(batch))


def test_noise_is_in_units_of_each_sample():
    h = torch.ones(2, 10_000) * torch.tensor([[1.0], [100.0]])
    xi = perturbed(h, 0.3, seeded(0)) - h
    torch.testing.assert_close(xi.std(1), torch.tensor([0.3, 30.0]), rtol=0.03, atol=0)


def test_relative_error():
    g = torch.tensor([[3.0, 4.0]])
    assert relative_error(g, g) == 0
    assert relative_error(torch.zeros(1, 2), g) == pytest.approx(1)


def test_warm_up_is_dfa_for_the_first_fifth_of_the_epochs():
    rule, batch = resmlp("cb", warmup=0.2)
    assert isinstance(rule, CreditBridge)
    rule.learn(batch)
    dfa = rule.dfa.credit(batch)
    phases = []
    for epoch in range(1, 31):
        rule.begin_epoch(epoch, 30)
        phases.append(all(torch.equal(a, b) for a, b in zip(rule.credit(batch), dfa, strict=True)))
    assert phases == [True] * 6 + [False] * 24
    rule.begin_epoch(6, 30)
    restored = make_rule("cb", rule.options.model_dump())
    restored.load(rule.state())
    assert torch.equal(restored.credit(batch)[0], dfa[0])


@pytest.mark.parametrize("method", ["sb", "cb"])
def test_state_before_learning_changes_nothing(method):
    rule, batch = resmlp(method)
    other, _ = resmlp(method)
    rule.state()
    rule.learn(batch)
    other.learn(batch)
    assert all(torch.equal(a, b) for a, b in zip(rule.credit(batch), other.credit(batch), strict=True))


@pytest.mark.parametrize("method", ["sb", "cb"])
def test_state_of_other_options_or_with_a_hole_is_refused(method):
    rule, batch = resmlp(method)
    rule.learn(batch)
    state = rule.state()
    assert {t.dtype for t in state.values()} <= {torch.float32, torch.int64}
    assert "these options give" in refusal(lambda: make_rule(method, {"width": 17}).load(state))
    del state["net.depth.weight"]
    with pytest.raises(KeyError, match=r"net\.depth\.weight"):
        make_rule(method, TINY[method]).load(state)


@pytest.mark.parametrize("method", ["sb", "cb"])
def test_nothing_reaches_the_network(method):
    """learn and credit leave the network's weights, .grad and buffers, and the global RNG, as they were."""
    torch.manual_seed(0)
    model = SmallCNN(4, width=6, size=8).train()
    rule, batch = small(method, model, torch.randn(6, 3, 8, 8), n_classes=4)
    with left_as_found(model):
        rule.learn(batch)
        credits = rule.credit(batch)
    assert [tuple(a.shape) for a in credits] == [(6, w) for w in batch.stream.widths]
    assert not any(a.requires_grad for a in credits)


@pytest.mark.parametrize("method", ["sb", "cb"])
def test_token_models_and_double_precision(method):
    """ViT: credit of the read token, through the objective and in a measurement with a float64 copy of the network."""
    torch.manual_seed(0)
    model = ViTMini(5, width=8, depth=2)
    rule, batch = small(method, model, torch.randn(4, 3, 32, 32))
    assert isinstance(batch.stream, InterfaceStream)
    Objective(batch.stream, rule, "rms", "input", 0.01, 0).backward(torch.randn(4, 3, 32, 32), batch.y)
    assert all(p.grad is not None for p in model.parameters())
    facts = sweep(model.double(), [(torch.randn(8, 3, 32, 32, dtype=torch.float64), torch.arange(8) % 5)], rule)
    assert facts.alignment is not None
    assert facts.concentration is not None
    assert facts.non_finite == ()


@pytest.mark.parametrize("method", ["sb", "cb"])
def test_a_bridge_without_network_or_of_another_stream_is_refused(method):
    rule, batch = resmlp(method)
    assert "has no network yet" in refusal(lambda: make_rule(method, TINY[method]).credit(batch))
    with pytest.raises(CreditscopeError, match="made for widths"):
        sweep(LinearNet(6, 2, 5, seeded(0)), [(torch.randn(8, 6), torch.arange(8) % 5)], rule)
    assert rule.exact_layers(2) == ()


def test_layers_of_one_width_share_their_input_map():
    assert len(BridgeNet([4, 4, 4], 1, 8, 2, 3).inputs) == 1
    assert len(BridgeNet([4, 5, 4], 1, 8, 2, 3).inputs) == 3
