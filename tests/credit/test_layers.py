"""Which layers count: those whose credit changes a gradient when it changes, found by changing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from creditscope import CreditscopeError, diagnose
from creditscope.credit.base import CallableRule, CreditBatch, CreditRule
from creditscope.credit.layers import trained_layers
from creditscope.measure.alignment import aggregate, alignment
from creditscope.measure.concentration import concentration
from creditscope.measure.nulls import FreshNull
from creditscope.models import ResMLP, SmallCNN
from creditscope.stream.interface import InterfaceStream
from creditscope.training.objective import Objective, freeze_first


class Fixed(CreditRule):
    """The same credit for every batch."""

    name = "fixed"

    def __init__(self, credits: list[Tensor]) -> None:
        super().__init__()
        self.credits = credits

    def credit(self, batch: CreditBatch) -> Sequence[Tensor]:
        return self.credits


def gradients(model: Any, x: Tensor, y: Tensor, credits: list[Tensor], site: str, train_last: int | None) -> list[Any]:
    stream = InterfaceStream(model, x[:3])
    model.requires_grad_(True)
    first = freeze_first(stream, train_last)
    model.zero_grad()
    Objective(stream, Fixed(credits), "none", site, 0.0, first).backward(x, y)
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


NETS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "residual": (lambda: ResMLP(6, 4, width=8, depth=3), (6,)),
    "plain": (lambda: SmallCNN(4, width=8, size=4), (3, 4, 4)),
}


@pytest.mark.parametrize("train_last", [None, 2, 1, 0])
@pytest.mark.parametrize(("kind", "site"), [("residual", "input"), ("residual", "output"), ("plain", "output")])
def test_a_layer_counts_if_its_credit_trains_something(kind, site, train_last):
    torch.manual_seed(0)
    make, shape = NETS[kind]
    model = make().train()
    x, y = torch.randn(8, *shape), torch.randint(0, 4, (8,))
    stream = InterfaceStream(model, x[:3])
    credits = [torch.randn(8, width) for width in stream.widths]
    before = gradients(model, x, y, credits, site, train_last)
    moved = []
    for layer in range(stream.depth + 1):
        other = [a + 1 if k == layer else a for k, a in enumerate(credits)]
        after = gradients(model, x, y, other, site, train_last)
        same = [(p is None and q is None) or torch.equal(p, q) for p, q in zip(before, after, strict=True)]
        if not all(same):
            moved.append(layer)
    first = 0 if train_last is None else stream.depth - train_last
    assert trained_layers(stream.depth, kind, site, first) == tuple(moved)
    rule = Fixed(credits)
    rule.credit_site, rule.first_trained = site, first
    assert rule.trained_layers(stream.depth, kind) == tuple(moved)


def test_where_the_site_is_not_stated_every_layer_counts_and_the_report_says_so():
    rule = Fixed([])
    assert rule.trained_layers(3, "residual") == (0, 1, 2, 3)
    assert (
        rule.counting_note(3, "residual")
        == "where a block takes its credit (credit_site) is not stated: every layer counts"
    )
    rule.credit_site, rule.first_trained = "input", 2
    assert rule.counting_note(3, "residual") == "a_1, a_3 train nothing and do not count"
    rule.credit_site, rule.first_trained = "output", 0
    assert rule.counting_note(3, "residual") == ""


def test_none_stands_for_the_same_layers_in_every_batch():
    model = ResMLP(6, 4, width=8, depth=2)
    batches = [(torch.randn(4, 6), torch.randint(0, 4, (4,))) for _ in range(2)]
    seen: list[int] = []

    def credit(hiddens: list[Tensor], logits: Tensor, y: Tensor) -> list[Tensor | None]:
        seen.append(1)
        return [None if k == len(seen) else h.clone() for k, h in enumerate(hiddens)]

    with pytest.raises(CreditscopeError, match=r"None at layers \[2\] in one batch and at \[1\] in another"):
        diagnose(model, batches, credit=credit)


def test_aggregates_are_those_of_the_layers_that_count_alone():
    rng = np.random.default_rng(0)
    dot, aa, gg, clamped = (rng.random((5, 7)) for _ in range(4))
    counting = (0, 2, 3)
    found = aggregate(dot, aa, gg, clamped, counting)
    rows = list(counting)
    alone = aggregate(dot[rows], aa[rows], gg[rows], clamped[rows])
    for name in ("headline", "concat", "norm_weighted", "flattened", "clamped_128", "spread", "sign_flips"):
        assert getattr(found, name) == getattr(alone, name), name
    cosines = (dot / np.sqrt(aa * gg)).mean(1)
    assert found.headline == pytest.approx(cosines[[0, 2, 3]].mean())
    assert found.gamma_all_layers == pytest.approx(cosines.mean())
    assert alignment(dot, aa, gg, 1e-7, counting).counting == counting
    assert alignment(dot, aa, gg, 1e-7).counting == (0, 1, 2, 3, 4)


def test_concentration_is_over_the_layers_that_count_of_which_there_have_to_be_three():
    means = (0.4, 0.1, -0.1, 0.2, 0.9)
    found = concentration(means, (4,), (0, 1, 2))
    assert found.share == pytest.approx((0.4 / 0.6, 0.1 / 0.6, -0.1 / 0.6, None, None))
    assert found.top_layer == 0
    assert found.top_share == pytest.approx(0.4 / 0.6)
    assert found.deep_mean == pytest.approx(0.0)
    assert found.deep_mean_all_layers == pytest.approx((0.1 - 0.1 + 0.2 + 0.9) / 4)
    two = concentration(means, (), (0, 4))
    assert (two.top_layer, two.top_share, two.share) == (None, None, (None,) * 5)
    assert two.deep_mean == pytest.approx(0.9)


def test_the_null_leaves_out_what_trains_nothing():
    rule = CallableRule(lambda h, z, y: [])
    assert FreshNull(rule, 3).layers == (1, 2, 3)
    fixed = Fixed([])
    fixed.credit_site = "input"
    assert FreshNull(fixed, 3).layers == (1, 2)
    fixed.first_trained = 2
    assert FreshNull(fixed, 3).layers == (2,)
