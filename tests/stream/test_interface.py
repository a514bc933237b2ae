"""The papers' interface: what is accepted, what is refused, and how a state becomes one vector per sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from creditscope import CreditscopeError, diagnose
from creditscope.models import ResMLP, SmallCNN, ViTMini
from creditscope.models.parts import StreamModel
from creditscope.stream import interface
from creditscope.stream.interface import InterfaceStream, difference, make_stream

from .nets import D_IN, C, D, batch, shaken


class Duck(nn.Module):
    """The README of the papers: patch_embed, blocks returning the branch, norm + head; configurable faults."""

    def __init__(self, **faults: Any) -> None:
        super().__init__()
        self.faults = faults
        self.patch_embed = nn.Linear(D_IN, D)
        self.shift = nn.Parameter(torch.randn(D))
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.Tanh()) for _ in range(2))
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, C)

    def forward(self, x: Tensor, return_hidden: bool = False) -> Any:
        h = self.patch_embed(x)
        if self.faults.get("positions"):
            h = h + self.shift
        hiddens = [h]
        for block in self.blocks:
            hiddens.append(hiddens[-1] + block(hiddens[-1]) * self.faults.get("scale", 1))
        if self.faults.get("drop"):
            hiddens.pop(0)
        logits = self.head(self.norm(hiddens[-1])) * self.faults.get("logit_scale", 1)
        return (logits, hiddens) if return_hidden else logits


class Silent(Duck):
    """The same without return_hidden."""

    def forward(self, x: Tensor) -> Any:  # type: ignore[override]
        return super().forward(x)


@pytest.mark.parametrize("model", [Duck(), Silent(), Duck(positions=True)], ids=["papers", "silent", "positions"])
def test_interface_of_the_papers_is_accepted(model):
    x, _ = batch((D_IN,), n=8)
    stream = make_stream(model.eval(), x, 8)
    assert isinstance(stream, InterfaceStream)
    assert (stream.kind, stream.read, stream.depth, stream.widths) == ("residual", "vector", 2, (D,) * 3)
    torch.testing.assert_close(stream.logits_from(0, stream.embed(x)), model(x))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Duck(scale=0.5), "h_1 of model"),
        (Duck(drop=True), "2 hidden states for 2 blocks"),
        (Duck(logit_scale=2), "does not reproduce the model's logits"),
    ],
)
def test_interface_that_does_not_hold_what_it_promises_is_refused_in_one_line(model, says):
    x, y = batch((D_IN,), n=8)
    with pytest.raises(CreditscopeError, match=says) as caught:
        diagnose(model, [(x, y)])
    assert "\n" not in str(caught.value)


def test_blocks_of_a_residual_stream_must_keep_the_shape():
    model = Silent()
    model.blocks[1] = nn.Linear(D, D + 1)
    model.norm, model.head = nn.LayerNorm(D + 1), nn.Linear(D + 1, C)
    model.forward = lambda x: model.head(model.norm(model.blocks[1](model.patch_embed(x))))  # type: ignore[method-assign]
    x, y = batch((D_IN,), n=8)
    with pytest.raises(CreditscopeError, match=r"block 1 maps .* keep the shape"):
        diagnose(model, [(x, y)])


def test_empty_blocks_and_missing_readout_are_named():
    x, y = batch((D_IN,), n=8)
    empty = Duck()
    empty.blocks = nn.ModuleList()
    with pytest.raises(CreditscopeError, match="`blocks` is empty"):
        diagnose(empty, [(x, y)])
    headless = Duck()
    del headless.head
    with pytest.raises(
        CreditscopeError, match="cannot run on the evaluation batch: 'Duck' object has no attribute 'head'"
    ):
        diagnose(headless, [(x, y)])


def test_unknown_read_is_refused_with_the_choices():
    x, y = batch((D_IN,), n=8)
    with pytest.raises(CreditscopeError, match="vector, cls, last, mean, flatten"):
        diagnose(Duck(), [(x, y)], read="best")


def test_a_model_that_is_no_module_is_refused():
    with pytest.raises(CreditscopeError, match=r"give a torch.nn.Module"):
        diagnose(lambda x: x, [batch((D_IN,))])  # type: ignore[arg-type]


def test_plain_kind_is_found_from_the_hidden_states_alone():
    class Plain(StreamModel):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out_ln, self.out_head = nn.Linear(D_IN, D), nn.Identity(), nn.Linear(D, C)
            self.blocks = nn.ModuleList(nn.Linear(D, D) for _ in range(2))

        def hidden_states(self, x: Tensor) -> list[Tensor]:
            h = self.embed(x)
            return [h, self.blocks[0](h), self.blocks[1](self.blocks[0](h))]

    Plain.stream_kind = None  # type: ignore[assignment]
    x, y = batch((D_IN,), n=8)
    assert diagnose(Plain(), [(x, y)]).facts.stream.kind == "plain"


def test_models_declare_their_kind_read_and_widths():
    x, y = batch((3, 8, 8), n=4)
    vit = diagnose(shaken(ViTMini(C, width=8, depth=2, size=8)), [(x, y)]).facts.stream
    assert (vit.kind, vit.read, vit.widths) == ("residual", "cls", (8, 8, 8))
    cnn = diagnose(shaken(SmallCNN(C, width=8, size=8)), [(x, y)]).facts.stream
    assert (cnn.kind, cnn.read) == ("plain", "flatten")
    assert cnn.widths == (32 * 64, 64 * 16, 128 * 4, 8)
    mlp = diagnose(ResMLP(192, C, width=8, depth=2, terminal_norm=False), [(x, y)]).facts.stream
    assert (mlp.kind, mlp.read) == ("residual", "vector")


@pytest.mark.parametrize("read", ["cls", "last", "mean"])
@pytest.mark.parametrize("batch_dim", [0, 1])
def test_read_state_read_grad_and_write_credit_are_consistent(read, batch_dim):
    # <write_credit(a), g> summed over tokens is <a, sum of g over tokens> for every way of reading
    stream = object.__new__(InterfaceStream)
    stream.read, stream.batch_dim, stream.shapes = read, batch_dim, [(5, 3)]
    native = torch.randn(4, 5, 3)
    h = native.transpose(0, 1) if batch_dim else native
    where = {"cls": native[:, 0], "last": native[:, -1], "mean": native.mean(1)}
    torch.testing.assert_close(stream.read_state(h), where[read])
    grad = {"cls": native[:, 0], "last": native[:, -1], "mean": native.sum(1)}
    torch.testing.assert_close(stream.read_grad(h), grad[read])
    a = torch.randn(4, 3)
    torch.testing.assert_close(stream.read_grad(a), a)
    written = stream.write_credit(a, 0).expand_as(h)
    for token in range(5):
        torch.testing.assert_close(written[token] if batch_dim else written[:, token], a)


@pytest.mark.parametrize("chunk", [7, 1000])
@pytest.mark.parametrize(
    "dtypes", [(torch.float32, torch.float32), (torch.float64, torch.float32), (torch.bfloat16,) * 2]
)
def test_a_difference_is_that_of_float64(dtypes, chunk, monkeypatch):
    monkeypatch.setattr(interface, "CHUNK", chunk)
    gen = torch.Generator().manual_seed(0)
    a, b = (torch.randn(5, 8, generator=gen).to(dtype) for dtype in dtypes)
    x, y = (t.double().numpy() for t in (a, b))
    assert difference(a, b) == pytest.approx(np.abs(x - y).max() / np.abs(y).max(), rel=1e-6)
    assert difference(b, b.clone()) == 0.0
    assert difference(a, b[:4]) == float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_what_is_not_finite_equals_itself_alone(dtype):
    b = torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 4.0], dtype=dtype)
    a = b.clone()
    a[0] = 2.0
    assert difference(a, b) == 0.25
    for k, value in ((1, 0.5), (1, 0.0), (2, -float("inf")), (3, float("nan")), (4, float("inf"))):
        other = a.clone()
        other[k] = value
        assert difference(other, b) == float("inf"), (k, value)
    nothing = torch.full((3,), float("nan"), dtype=dtype)
    assert difference(nothing, nothing.clone()) == 0.0


def test_a_difference_may_be_larger_than_its_dtype_holds():
    largest = torch.tensor([3e38, 1.0])
    assert difference(-largest, largest) == pytest.approx(2.0)
