"""`frozen_blocks`: a twin whose blocks are drawn anew and frozen; the user's model is left alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from tests.refusals import refusal
from torch import Tensor, nn

from creditscope import diagnose, frozen_blocks
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
@pytest.mark.parametrize("how", ["as constructed", "build"])
def test_blocks_are_drawn_anew_and_frozen_and_the_rest_is_kept_and_trainable(name, how):
    make, blocks, prefix, shape = CASES[name]
    model = shaken(make())
    kept = {k: v.clone() for k, v in model.state_dict().items()}
    twin = frozen_blocks(model, blocks, rest="keep", build=make if how == "build" else None)
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
    assert float(twin.out_head.weight.detach().abs().max()) <= twin.out_head.in_features**-0.5
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


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.tanh(self.linear(h))


class ZeroBranch(Branch):
    """A branch that starts at zero: its Linear does not start as reset_parameters() leaves it."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.linear.weight)


class OtherReset(Bare):
    """Its constructor does not do what its reset_parameters() does."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((D,), 0.1))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.scale)


class OwnReset(OtherReset):
    def __init__(self) -> None:
        super().__init__()
        self.reset_parameters()


class Helped(Branch):
    """Its weights are set by a function that its constructor calls."""

    def __init__(self) -> None:
        super().__init__()
        self._prepare()

    def _prepare(self) -> None:
        halve(self.linear)


def halve(linear: nn.Linear) -> None:
    with torch.no_grad():
        linear.weight.mul_(0.5)


def stack(*middle: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(D_IN, D), *middle, nn.LayerNorm(D), nn.Linear(D, C))


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (Bare, "Bare owns 'scale' and has no reset_parameters()"),
        (ZeroBranch, "the constructor of ZeroBranch sets weights (init)"),
        (OtherReset, "OtherReset owns 'scale' and does not call reset_parameters() itself"),
        (Helped, "the constructor of Helped sets weights (no_grad)"),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(D, D)), "is parametrised"),
    ],
)
def test_blocks_whose_start_is_not_known_are_named(part, why):
    message = refusal(lambda: frozen_blocks(stack(nn.Linear(D, D), part(), part()), ["1", "2", "3"]))
    assert message.startswith("cannot tell how blocks '2', '3' are initialised: ")
    assert why in message
    assert "init=" in message
    assert "build=" in message


def test_a_model_that_sets_the_weights_of_its_blocks_is_asked_for_its_builder():
    class Applied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = stack(nn.Linear(D, D), nn.Linear(D, D))
            self.apply(self.small)

        def small(self, module: nn.Module) -> None:
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=1e-4)

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x)

    model = shaken(Applied())
    assert "the constructor of Applied sets weights (apply)" in refusal(lambda: frozen_blocks(model, ["body.1"]))
    twin: Any = frozen_blocks(model, ["body.1", "body.2"], build=Applied)
    assert all(float(twin.body[k].weight.detach().abs().max()) < 1e-3 for k in (0, 1, 2, 4))
    assert not torch.equal(twin.body[1].weight, twin.body[2].weight)


def test_reset_parameters_that_the_constructor_calls_is_the_start():
    twin: Any = frozen_blocks(shaken(stack(nn.Linear(D, D), OwnReset())), ["1", "2"])
    assert bool((twin[2].scale == 1).all())


def test_attention_starts_as_its_constructor_leaves_it():
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(D, 2, batch_first=True, add_bias_kv=True)

        def forward(self, h: Tensor) -> Tensor:
            return h + self.attention(h, h, h)[0]

    twin: Any = frozen_blocks(shaken(stack(Attending(), Attending())), ["1", "2"])
    attention = twin[1].attention
    assert not attention.out_proj.bias.any()
    assert not attention.in_proj_bias.any()
    bound = (6 / (D + 3 * D)) ** 0.5  # Glorot's for a [3d, d] matrix
    assert 0.8 * bound < float(attention.in_proj_weight.detach().abs().max()) <= bound
    assert 0.8 * D**-0.5 < float(attention.out_proj.weight.detach().abs().max()) <= D**-0.5


def test_padding_of_a_fresh_embedding_is_zero_and_norms_start_at_one():
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(7, D, padding_idx=2)
            self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(2))
            self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, C)

        def forward(self, x: Tensor) -> Tensor:
            h = self.words(x).mean(1)
            for layer in self.layers:
                h = h + layer(h)
            return self.head(self.norm(h))

    twin: Any = frozen_blocks(shaken(Words()), "layers.*")
    assert not twin.words.weight[2].any()
    assert bool(twin.words.weight[[0, 1, 3, 4, 5, 6]].any(1).all())
    assert bool((twin.norm.weight == 1).all())
    assert not twin.norm.bias.any()


def test_layers_of_torchs_encoder_start_as_copies_of_one():
    twin: Any = frozen_blocks(shaken(EncoderClassifier()), "encoder.layers.*", rest="keep")
    first, *others = [layer.state_dict() for layer in twin.encoder.layers]
    fresh = EncoderClassifier().encoder.layers
    assert torch.equal(fresh[0].linear1.weight, fresh[1].linear1.weight)  # as torch makes them
    for other in others:
        assert all(torch.equal(other[key], first[key]) for key in first)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(C, D)
        self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(2))
        self.head = nn.Linear(D, C, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.words(x)
        for layer in self.layers:
            h = h + torch.tanh(layer(h))
        return self.head(h)


def test_a_weight_that_the_embedding_shares_is_never_frozen_or_drawn_anew():
    class Inside(Tied):
        def __init__(self) -> None:
            super().__init__()
            self.layers[1].weight = self.layers[0].weight
            self.layers[0].extra = self.words.weight

    message = refusal(lambda: frozen_blocks(Inside(), "layers.*", rest="keep"))
    assert "'layers.0.extra'" in message
    assert "'words.weight'" in message
    tied = shaken(Tied())
    assert "'words.weight' and 'head.weight' are one weight" in refusal(lambda: frozen_blocks(tied, "layers.*"))
    twins: list[Any] = [frozen_blocks(tied, "layers.*", rest="keep"), frozen_blocks(tied, "layers.*", build=Tied)]
    for twin in twins:
        assert twin.head.weight is twin.words.weight
        assert twin.head.weight.requires_grad


def test_rest_is_fresh_unless_it_is_to_be_kept():
    model = shaken(PlainMLP(), std=5.0)
    fresh, kept = frozen_blocks(model, "layers.*"), frozen_blocks(model, "layers.*", rest="keep")
    for name, p in model.named_parameters():
        outside = not name.startswith("layers.")
        assert torch.equal(dict(kept.named_parameters())[name], p) == outside
        assert not torch.equal(dict(fresh.named_parameters())[name], p)
    assert "rest is 'new'" in refusal(lambda: frozen_blocks(model, "layers.*", rest="new"))


def test_unknown_rest_is_named():
    message = refusal(lambda: frozen_blocks(EncoderClassifier(), "encoder.layers.*"))
    assert message.startswith("cannot tell how the model is initialised: EncoderClassifier owns 'cls'")
    assert "build=" in message


def test_blocks_are_found_with_an_example(capsys):
    model = nn.Sequential(nn.Linear(D_IN, D), nn.Sequential(Branch(), Branch(), Branch()), nn.Linear(D, C))
    twin: Any = frozen_blocks(model, example=torch.randn(8, D_IN))
    assert [p.requires_grad for p in twin.parameters()] == [True] * 2 + [False] * 6 + [True] * 2
    assert "found, verified" in capsys.readouterr().out
    assert "example=" in refusal(lambda: frozen_blocks(model))


def test_what_build_makes_has_to_fit():
    model = PlainMLP()
    assert "another architecture" in refusal(lambda: frozen_blocks(model, "layers.*", build=EncoderClassifier))
    assert "the model itself" in refusal(lambda: frozen_blocks(model, "layers.*", build=lambda: model))
    assert "int" in refusal(lambda: frozen_blocks(model, "layers.*", build=lambda: 3))  # type: ignore[arg-type,return-value]


def _raises(*_: Any) -> Any:
    raise KeyError("no such width")


def test_what_raises_in_build_or_init_is_told_in_one_line():
    model = PlainMLP()
    for name in ("build", "init"):
        said = refusal(frozen_blocks, model, "layers.*", rest="keep", **{name: _raises})
        assert said.startswith(f"{name}() raised KeyError: 'no such width'")


def test_a_constructor_that_draws_from_numpy_or_python_repeats_and_leaves_their_numbers_alone():
    def drawn() -> nn.Module:
        model = PlainMLP()
        for p in model.parameters():
            p.data.fill_(np.random.rand() + random.random())  # noqa: NPY002
        return model

    before = random.getstate(), np.random.get_state()[1:3]  # type: ignore[index]  # noqa: NPY002
    one, other = (frozen_blocks(PlainMLP(), "layers.*", build=drawn, seed=seed) for seed in (3, 4))
    after = random.getstate(), np.random.get_state()[1:3]  # type: ignore[index]  # noqa: NPY002
    assert before[0] == after[0]
    assert all(np.array_equal(a, b) for a, b in zip(before[1], after[1], strict=True))
    np.random.rand(), random.random()  # noqa: NPY002  (whatever was drawn before)
    two = frozen_blocks(PlainMLP(), "layers.*", build=drawn, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


map = torch.randn(3)  # a global of the name of an attribute


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(8, 8)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = h + self.map(h)
        return out


def test_a_global_tensor_with_the_name_of_an_attribute_says_nothing():
    model = nn.Sequential(nn.Linear(5, 8), nn.Sequential(Named(), Named()), nn.Linear(8, 3))
    null: Any = frozen_blocks(model, "1.*")
    assert not any(p.requires_grad for p in null[1].parameters())
