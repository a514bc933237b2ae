"""`frozen_blocks`: a twin whose blocks are drawn anew and frozen; the user's model is left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from creditscope import CreditscopeError, diagnose, frozen_blocks
from creditscope.models import ResMLP, SmallCNN, StudentNet, ViTMini

from ..stream.nets import D_IN, C, D, EncoderClassifier, PlainMLP, ResidualCNN, T, batch, shaken

CASES: dict[str, tuple[Any, Any, str, tuple[int, ...]]] = {
    "resmlp": (lambda: ResMLP(D_IN, C, D, 2), None, "blocks", (D_IN,)),
    "student": (lambda: StudentNet(D_IN, C, D, 2), None, "blocks", (D_IN,)),
    "vit": (lambda: ViTMini(C, 8, 2, size=8), None, "blocks", (3, 8, 8)),
    "small cnn": (lambda: SmallCNN(C, 8, size=4), None, "blocks", (3, 4, 4)),
    "encoder": (EncoderClassifier, "encoder.layers.*", "encoder.layers", (T - 1, D_IN)),
    "cnn": (ResidualCNN, "stages.*", "stages", (3, 6, 6)),
    "stack": (PlainMLP, "layers.*", "layers", (D_IN,)),
}


@pytest.mark.parametrize("name", CASES)
def test_blocks_are_drawn_anew_and_frozen_and_the_rest_is_kept_and_trainable(name):
    make, blocks, prefix, shape = CASES[name]
    model = shaken(make())
    kept = {k: v.clone() for k, v in model.state_dict().items()}
    twin = frozen_blocks(model, blocks)
    for key, p in twin.named_parameters():
        inside = key.startswith(prefix)
        assert p.requires_grad != inside, key
        assert torch.equal(p, kept[key]) != inside, key
        assert p is not dict(model.named_parameters())[key]
    for key, value in model.state_dict().items():
        assert torch.equal(value, kept[key]), key
    x, y = batch(shape, n=6)
    torch.nn.functional.cross_entropy(twin(x), y).backward()
    got = {k for k, p in twin.named_parameters() if p.grad is not None}
    assert got == {k for k, _ in twin.named_parameters() if not k.startswith(prefix)}
    assert diagnose(twin, [(x, y)], blocks=blocks).facts.stream.depth >= 2


@pytest.mark.parametrize("name", ["resmlp", "student", "vit"])
def test_redrawn_blocks_have_the_initialisation_of_a_new_model(name):
    # the recipe's small last map too: weight N(0, .01^2), bias 0
    make, blocks, _, _ = CASES[name]
    twin: Any = frozen_blocks(shaken(make(), std=1.0), blocks)
    for block in twin.blocks:
        assert float(block.linear2.weight.detach().abs().max()) < 0.06
        assert not block.linear2.bias.any()
        bound = block.linear1.in_features**-0.5
        assert float(block.linear1.weight.detach().abs().max()) <= bound


def test_batch_statistics_of_redrawn_blocks_start_again():
    twin: Any = frozen_blocks(shaken(ResidualCNN()), "stages.*")
    for block in twin.stages:
        assert not block.bn.running_mean.any()
        assert bool((block.bn.running_var == 1).all())


def test_seed_decides_the_draw_and_the_global_generator_is_left_alone():
    model = shaken(ResMLP(D_IN, C, D, 2))
    before = torch.get_rng_state()
    one, same, other = (frozen_blocks(model, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    key = "blocks.0.linear1.weight"
    assert torch.equal(one[key], same[key])
    assert not torch.equal(one[key], other[key])


def test_blocks_given_as_modules_are_found_in_the_twin():
    model: Any = shaken(PlainMLP())
    twin: Any = frozen_blocks(model, list(model.layers)[:2])
    assert [p.requires_grad for layer in twin.layers for p in layer.parameters()] == [False] * 4 + [True] * 2


def test_init_of_the_user_is_used():
    def zero(block: nn.Module) -> None:
        for p in block.parameters():
            p.zero_()

    twin: Any = frozen_blocks(shaken(PlainMLP()), "layers.*", init=zero)
    assert not any(p.any() for p in twin.layers.parameters())


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(D))

    def forward(self, h: Tensor) -> Tensor:
        return h * self.scale


def test_what_cannot_be_redrawn_is_one_line():
    model = PlainMLP()
    model.layers[1] = Bare()
    for call in (lambda: frozen_blocks(model, "layers.*"), lambda: frozen_blocks(PlainMLP())):
        with pytest.raises(CreditscopeError) as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(CreditscopeError, match=r"'scale'.*init="):
        frozen_blocks(model, "layers.*")
