"""The kit for users' rules: every built-in rule passes it, and each thing it promises to find, it finds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from creditscope import CreditBatch, CreditRule, CreditscopeError
from creditscope.credit.registry import all_rules
from creditscope.models import SmallCNN, ViTMini
from creditscope.testing import check_rule

BUILT_IN = [name for name, rule in all_rules().items() if rule.__module__.startswith("creditscope.")]


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_rule_passes(name):
    assert len(check_rule(name)) == 10


class Good(CreditRule):
    """A small DFA that passes; each test below breaks one thing."""

    name = "good"
    summary = "the output error through one fixed random matrix per layer"
    has_feedback = True

    def setup(self, stream: Any, n_classes: int, generator: torch.Generator) -> None:
        self.B = [torch.randn(n_classes, d, generator=generator) for d in stream.widths]

    def credit(self, batch: CreditBatch) -> list[Tensor]:
        return [batch.error @ b for b in self.B]

    def state(self) -> dict[str, Tensor]:
        return {str(k): b for k, b in enumerate(self.B)}

    def load(self, state: Any) -> None:
        self.B = [state[str(k)] for k in range(len(state))]


class Declared(Good):
    """The same, with what it owns named and no methods to save it."""

    tensors = ("B",)
    state, load = CreditRule.state, CreditRule.load


class Summaryless(Good):
    summary = ""


class Global(Good):
    def setup(self, stream: Any, n_classes: int, generator: torch.Generator) -> None:
        self.B = [torch.randn(n_classes, d) for d in stream.widths]


class Forgetful(Good):
    def load(self, state: Any) -> None:
        self.B = [torch.zeros_like(t) for t in state.values()]


class Restless(Good):
    def credit(self, batch: CreditBatch) -> list[Tensor]:
        self.asked = getattr(self, "asked", 0) + 1
        return [a * (1 + (self.asked > 1)) for a in super().credit(batch)]


class Writing(Good):
    def credit(self, batch: CreditBatch) -> list[Tensor]:
        batch.hiddens[0].mul_(1.0)
        return super().credit(batch)


class Boastful(Good):
    def exact_layers(self, depth: int) -> tuple[int, ...]:
        return (depth,)


class Stale(Good):
    def redraw(self, stream: Any, n_classes: int, generator: torch.Generator) -> CreditRule:
        fresh = type(self)()
        fresh.B = self.B
        return fresh


class Miscounting(Good):
    def trained_layers(self, depth: int, kind: str) -> tuple[int, ...]:
        return tuple(range(depth + 1))


class Amnesic(Good):
    """Counts its steps and does not save the count."""

    steps = 0

    def after_step(self, stream: Any, optimizer: Any) -> None:
        self.steps += 1

    def credit(self, batch: CreditBatch) -> list[Tensor]:
        return [a * (1 + self.steps) for a in super().credit(batch)]

    def learn(self, batch: CreditBatch) -> None:
        self.B = [b * (1 + 0.1 * self.steps) for b in self.B]


class Thawing(Good):
    objective = "own"
    uses_norm = False

    def backward(self, stream: Any, x: Tensor, y: Tensor, first_trained: int, penalty: float) -> Tensor:
        loss = F.cross_entropy(stream.model(x), y)
        loss.backward()
        return loss.detach()

    def after_step(self, stream: Any, optimizer: Any) -> None:
        with torch.no_grad():
            for p in stream.blocks[0].parameters():
                p.add_(0.1)


class Headless(Good):
    objective = "own"
    uses_norm = False

    def backward(self, stream: Any, x: Tensor, y: Tensor, first_trained: int, penalty: float) -> Tensor:
        loss = F.cross_entropy(stream.model(x), y)
        (2 * loss).backward()
        return loss.detach()


def test_a_good_rule_of_ones_own_passes():
    assert len(check_rule(Good)) == len(check_rule(Good())) == len(check_rule(Declared)) == 10


def test_what_was_checked_is_shown_as_a_line():
    shown = str(check_rule(Good))
    assert shown.startswith("10 checks passed: ")
    assert not set("()'_") & set(shown)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (Summaryless, "needs a name and a summary"),
        (Global, "is set up differently by the same generator"),
        (Forgetful, "cannot be saved"),
        (Restless, r"gives different credit .*draw in setup\(\), or .*numbers = \('seed', 'steps'\)"),
        (Writing, "writes into the tensors that it is given"),
        (Boastful, "says that a_3 is the exact gradient, and it is not"),
        (Stale, r"gives the same credit after redraw\(\)"),
        (Miscounting, r"layers \(0, 1, 2, 3\) trains something; that of \(0, 1, 2\) does"),
        (Amnesic, "does not resume to the same bits"),
        (Thawing, "although the blocks are frozen"),
        (Headless, "terminal norm and head are exact"),
    ],
)
def test_what_does_not_hold_is_one_line(rule, says):
    with pytest.raises(CreditscopeError, match=says) as caught:
        check_rule(rule)
    assert "\n" not in str(caught.value)


NETS: dict[str, Any] = {
    "convolutions": lambda: SmallCNN(4, width=8, size=4),
    "tokens": lambda: ViTMini(4, width=8, depth=2, patch=2, size=4),
}


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("name", ["fa", "cb", "kp", "dfa-sublayers", "dtp", "pepita", "ff"])
def test_a_model_of_ones_own_is_left_as_it_was(name, net):
    torch.manual_seed(0)
    model = NETS[net]()
    before = {k: t.clone() for k, t in model.state_dict().items()}
    check_rule(name, model, (torch.randn(6, 3, 4, 4), torch.randint(0, 4, (6,))))
    assert all(torch.equal(t, before[k]) for k, t in model.state_dict().items())
