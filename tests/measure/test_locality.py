"""Certificates of updates whose dependence is known by construction."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creditscope.certificate import certify
from creditscope.credit.base import CreditRule
from creditscope.credit.registry import make_rule
from creditscope.errors import CreditscopeError
from creditscope.measure.locality import BACKPROPAGATION, GLOBAL, LABELS, LATER, LOCAL, SIGNS, TRANSPORT, UNDETERMINED
from creditscope.models import ResMLP, SmallCNN, ViTMini
from creditscope.stream import InterfaceStream
from creditscope.untouched import fingerprint
from tests.measure import update_rules as rules
from tests.measure.update_rules import CLASSES, DEPTH, SAMPLES, WIDTH, Net

LAYERS = "layers.*"


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


def shared_feedback() -> nn.Module:
    """FA layers; the feedback of layer 1 is the very weight of layer 2 (planted)."""
    model: Any = Net(rules.of_kind("fa"))
    model.layers[1].linear.weight_backward = model.layers[2].linear.weight
    return model


NO, YES, NONE = "no", "yes", "not applicable"
CASES: dict[str, tuple[Callable[[], nn.Module], Any, str, dict[str, str]]] = {
    # name: network, update, label, answers
    "backpropagation": (Net, rules.backward, BACKPROPAGATION, {"between": YES, "readout": YES, "later_states": YES,
        "teaching": "the output error", "backpropagation": "yes, to round-off", "head": YES, "samples": YES,
        "feedback": "tied to the forward weights"}),
    "dfa by hand": (Net, rules.dfa(), GLOBAL, {"between": NO, "readout": NO, "inside": NONE, "later_states": NO,
        "teaching": "the output error", "backpropagation": NO, "head": YES, "feedback": "fixed"}),
    "planted: W of another block": (Net, rules.dfa(wrong=(0, 2)), TRANSPORT, {"between": YES, "readout": NO}),
    "greedy": (Net, rules.greedy(), LOCAL, {"between": NO, "readout": NO, "later_states": NO, "teaching": "labels alone",
        "head": YES}),
    "planted: a peek at a later block": (Net, rules.greedy(peek=(0, 2)), LATER, {"between": NO, "later_states": YES,
        "teaching": "labels alone"}),
    "planted: detach in the wrong place": (Net, rules.greedy(detach=False), TRANSPORT, {"between": YES, "readout": NO}),
    "hebbian": (Net, rules.hebbian, LOCAL, {"between": NO, "teaching": "no teaching signal", "head": NONE}),
    "layers fa": (lambda: Net(rules.of_kind("fa")), rules.backward, GLOBAL, {"between": NO, "readout": YES, "head": YES}),
    "layers usf": (lambda: Net(rules.of_kind("usf")), rules.backward, SIGNS, {"between": YES}),
    "layers frsf": (lambda: Net(rules.of_kind("frsf")), rules.backward, SIGNS, {"between": YES}),
    "planted: autograd.Function with the weight": (lambda: Net(rules.of_kind("tied")), rules.backward, BACKPROPAGATION,
        {"between": YES}),
    "layers dfa by module hooks": (rules.direct_net, rules.direct, GLOBAL, {"between": NO, "readout": NO,
        "later_states": NO}),
    "planted: module hook": (lambda: rules.direct_net(wrong=(1, 2)), rules.direct, TRANSPORT, {"between": YES}),
    "dfa by tensor hooks": (Net, rules.tensor_hooks(), GLOBAL, {"between": NO, "readout": NO, "later_states": NO}),
    "planted: tensor hook": (Net, rules.tensor_hooks(through=1), TRANSPORT, {"between": YES}),
    "planted: shared parameter": (shared_feedback, rules.backward, TRANSPORT, {"between": YES}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_update_is_labelled_by_what_it_depends_on(name: str) -> None:
    make, update, label, answers = CASES[name]
    found = certify(update, seeded(make), rules.batch(), LAYERS)
    assert found.label == label, str(found)
    assert {k: found.answers[k].answer for k in answers} == answers, str(found)
    assert found.conditions["dtype"] == "float64"
