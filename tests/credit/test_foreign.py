"""Credit recovered from the backward pass of somebody else's layers, against its closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.known import known
from tests.refusals import refusal
from torch import Tensor, nn

from creditscope import CreditscopeError, credit_from_grads, diagnose

from ..stream.nets import D_IN, C, D, batch, by_hand, cosines, floats, shaken


class FALinearFunction(torch.autograd.Function):
    """x Wᵀ forward; a fixed random matrix in place of W on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, feedback: Tensor) -> Tensor:
        ctx.save_for_backward(x, feedback)
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, feedback = ctx.saved_tensors
        return grads[0] @ feedback, grads[0].t() @ x, None


class FALinear(nn.Module):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        self.bias = nn.Parameter(torch.empty(n_out))
        self.register_buffer("feedback", torch.randn(n_out, n_in))

    def forward(self, x: Tensor) -> Tensor:
        return FALinearFunction.apply(x, self.weight, self.feedback) + self.bias


class HookedLinear(nn.Linear):
    """The same idea by a backward hook: the sign of the weight on the way back."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out)

        def turned(layer: Any, _: Any, out: Any) -> tuple[Tensor]:
            return (out[0] @ layer.weight.sign(),)

        self.register_full_backward_hook(turned)


class Block(nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.fc = layer(D, D)

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.tanh(self.fc(h))


class Net(nn.Module):
    def __init__(self, layer: Any = nn.Linear) -> None:
        super().__init__()
        self.first = nn.Linear(D_IN, D)
        self.stack = nn.Sequential(*(Block(layer) for _ in range(3)))
        self.last = nn.Linear(D, C)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.stack(self.first(x)))


def closed_form(model: Any, x: Tensor, y: Tensor, back: Any) -> list[Tensor]:
    """a_L = Wᵀ_last e; a_l = a_{l+1} + ((1 - tanh²) ⊙ a_{l+1}) B_l."""
    with torch.no_grad():
        hs, slopes = [model.first(x)], []
        for block in model.stack:
            f = torch.tanh(hs[-1] @ block.fc.weight.t() + block.fc.bias)
            slopes.append(1 - f**2)
            hs.append(hs[-1] + f)
        a = (torch.softmax(model.last(hs[-1]), 1) - F.one_hot(y, C)) @ model.last.weight
        credits = [a]
        for block, slope in zip(reversed(model.stack), reversed(slopes), strict=True):
            a = a + (slope * a) @ back(block.fc)
            credits.insert(0, a)
    return credits


CASES: list[tuple[Any, Any]] = [
    (FALinear, lambda layer: layer.feedback),
    (HookedLinear, lambda layer: layer.weight.sign()),
]


@pytest.mark.parametrize(("layer", "back"), CASES, ids=["custom function", "backward hook"])
@pytest.mark.parametrize("by", ["twin", "to_exact"])
def test_credit_and_alignment_equal_the_closed_form(layer, back, by):
    torch.manual_seed(0)
    theirs: Any = shaken(Net(layer))
    x, y = batch((D_IN,))
    if by == "twin":
        rule = credit_from_grads(theirs, twin=Net())
    else:
        rule = credit_from_grads(theirs, to_exact={layer: lambda m: nn.Linear(*reversed(m.weight.shape))})
    before = {k: v.clone() for k, v in theirs.state_dict().items()}
    seen: list[Tensor] = []
    own = rule.credit

    def noted(batch: Any) -> Any:
        seen.extend(own(batch))
        return seen

    rule.credit = noted  # type: ignore[method-assign]
    facts = diagnose(rule.twin, [(x, y)], credit=rule).facts
    wanted = closed_form(theirs, x, y, back)
    for ours, theirs_a in zip(seen, wanted, strict=True):
        torch.testing.assert_close(ours, theirs_a, rtol=1e-4, atol=1e-5)
    twin: Any = rule.twin
    _, g, _ = by_hand(twin.first, list(twin.stack), twin.last, x, y)
    assert facts.alignment is not None
    expected = [cosines(a, b).mean() for a, b in zip(wanted, g, strict=True)]
    np.testing.assert_allclose(floats(facts.alignment.mean), expected, atol=1e-5)
    assert facts.alignment.mean[3] == pytest.approx(1)
    assert facts.alignment.mean[0] < 0.999  # type: ignore[operator]
    assert all(torch.equal(v, before[k]) for k, v in theirs.state_dict().items())


def test_weights_that_went_on_training_have_to_be_taken_over():
    theirs: Any = shaken(Net(FALinear))
    rule = credit_from_grads(theirs, twin=Net())
    x, y = batch((D_IN,))
    with torch.no_grad():
        theirs.first.weight.mul_(2)
    assert "rule.sync()" in refusal(lambda: diagnose(rule.twin, [(x, y)], credit=rule))
    diagnose(rule.sync(), [(x, y)], credit=rule)


def test_wrong_use_is_one_line():
    theirs: Any = shaken(Net(FALinear))
    x, y = batch((D_IN,))
    rule = credit_from_grads(theirs, twin=Net())
    for says, call in [
        ("either twin= .* or to_exact=", lambda: credit_from_grads(theirs)),
        ("no such layer", lambda: credit_from_grads(theirs, to_exact={nn.Bilinear: lambda m: m})),
        ("diagnose the exact twin", lambda: diagnose(theirs, [(x, y)], credit=rule)),
        ("has no weight 'weight'", lambda: credit_from_grads(theirs, twin=nn.Linear(2, 2))),
        ("is .16, 6. in the method's model", lambda: credit_from_grads(theirs, twin=_narrow())),
        ("no signal arrives at h_0", lambda: diagnose(Net(), [(x, y)], credit=_cut())),
    ]:
        with pytest.raises(CreditscopeError, match=says) as caught:
            call()
        assert "\n" not in str(caught.value)


def _narrow() -> nn.Module:
    twin = Net()
    twin.first = nn.Linear(D_IN + 1, D)
    return twin


def _cut() -> Any:
    """A block that learns from a local loss: nothing goes from it to what comes before."""

    class Cut(Block):
        def forward(self, h: Tensor) -> Tensor:
            return super().forward(h.detach())

    theirs = Net()
    theirs.stack[0] = Cut(nn.Linear)
    rule = credit_from_grads(theirs, twin=Net(), blocks="stack.*")
    rule.attach = lambda stream: stream.model.load_state_dict(theirs.state_dict())  # type: ignore[method-assign]
    return rule


def test_size_of_foreign_credit_is_that_of_the_summed_loss():
    """An ordinary model as its own method: the credit is g itself, in length too."""
    theirs, twin = shaken(Net()), Net()
    rule = credit_from_grads(theirs, twin=twin)
    facts = diagnose(rule.twin, [batch((D_IN,))], credit=rule, blocks="stack.*").facts
    assert known(facts.alignment).credit_norm == pytest.approx(facts.reference.per_sample, rel=1e-5)
