"""The proof of a stream: what it says of networks whose answer is known by construction."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creditscope import CreditscopeError, diagnose
from creditscope.measure.proof import native

C, D, D_IN = 4, 8, 6


class Net(nn.Module):
    """Two residual blocks; `side` takes something from elsewhere to the logits."""

    def __init__(self, side: str = "", strength: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.side, self.strength = side, strength
        self.stem = nn.Linear(D_IN, D)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.Tanh()) for _ in range(2))
        self.head = nn.Linear(D, C)
        self.across = nn.Linear(D_IN, C)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        if self.side == "batch":
            h = h - self.strength * h.mean(0)
        for layer in self.layers:
            h = h + layer(h)
        out: Tensor = self.head(h)
        return out + self.strength * self.across(x) if self.side == "input" else out


def batches() -> list[tuple[Tensor, Tensor]]:
    gen = torch.Generator().manual_seed(1)
    return [(torch.randn(12, D_IN, generator=gen), torch.randint(0, C, (12,), generator=gen)) for _ in range(2)]


def test_a_plain_stream_is_proved_at_every_layer():
    report = diagnose(Net(), batches(), blocks="layers.*")
    proof = report.facts.proof
    assert proof is not None
    assert proof.n_samples == 3
    assert proof.logits == 0
    assert proof.independent is True
    assert proof.swap == pytest.approx((0, 0, 0), abs=1e-6)
    assert all(e is not None and e < 1e-6 for e in proof.gradient)
    assert (proof.gradient_dtype, proof.beside) == ("float64", ())
    assert not [w for w in report.verdict.warnings if "goes around" in w or "influence" in w]


@pytest.mark.parametrize("strength", [1.0, 0.01])
def test_what_goes_around_every_state_has_its_size_in_the_swap(strength):
    """logits = head(h) + s A x: with the input of another sample they differ by s A (x' - x), at every layer alike."""
    model = Net("input", strength)
    report = diagnose(model, batches(), blocks="layers.*")
    assert report.facts.proof is not None
    x = batches()[0][0][:3]
    with torch.no_grad():
        off = (strength * model.across(x.roll(1, 0)) - strength * model.across(x)).abs().max() / model(x).abs().max()
    assert report.facts.proof.swap == pytest.approx([float(off)] * 3, rel=1e-4)
    assert any("something goes around h_0, h_1, h_2" in w for w in report.verdict.warnings)


def test_samples_that_influence_each_other_are_marked_and_the_gradient_still_proved():
    report = diagnose(Net("batch", 0.5), batches(), blocks="layers.*")
    proof = report.facts.proof
    assert proof is not None
    assert proof.independent is False
    assert proof.swap == (None, None, None)
    assert all(e is not None and e < 1e-6 for e in proof.gradient)
    assert any("influence each other" in w for w in report.verdict.warnings)


def test_one_sample_proves_the_gradient_and_leaves_the_rest_open():
    x, y = batches()[0]
    proof = diagnose(Net(), [(x[:1], y[:1])], blocks="layers.*").facts.proof
    assert proof is not None
    assert (proof.independent, proof.swap) == (None, (None,) * 3)
    assert all(e is not None and e < 1e-6 for e in proof.gradient)


class Halved(torch.autograd.Function):
    """The identity, with half of the gradient on the way back."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return h.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] / 2


def test_a_gradient_that_is_too_small_is_refused_with_its_error(monkeypatch):
    model = Net()
    head = model.head.forward
    monkeypatch.setattr(model.head, "forward", lambda h: head(Halved.apply(h)))
    with pytest.raises(CreditscopeError, match=r"g_0 is not the gradient of the loss \(input of 'layers.0'\).*0\.5"):
        diagnose(model, batches(), blocks="layers.*")


def test_large_networks_are_checked_in_their_own_dtype_and_it_is_said(monkeypatch):
    monkeypatch.setattr(native, "LARGEST_COPY", 10)
    report = diagnose(Net(), batches(), blocks="layers.*")
    proof = report.facts.proof
    assert proof is not None
    assert proof.gradient_dtype == "float32"
    assert "parameters, a float64 copy is made up to 10" in proof.gradient_reason
    assert all(e is not None and e < 0.05 for e in proof.gradient)
    half = diagnose(Net().bfloat16(), batches(), blocks="layers.*")
    assert half.facts.proof is not None
    assert half.facts.proof.gradient == (None, None, None)
    assert any("too coarse for a finite difference" in w for w in half.verdict.warnings)


def test_a_loss_that_cannot_change_proves_nothing_and_refuses_nothing():
    model = Net()
    with torch.no_grad():
        model.head.weight.zero_()
    report = diagnose(model, batches(), blocks="layers.*")
    assert report.facts.proof is not None
    assert report.facts.proof.gradient == (None, None, None)
    assert any("could not be held against a finite difference" in w for w in report.verdict.warnings)
    assert any("exactly zero" in w for w in report.verdict.warnings)


class TwoPercentMore(torch.autograd.Function):
    """The identity, with a backward pass that is wrong by 2 %."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return h.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 1.02 * g


class Tabled(nn.Module):
    """Adds a small constant that it keeps in half precision; the branch is right, or has a wrong backward pass."""

    def __init__(self, wrong: bool) -> None:
        super().__init__()
        self.map, self.wrong, self.table = nn.Linear(8, 8), wrong, torch.linspace(0, 1e-3, 8)

    def forward(self, h: Tensor) -> Tensor:
        inside = TwoPercentMore.apply(h) if self.wrong else h
        return h + torch.tanh(self.map(inside)) + self.table.to(torch.bfloat16)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_constant_in_half_precision_does_not_make_the_proof_coarse(wrong):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Sequential(*(Tabled(wrong) for _ in range(3))), nn.Linear(8, 3))
    batches = [(torch.randn(16, 5), torch.randint(0, 3, (16,)))]
    if wrong:
        with pytest.raises(CreditscopeError, match="is not the gradient of the loss"):
            diagnose(model, batches, blocks="1.*")
    else:
        proof = diagnose(model, batches, blocks="1.*").facts.proof
        assert proof is not None
        assert proof.gradient_dtype == "float64"


def test_a_loss_in_half_precision_is_no_straight_through_estimator():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Sequential(*(Tabled(False) for _ in range(3))), nn.Linear(8, 3))
    batches = [(torch.randn(16, 5), torch.randint(0, 3, (16,)))]
    proof = diagnose(
        model, batches, blocks="1.*", loss_fn=lambda z, y: F.cross_entropy(z.half(), y, reduction="none").float()
    ).facts.proof
    assert proof is not None
    assert proof.gradient_dtype == "float16"
