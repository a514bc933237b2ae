"""Bad and extreme numbers at any place: a defined status with a reason, and a report that can be written and printed."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
import torch
from tests.known import known
from tests.refusals import refusal
from tests.training.small import small_quadratic, spec, use
from tests.trust.networks import E_NORM, GROUP, C, Network, Times, credit_along
from torch import Tensor, nn

from creditscope import DiagnosticReport, diagnose
from creditscope.training import loop

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
BAD = (float("nan"), float("inf"), -float("inf"))
ANSWERS = {"pass", "fail", "inconclusive", "not measurable", "not measured"}


def defined(report: DiagnosticReport) -> None:
    """Every check has an answer and, unless it passes, a reason; the report prints, and is JSON without NaN."""
    assert report.status in ("pass", "fail", "inconsistent", "inconclusive", "incomplete")
    for check in report.verdict.checks:
        assert check.answer in ANSWERS
        assert check.sentence
        assert (check.reason != "") == (check.answer != "pass")
    text = report.to_json()
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert DiagnosticReport.from_dict(json.loads(text)).to_json() == text
    assert report.verdict.line in str(report)
    assert report.verdict.line.removeprefix("VERDICT: ") in report.to_markdown()


def put(model: Any, x: Tensor, place: str, value: float) -> None:
    with torch.no_grad():
        if place == "input":
            x[5, C] = value
        elif place == "first block":
            model.blocks[0].c.fill_(value)
        elif place == "last block":
            model.blocks[-1].c.fill_(value)
        else:
            model.head.scale.fill_(value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("place", "value"), [*itertools.product(("input", "first block", "last block", "head"), BAD)])
def test_a_bad_number_anywhere_fails_as_diverged(place, value, dtype):
    net = Network("bad", dtype=dtype, cosines=[1.0])
    model, batches = net.model(), net.batches()
    x = batches[1][0]
    put(model, x, place, value)
    if place == "input":  # says nothing about the network
        assert "NaN or Inf" in refusal(lambda: diagnose(model, batches, **net.arguments()))
        return
    for protocol, blocks in (("three-check", None), ("four-diagnostic", None), ("three-check", "blocks.*")):
        report = diagnose(model, batches, **net.arguments(), protocol=protocol, blocks=blocks)
        defined(report)
        assert report.status == "fail"
        assert report.verdict.failed == ("diverged",)
        assert report.verdict.line == "VERDICT: needs walk-back: diverged"
        assert any(where.startswith("weights") for where in report.facts.non_finite)
        assert report.verdict.gamma_withheld
        assert "diverged" in report.checks["D1"].reason


def test_a_bad_number_in_the_stream_is_named():
    class Overflow(nn.Module):
        def forward(self, h: Tensor) -> Tensor:
            return h * 1e38 * 1e3

    net = Network("overflow", blocks=lambda: [Times(1.0), Overflow(), Times(1.0)])
    facts = diagnose(net.model(), net.batches()).facts
    assert {"h_2", "h_3"} <= set(facts.non_finite)
    assert "h_1" not in facts.non_finite


@pytest.mark.parametrize("value", BAD)
def test_bad_credit_of_a_finite_network_is_the_rules_mistake(value):
    net = Network("healthy")

    def credit(hiddens: list[Tensor], logits: Tensor, y: Tensor) -> list[Tensor]:
        return [torch.full_like(h, value) if k == 2 else torch.ones_like(h) for k, h in enumerate(hiddens)]

    assert "layer 2" in refusal(lambda: diagnose(net.model(), net.batches(), credit=credit))


@pytest.mark.parametrize("value", BAD)
def test_a_loss_that_is_not_finite_fails_as_diverged(value):
    net = Network("healthy")

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        return logits.sum(1) * value

    report = diagnose(net.model(), net.batches(), loss_fn=loss)
    defined(report)
    assert report.verdict.failed == ("diverged",)


EXTREMES: dict[str, dict[str, Any]] = {
    "zero credit": {"cosines": [1.0], "credit_size": 0.0},
    "equal logits": {"cosines": [1.0]},
    "a single class": {"y": "one", "cosines": [1.0]},
    "large state": {"factors": (1e4, 1.0), "cosines": [1.0]},
    "h of 1e30": {"factors": (1e30, 1.0), "cosines": [1.0]},
    "h of 1e30 under a norm": {"factors": (1e30, 1.0), "terminal_norm": True, "cosines": [1.0]},
    "subnormal g": {"epsilon": 1e-40, "cosines": [1.0]},
    "g below every number": {"epsilon": 1e-46, "cosines": [1.0]},
    "tiny credit": {"cosines": [0.5], "credit_size": 1e-30},
    "huge credit": {"cosines": [0.5], "credit_size": 1e30},
    "no class surplus": {"y": "even", "cosines": [1.0]},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_numbers_have_a_defined_status(name, dtype):
    net = Network(name, dtype=dtype, **EXTREMES[name])
    if (name, dtype) == ("huge credit", torch.float16):  # float16 has no 1e30: the rule returns Inf on a finite network
        assert "NaN or Inf at layer 0" in refusal(lambda: diagnose(net.model(), net.batches(), **net.arguments()))
        return
    report = diagnose(net.model(), net.batches(), level="full", **net.arguments())
    defined(report)
    if torch.finfo(dtype).max > 1e38 and "h of" in name:
        assert report.checks["D1"].answer == "fail"
        assert report.facts.non_finite == ()
    if name in ("subnormal g", "g below every number", "h of 1e30 under a norm"):
        assert report.checks["D2"].answer == "fail"
        assert report.verdict.gamma_withheld


@pytest.mark.parametrize(
    ("dtype", "epsilon"), [(torch.float32, 1e-40), (torch.float64, 1e-100), (torch.float64, 1e-140)]
)
def test_cosine_of_a_subnormal_reference_is_exact_without_clamp(dtype, epsilon):
    net = Network("subnormal", dtype=dtype, cosines=[1.0], credit_size=1e-30)
    model = net.model()
    with torch.no_grad():
        model.head.scale.fill_(epsilon)
    facts = diagnose(model, net.batches(), credit=net.arguments()["credit"]).facts
    assert known(facts.aggregate).headline == pytest.approx(1.0, abs=1e-3)
    assert facts.reference.per_sample[-1] == pytest.approx(epsilon * E_NORM, rel=1e-3)


@pytest.mark.parametrize("size", [1e160, 1e200, 1e300])
def test_a_large_but_finite_float64_state_is_not_called_infinite(size):
    net = Network("large", dtype=torch.float64, blocks=lambda: [Times(1.0), Times(1.0)])
    model = net.model()
    with torch.no_grad():
        model.blocks[0].c.fill_(size)  # type: ignore[operator]
    report = diagnose(model, net.batches(), credit=lambda hiddens, logits, y: [h.clone() for h in hiddens])
    defined(report)
    assert report.facts.non_finite == ()
    assert report.facts.scale.growth == pytest.approx(size)
    assert report.facts.reference.per_sample[0] == pytest.approx(size * E_NORM)
    assert report.checks["D1"].answer == "fail"


@pytest.mark.parametrize("size", [1, 7])
def test_batches_of_one_are_enough_for_everything_but_stability(size):
    net = Network("one", cosines=[1.0])
    batches = [(x[:1], y[:1]) for x, y in net.batches(GROUP)][:size]
    report = diagnose(net.model(), batches, level="full", **net.arguments())
    defined(report)
    assert report.checks["C"].answer == "not measured"
    assert report.checks["D1"].answer == "pass"
    assert report.facts.alignment is not None
    assert (
        report.facts.alignment.std[0] is None
        if size == 1
        else report.facts.alignment.std[0] == pytest.approx(0.0, abs=1e-7)
    )


def test_one_class_in_the_head_leaves_no_gradient():
    class Lone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.blocks, self.head = nn.Linear(3, 4), nn.ModuleList([nn.Linear(4, 4)]), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            h = self.embed(x)
            out: Tensor = self.head(h + self.blocks[0](h))
            return out

    batches = [(torch.randn(GROUP, 3), torch.zeros(GROUP, dtype=torch.long)) for _ in range(2)]
    report = diagnose(Lone(), batches)
    defined(report)
    assert report.facts.reference.per_sample == (0.0, 0.0)
    assert report.checks["D2"].answer == "fail"
    assert report.checks["C"].answer == "not measurable"


def test_accuracy_of_tokens_is_over_scored_labels():
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
            self.out = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.out(self.inner(x))
            return out

    model = Tokens()
    x = torch.randn(6, 5, 3)
    y = model(x).argmax(-1)
    y[:, 3:] = -100
    facts = diagnose(model, [(x, y)], blocks=["inner.0", "inner.1"]).facts
    assert facts.accuracy == 1.0


def test_training_is_in_train_mode_and_accuracy_in_eval_mode(tmp_path, monkeypatch):
    seen: dict[str, set[bool]] = {"train": set(), "test": set()}
    use(monkeypatch, small_quadratic())
    run: Any = loop._Run(spec(), small_quadratic(), tmp_path)
    inner = run.objective.backward

    def backward(*batch: Any) -> Tensor:
        seen["train"].add(run.model.training)
        return inner(*batch)

    object.__setattr__(run.objective, "backward", backward)
    run._epoch(1)
    run.model.register_forward_pre_hook(lambda module, _: seen["test"].add(module.training))
    run._accuracy()
    assert seen == {"train": {True}, "test": {False}}


def test_train_loss_weighs_a_short_last_batch_by_its_samples():
    total = loop.Total()
    total.add(torch.tensor(1.0), 100)
    total.add(torch.tensor(5.0), 25)
    assert total.mean() == pytest.approx((100 * 1.0 + 25 * 5.0) / 125)


def test_mean_of_the_zoo_credit_is_what_it_says():
    logits, y = torch.zeros(3, C), torch.tensor([0, 1, 2])
    (a,) = credit_along([0.6])([torch.zeros(3, 2 * C)], logits, y)
    assert a.norm(dim=1).tolist() == pytest.approx([1.0] * 3)
    assert math.isclose(float(a[0, :C].norm()), 0.6, rel_tol=1e-6)
