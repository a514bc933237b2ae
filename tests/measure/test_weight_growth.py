import math
from typing import Any

import pytest
import torch
from tests.measure.functional_nets import samples, tanh_net

from creditscope.errors import CreditscopeError
from creditscope.measure.weight_growth import (
    growth_by_block,
    loss_decrease,
    parameter_growth,
    training_facts,
    weight_products,
)
from creditscope.protocol.diagnosis import diagnose

LINES: list[dict[str, Any]] = [
    {"epoch": 0, "accuracy": 0.1, "train_loss": "NaN"},
    {"epoch": 1, "accuracy": 0.3, "train_loss": 2.0},
    {"epoch": 2, "accuracy": 0.4, "train_loss": 1.5},
]


def state(**values):
    return {name.replace("__", "."): torch.tensor(value) for name, value in values.items()}


def test_growth_of_known_vectors():
    initial = state(embed__w=[3.0, 4.0], blocks__0__b=[0.0], blocks__1__w=[1.0], blocks__1__running_mean=[5.0])
    final = state(embed__w=[3.0, 4.0], blocks__0__b=[1.0], blocks__1__w=[3.0], blocks__1__running_mean=[9.0])
    assert growth_by_block(final, initial) == (None, 2.0)  # a block that starts at zero has no ratio
    assert parameter_growth(final, initial) == pytest.approx(math.sqrt(1 + 4) / math.sqrt(25 + 1))


def test_blocks_are_in_numerical_order():
    initial = {f"blocks.{k}.w": torch.ones(1) for k in range(12)}
    final = {f"blocks.{k}.w": torch.tensor([1.0 + k]) for k in range(12)}
    assert growth_by_block(final, initial) == tuple(float(k) for k in range(12))


def test_weight_products_are_frobenius():
    got = weight_products(
        state(blocks__0__linear1__weight=[[3.0, 0], [0, 4]], blocks__0__linear2__weight=[[2.0]], blocks__1__conv=[1.0])
    )
    assert got[0] == pytest.approx(10.0)
    assert got[1:] == (None,)


def test_loss_decrease_from_the_first_epoch_and_from_the_start():
    assert loss_decrease(LINES) == (-0.5, None)
    assert loss_decrease(LINES, initial_loss=2.3)[1] == pytest.approx(-0.8)
    assert loss_decrease(LINES[:1]) == (None, None)


def test_training_facts_reach_the_report():
    model, initial = tanh_net(), tanh_net(seed=1).state_dict()
    facts = training_facts(LINES, model.state_dict(), initial)
    assert facts.train_loss == (2.0, 1.5)
    assert facts.growth_embed is None
    assert facts.weight_product_start == weight_products(initial)
    report = diagnose(model, [samples()], training=facts)
    assert report.facts.training == facts
    assert "train loss -0.500 from first to last epoch" in report.to_text(long=True)
    with pytest.raises(CreditscopeError, match=r"differ in their names, e\.g\. at 'extra'"):
        training_facts(LINES, {**initial, "extra": torch.ones(1)}, initial)
