"""BP, FA and DFA against numpy: the formulas of the protocol, written down a second time."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tests.known import known
from tests.refusals import refusal
from torch import Tensor

from creditscope import CreditscopeError, diagnose
from creditscope.credit import BP, DFA, FA, CreditBatch, CreditRule, make_rule
from creditscope.credit.base import as_rule, credit_of, descent_of, rms_normalised
from creditscope.models import ResMLP, SmallCNN, ViTMini
from creditscope.stream.interface import InterfaceStream

from ..stream.nets import D_IN, Array, C, D, batch, shaken


def setting(rule: Any, model: Any = None, shape: tuple[int, ...] = (D_IN,), n: int = 6) -> tuple[Any, CreditBatch]:
    """The rule drawn for the model, and one batch as it meets it."""
    model = (model or shaken(ResMLP(D_IN, C, width=D, depth=3))).eval()
    x, y = batch(shape, n=n)
    stream = InterfaceStream(model, x[:3])
    rule.setup(stream, C, torch.Generator().manual_seed(11))
    with torch.no_grad():
        logits, hiddens = model(x, return_hidden=True)
    gen = torch.Generator().manual_seed(12)
    output_grad = torch.randn(n, stream.widths[-1], generator=gen)
    return rule, CreditBatch(stream, hiddens, logits, y, output_grad)


def softmax_error(b: CreditBatch) -> Array:
    z = b.logits.numpy().astype(np.float64)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(len(z)), b.y.numpy()] -= 1
    return p


def test_error_is_softmax_minus_one_hot():
    _, b = setting(DFA())
    np.testing.assert_allclose(b.error.numpy(), softmax_error(b), atol=1e-6)
    np.testing.assert_allclose(b.error.sum(1).numpy(), 0, atol=1e-6)


def test_a_label_that_is_no_class_is_refused():
    rule, b = setting(DFA())
    b.y = b.y.clone()
    b.y[0] = -100
    with pytest.raises(CreditscopeError, match=r"'dfa' raised .*out of bounds"):
        credit_of(rule, b)


def test_dfa_credit_is_the_error_through_the_transposed_matrix():
    rule, b = setting(DFA())
    e = softmax_error(b)
    for layer, a in enumerate(rule.credit(b)):
        matrix = rule.B[layer].numpy().astype(np.float64)
        assert matrix.shape == (C, D)
        expected = np.stack([matrix.T @ row for row in e])
        np.testing.assert_allclose(a.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_fa_chain_starts_at_the_exact_gradient_and_is_raw():
    rule, b = setting(FA())
    assert b.output_grad is not None
    expected = [b.output_grad.numpy().astype(np.float64)]
    for layer in (2, 1, 0):
        matrix = rule.B[layer].numpy().astype(np.float64)
        assert matrix.shape == (D, D)
        expected.insert(0, np.stack([matrix @ row for row in expected[0]]))
    for a, wanted in zip(rule.credit(b), expected, strict=True):
        np.testing.assert_allclose(a.numpy(), wanted, rtol=1e-4, atol=1e-5)
    assert torch.equal(rule.credit(b)[-1], b.output_grad)


class Signed(FA):
    def credit(self, batch: CreditBatch) -> list[Tensor]:
        return [a.sign() for a in super().credit(batch)]


def test_credit_is_met_from_the_top_by_whatever_the_rule_says_last():
    rule, b = setting(Signed())
    assert [layer for layer, _ in descent_of(rule, b)] == [3, 2, 1, 0]
    for (_, left), right in zip(descent_of(rule, b), reversed(credit_of(rule, b)), strict=True):
        assert torch.equal(left, right)
        assert left.abs().max() == 1
    rule.credit = lambda batch: [2 * a for a in FA.credit(rule, batch)]
    assert torch.equal(next(descent_of(rule, b))[1], 2 * known(b.output_grad))


def test_a_rule_without_credit_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        type("Mute", (CreditRule,), {"name": "mute"})()


def back_through_convolution(a: Array, kernel: Array, pooled: bool) -> Array:
    """Adjoint of conv 3x3 (padding 1), then mean-pooling 2x2: written as sums over the taps. a: [B, out, H', W']."""
    if pooled:
        a = np.repeat(np.repeat(a, 2, axis=2), 2, axis=3) / 4
    n, _, height, width = a.shape
    out = np.zeros((n, kernel.shape[1], height, width))
    for i in range(height):
        for j in range(width):
            for di in range(3):
                for dj in range(3):  # output (i, j) read input (i + di - 1, j + dj - 1) with tap (di, dj)
                    p, q = i + di - 1, j + dj - 1
                    if 0 <= p < height and 0 <= q < width:
                        out[:, :, p, q] += a[:, :, i, j] @ kernel[:, :, di, dj]
    return out


def test_fa_through_convolutions_is_the_transposed_convolution_with_random_kernels():
    rule, b = setting(FA(), shaken(SmallCNN(C, width=8, size=8)), (3, 8, 8), n=2)
    assert [tuple(k.shape) for k in rule.B] == [(64, 32, 3, 3), (128, 64, 3, 3), (512, 8)]
    a3 = known(b.output_grad).numpy().astype(np.float64)
    dense = rule.B[2].numpy().astype(np.float64)
    a2 = (a3 @ dense.T).reshape(2, 128, 2, 2)
    a1 = back_through_convolution(a2, rule.B[1].numpy().astype(np.float64), pooled=True)
    a0 = back_through_convolution(a1, rule.B[0].numpy().astype(np.float64), pooled=True)
    assert a0.shape == (2, 32, 8, 8)
    for got, wanted in zip(rule.credit(b), (a0, a1, a2, a3), strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.reshape(2, -1), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("make", "shape", "std"), [(DFA, (C, 600), C**-0.5), (FA, (600, 600), 600**-0.5)])
def test_feedback_matrices_have_the_stated_distribution(make, shape, std):
    rule = make()
    model = ResMLP(D_IN, C, width=600, depth=1)
    rule.setup(InterfaceStream(model.eval(), batch((D_IN,))[0][:3]), C, torch.Generator().manual_seed(0))
    b = rule.B[0].double()
    assert tuple(b.shape) == shape
    count = b.numel()
    assert abs(float(b.mean())) < 5 * std / math.sqrt(count)
    assert abs(float(b.std()) / std - 1) < 5 / math.sqrt(2 * count)
    fourth = float(((b / std) ** 4).mean())
    assert abs(fourth - 3) < 5 * math.sqrt(96 / count)  # kurtosis of a Gaussian


def test_token_models_get_the_credit_of_the_read_token():
    rule, b = setting(DFA(), shaken(ViTMini(C, width=8, depth=2, size=8)), (3, 8, 8))
    assert [tuple(a.shape) for a in rule.credit(b)] == [(6, 8)] * 3


def test_rms_normalisation_is_the_stated_formula():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((5, 7)) * np.array([[1.0], [1e3], [1e-3], [1e-7], [0.0]])
    expected = np.stack([row / (np.sqrt(np.mean(row * row)) + 1e-6) for row in a])
    np.testing.assert_allclose(rms_normalised(torch.from_numpy(a)).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(rms_normalised(torch.from_numpy(a), 3).numpy(), expected / 3, rtol=1e-12)
    single = torch.from_numpy(a).float()
    assert torch.equal(rms_normalised(single, 128), rms_normalised(single) / 128)  # a power of two: to the bit


def test_exact_layers_are_all_for_bp_the_last_for_fa_none_for_dfa():
    assert BP().exact_layers(4) == (0, 1, 2, 3, 4)
    assert FA().exact_layers(4) == (4,)
    assert DFA().exact_layers(4) == ()


def test_fa_is_exact_at_the_last_layer_when_measured():
    rule, b = setting(FA())
    facts = diagnose(b.stream.model, [batch((D_IN,), n=20)], credit=rule).facts
    assert facts.alignment is not None
    assert facts.concentration is not None
    assert facts.alignment.mean[-1] == pytest.approx(1, abs=1e-12)
    assert facts.concentration.exact_layers == (3,)
    assert facts.concentration.deep_mean_without_exact == pytest.approx(
        (facts.alignment.mean[1] + facts.alignment.mean[2]) / 2  # type: ignore[operator]
    )


@pytest.mark.parametrize("make", [DFA, FA])
def test_redraw_draws_every_matrix_anew_and_leaves_the_rule_alone(make):
    rule, b = setting(make())
    kept = {name: t.clone() for name, t in rule.state().items()}
    fresh = rule.redraw(b.stream, C, torch.Generator().manual_seed(99))
    assert fresh.state().keys() == kept.keys()
    for name, t in kept.items():
        assert torch.equal(rule.state()[name], t)
        assert fresh.state()[name].shape == t.shape
        correlation = float(torch.corrcoef(torch.stack([fresh.state()[name].flatten(), t.flatten()]))[0, 1])
        assert abs(correlation) < 5 / math.sqrt(t.numel())
    assert BP().redraw(b.stream, C, torch.Generator()) is None


@pytest.mark.parametrize("make", [DFA, FA])
def test_a_rule_without_or_with_foreign_matrices_is_refused(make):
    _, b = setting(make())
    wide, _ = setting(make(), ResMLP(D_IN, C, width=D + 1, depth=3))
    deep, _ = setting(make(), ResMLP(D_IN, C, width=D, depth=4))
    for rule in (make(), wide, deep):
        assert f"'{make.name}'" in refusal(partial(rule.attach, b.stream))


def test_fa_without_the_exact_output_gradient_says_so():
    rule, b = setting(FA())
    b.output_grad = None
    assert "exact gradient at h_L" in refusal(lambda: rule.credit(b))


class Faulty(CreditRule):
    name = "faulty"

    def __init__(self, give: Any) -> None:
        super().__init__()
        self.give = give

    def credit(self, batch: CreditBatch) -> Any:
        return self.give(batch.hiddens)


@pytest.mark.parametrize(
    ("give", "says"),
    [
        (lambda h: h[:-1], "returned 3 layers for 3 blocks; return 4 (h_0 to h_3)"),
        (lambda h: [*h, h[0]], "returned 5 layers for 3 blocks; return 4 (h_0 to h_3)"),
        (lambda h: [h[0], h[1], h[2][:-1], h[3]], "returned shape [5, 16] at layer 2"),
        (lambda h: [h[0], h[1].sum(1), *h[2:]], "returned shape [6] at layer 1"),
        (lambda h: [t.clone().requires_grad_() for t in h], "returned credit with a graph attached at layer 0"),
        (lambda h: [*h[:3], 0.0], "returned float at layer 3"),
        (lambda h: dict(enumerate(h)), "returned dict"),
        (lambda h: h[0], "returned Tensor"),
        (lambda h: [None] * 4, "returned None at every layer"),
        (lambda h: [*h[:3], h[3] * math.nan], "returned NaN or Inf at layer 3"),
        (lambda h: [h[0], h[1] / 0.0, *h[2:]], "returned NaN or Inf at layer 1"),
        (lambda h: 1 / 0, "raised ZeroDivisionError: division by zero"),
    ],
)
def test_credit_that_does_not_fit_names_rule_and_layer_in_one_line(give, says):
    _, b = setting(FA())
    assert f"'faulty' {says}" in refusal(lambda: list(descent_of(Faulty(give), b)))
    for name, credit in (("faulty", Faulty(give)), ("callable", lambda h, z, y: give(h))):
        told = refusal(partial(diagnose, b.stream.model, [batch((D_IN,), n=6)], credit=credit))
        assert f"'{name}' {says}" in told


def test_unknown_method_and_unknown_option_are_one_line_errors_with_the_choices():
    assert "'xyz' is unknown; choose one of bp, fa, dfa" in refusal(lambda: make_rule("xyz"))
    assert "'speed' of method fa" in refusal(lambda: make_rule("fa", {"speed": 3}))


def test_callables_become_rules_and_anything_else_is_refused():
    rule = as_rule(lambda hiddens, logits, y: hiddens)
    assert isinstance(rule, CreditRule)
    assert as_rule(None) is None
    assert as_rule(rule) is rule
    assert "int" in refusal(lambda: as_rule(4))


def test_callable_is_given_hidden_states_logits_and_labels():
    seen: list[Any] = []
    model = shaken(ResMLP(D_IN, C, width=D, depth=3)).eval()
    x, y = batch((D_IN,), n=6)

    def function(hiddens: list[Tensor], logits: Tensor, labels: Tensor) -> list[Tensor]:
        seen.append(([h.clone() for h in hiddens], logits, labels))
        return hiddens

    diagnose(model, [(x, y)], credit=function)
    logits, hiddens = model(x, return_hidden=True)
    torch.testing.assert_close(seen[0][0], [h.detach() for h in hiddens])
    torch.testing.assert_close(seen[0][1], logits.detach())
    assert torch.equal(seen[0][2], y)


def test_random_credit_is_another_one_for_another_generator_and_the_same_for_the_same():
    rule, b = setting(make_rule("random"))
    again, _ = setting(make_rule("random"))
    other = rule.redraw(b.stream, C, torch.Generator().manual_seed(99))
    for mine, same, fresh in zip(rule.credit(b), again.credit(b), other.credit(b), strict=True):
        assert torch.equal(mine, same)
        assert not torch.equal(mine, fresh)
