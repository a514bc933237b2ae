"""find_blocks on models that know nothing of creditscope: what is found, what is said, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.refusals import refusal
from torch import Tensor, nn

from creditscope import CreditscopeError, diagnose, find_blocks

from .nets import D_IN, BranchModel, C, D, EncoderClassifier, PlainMLP, PostActivation, T, batch, shaken


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, D), nn.GELU(), nn.Linear(D, D))

    def forward(self, h: Tensor) -> Tensor:
        return h + self.inner(h)


class Other(Residual):
    """The same by another name: blocks of two classes in turn."""


class ResNet(nn.Module):
    """As torchvision writes it: four stages, each a Sequential of blocks; the first block of a stage may change the shape."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.layer1 = nn.Sequential(PostActivation(4, 4), PostActivation(4, 4))
        self.layer2 = nn.Sequential(PostActivation(4, 6, stride=2), PostActivation(6, 6))
        self.fc = nn.Linear(6, C)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layer2(self.layer1(torch.relu(self.bn1(self.conv1(x))))).mean((2, 3)))


def vit(kind: str) -> Any:
    transformers = pytest.importorskip("transformers", reason="extra hf is missing: transformers models are NOT tested")
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=D,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=24,
        image_size=8,
        patch_size=4,
        num_labels=C,
    )
    return getattr(transformers, f"{kind}ForImageClassification")(config)


def gpt2() -> Any:
    transformers = pytest.importorskip("transformers", reason="extra hf is missing: transformers models are NOT tested")
    config = transformers.GPT2Config(
        n_embd=D, n_layer=3, n_head=2, vocab_size=11, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def ladder() -> nn.Module:
    return nn.Sequential(nn.Linear(D_IN, D), Residual(), Residual(), Residual(), nn.LayerNorm(D), nn.Linear(D, C))


class ByName(nn.Module):
    """Blocks that are attributes, as in much code."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.block1, self.block2, self.block3 = nn.Linear(D_IN, D), Residual(), Residual(), Residual()
        self.out = nn.Linear(D, C)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.block3(self.block2(self.block1(self.inp(x)))))


class Leaves(torch.fx.Tracer):
    """Blocks stay modules."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, Residual) or super().is_leaf_module(m, module_qualified_name)


def traced() -> nn.Module:
    model = nn.Sequential(nn.Linear(D_IN, D), nn.Sequential(Residual(), Residual()), nn.Linear(D, C))
    return torch.fx.GraphModule(model, Leaves().trace(model))


def mixed() -> nn.Module:
    inside = nn.Sequential(Residual(), Other(), Residual(), Other())
    return nn.Sequential(nn.Linear(D_IN, D), inside, nn.Linear(D, C))


IMAGE = (3, 8, 8)
CASES = {
    "vit": (lambda: vit("ViT"), IMAGE, "cls", ["vit.layers.0", "vit.layers.1", "vit.layers.2"]),
    "deit": (lambda: vit("DeiT"), IMAGE, "cls", ["deit.layers.0", "deit.layers.1", "deit.layers.2"]),
    "resnet": (ResNet, IMAGE, "flatten", ["layer1.0", "layer1.1", "layer2.0", "layer2.1"]),
    "encoder": (EncoderClassifier, (T, D_IN), "cls", [f"encoder.layers.{k}" for k in range(3)]),
    "sequential": (ladder, (D_IN,), "vector", ["1", "2", "3"]),
    "two classes": (mixed, (D_IN,), "vector", ["1.0", "1.1", "1.2", "1.3"]),
    "attributes": (ByName, (D_IN,), "vector", ["block1", "block2", "block3"]),
    "traced": (traced, (D_IN,), "vector", ["1.0", "1.1"]),
    "branches": (BranchModel, (D_IN,), "vector", [f"layers.{k}" for k in range(3)]),
    "tied": (lambda: BranchModel(tied=True), (D_IN,), "vector", ["layers.0"]),
}


@pytest.mark.parametrize("case", CASES)
def test_blocks_are_found_said_in_one_line_and_give_the_facts_of_naming_them(case, capsys):
    make, shape, read, names = CASES[case]
    model = shaken(make())
    x, y = batch(shape)
    assert find_blocks(model, (x, y)) == names
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert names[0] in said
    assert "verified" in said
    assert find_blocks(model, x) == names
    found = diagnose(model, [(x, y)]).facts
    named = diagnose(model, [(x, y)], blocks=names).facts
    assert (found.stream.kind, found.stream.read) == ("residual", read)
    assert any("blocks found" in note for note in found.stream.notes)
    assert (found.scale, found.reference, found.loss) == (named.scale, named.reference, named.loss)


def test_language_model_from_a_mapping():
    ids = torch.randint(0, 11, (6, 7))
    assert find_blocks(gpt2(), {"input_ids": ids}) == ["transformer.h.0", "transformer.h.1", "transformer.h.2"]


def test_without_an_example_the_proposal_is_said_not_to_be_verified(capsys):
    assert find_blocks(ladder()) == ["1", "2", "3"]
    assert "not verified" in capsys.readouterr().out
    assert find_blocks(ResNet()) == ["layer1.0", "layer1.1", "layer2.0", "layer2.1"]


def test_naming_blocks_overrides_the_search(capsys):
    x, y = batch((D_IN,))
    assert diagnose(ladder(), [(x, y)], blocks=["2", "3"]).facts.stream.blocks == ("2", "3")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("model", [PlainMLP(), nn.Sequential(nn.Linear(D_IN, D), nn.ReLU(), nn.Linear(D, C))])
@pytest.mark.parametrize("call", [find_blocks, lambda m, b: diagnose(m, [b])])
def test_a_model_without_residual_blocks_is_told_so_in_one_line(model, call):
    with pytest.raises(CreditscopeError, match=r"no residual blocks were found in .*blocks=") as caught:
        call(model, batch((D_IN,)))
    assert "\n" not in str(caught.value)


def test_a_search_leaves_the_model_as_found():
    model = shaken(ResNet()).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    find_blocks(model, batch(IMAGE))
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_an_example_may_be_a_numpy_array_and_must_hold_a_tensor():
    x, _ = batch((D_IN,))
    assert find_blocks(ladder(), x.numpy()) == find_blocks(ladder(), x)
    for empty in ({}, {"a": 1}):
        assert "no tensor" in refusal(find_blocks, ladder(), empty)
