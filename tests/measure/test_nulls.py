import numpy as np
import pytest
import torch
from tests.known import known
from tests.measure.functional_nets import samples, tanh_net

from creditscope.credit.bp import BP
from creditscope.credit.dfa import DFA
from creditscope.credit.fa import FA
from creditscope.credit.random import RandomCredit
from creditscope.credit.registry import make_rule
from creditscope.measure.nulls import SEED, FreshNull
from creditscope.protocol.diagnosis import diagnose
from creditscope.stream.interface import make_stream
from creditscope.stream.untouched import untouched


def ready(rule, model, x):
    with untouched(model):
        rule.setup(make_stream(model, x, len(x)), 3, torch.Generator().manual_seed(0))
    return rule


def test_dfa_against_a_loop():
    model, (x, y) = tanh_net(), samples(40)
    rule = ready(DFA(), model, x)
    got = diagnose(model, [(x, y)], credit=rule, level="full").facts.fresh_b
    assert got is not None

    hiddens = [x.double().requires_grad_()]
    twin = tanh_net().double()
    for block in twin.blocks:
        hiddens.append(hiddens[-1] + block(hiddens[-1]))
    logits = twin.out_head(hiddens[-1])
    loss = torch.nn.functional.cross_entropy(logits, y, reduction="sum")
    grads = torch.autograd.grad(loss, hiddens)
    e = (torch.softmax(logits, 1) - torch.nn.functional.one_hot(y, 3)).detach().numpy()
    rng = torch.Generator().manual_seed(SEED)
    values = []
    for k in range(21):
        b = (
            [m.numpy() for m in rule.B]
            if k == 0
            else [torch.randn(3, 5, generator=rng).numpy() / 3**0.5 for _ in "hhh"]
        )
        layers = []
        for layer in (1, 2):
            a, g = e @ b[layer], grads[layer].numpy()
            layers.append(np.mean([u @ w / np.linalg.norm(u) / np.linalg.norm(w) for u, w in zip(a, g, strict=True)]))
        values.append(np.mean(layers))
    assert got.trained == pytest.approx(values[0], abs=1e-5)
    assert got.draws == pytest.approx(values[1:], abs=1e-5)
    assert got.z == pytest.approx((values[0] - np.mean(values[1:])) / np.std(values[1:], ddof=1), rel=1e-3)
    assert got.layers == (1, 2)
    assert got.n_samples == 40


def test_trained_is_the_deep_mean_without_exact_layers():
    model, (x, y) = tanh_net(), samples(300)
    facts = diagnose(model, [(x[:256], y[:256])], credit=ready(FA(), model, x), level="full").facts
    assert facts.fresh_b is not None
    assert facts.fresh_b.layers == (1,)
    assert facts.fresh_b.trained == pytest.approx(known(facts.concentration).deep_mean_without_exact, abs=1e-6)
    cut = diagnose(model, [(x, y)], credit=ready(FA(), model, x), level="full").facts.fresh_b
    assert cut is not None
    assert cut.n_samples == 256
    assert cut.trained == pytest.approx(facts.fresh_b.trained, abs=1e-6)


def test_random_credit_is_no_finding_and_repeats():
    model, (x, y) = tanh_net(), samples(256)
    rule = ready(RandomCredit(), model, x)
    one, two = (diagnose(model, [(x, y)], credit=rule, level="full").facts for _ in range(2))
    assert one == two
    assert abs(known(known(one.fresh_b).z)) < 3
    again = make_rule("random")
    again.load(rule.state())
    assert diagnose(model, [(x, y)], credit=again, level="full").facts == one


@pytest.mark.parametrize(
    ("credit", "reason"),
    [
        (BP(), "the reference itself"),
        (lambda h, z, y: [s + 1 for s in h], "a function does not say what is random in it"),
        (make_rule("ep"), "no random feedback to draw anew"),
    ],
)
def test_not_applicable(credit, reason):
    got = diagnose(tanh_net(), [samples()], credit=credit, level="full")
    assert got.facts.fresh_b is not None
    assert got.facts.fresh_b.z is None
    assert reason in got.facts.fresh_b.reason
    assert "fresh-B null not applicable" in got.to_text(long=True)


def test_every_deep_layer_exact():
    assert "every deep layer is exact" in FreshNull(FA(), depth=1).fact().reason


def test_large_finite_credit_is_not_called_infinite():
    report = diagnose(tanh_net(), [samples()], credit=lambda h, z, y: [torch.full((6, 5), 3e38) for _ in range(3)])
    assert known(report.facts.alignment).measurable == (6, 6, 6)
