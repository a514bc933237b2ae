"""Unmodified modules seen through hooks, against a hand-written autograd computation of the same network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from creditscope import diagnose
from creditscope.errors import CreditscopeError
from creditscope.models import ResMLP
from creditscope.stream.graph import edge_of, has_skip
from creditscope.stream.hooks import HookedStream
from creditscope.stream.interface import make_stream
from creditscope.stream.probe import _is_all_of
from creditscope.stream.untouched import untouched

from .nets import (
    D_IN,
    BranchModel,
    C,
    D,
    EncoderClassifier,
    PlainMLP,
    ResidualCNN,
    T,
    batch,
    by_hand,
    cosines,
    floats,
    norms,
    random_credit,
    shaken,
)


def assert_like_by_hand(
    model: Any,
    steps: list[Callable[[Tensor], Tensor]],
    x: Tensor,
    y: Tensor,
    read: Callable[[Tensor], Tensor] = lambda h: h,
    read_grad: Callable[[Tensor], Tensor] = lambda g: g,
    **options: Any,
) -> Any:
    """diagnose(model) gives the norms, cosines and loss of the plain computation; returns its report."""
    model.eval()
    hs, gs, losses = by_hand(model.start, steps, model.end, x, y)
    model.train()
    hs, gs = [read(h) for h in hs], [read_grad(g) for g in gs]
    a = random_credit([tuple(h.flatten(1).shape) for h in hs])
    report = diagnose(model, [(x, y)], credit=lambda hiddens, logits, y: a, **options)
    facts = report.facts
    np.testing.assert_allclose(facts.scale.mean, [norms(h).mean() for h in hs], rtol=1e-5)
    np.testing.assert_allclose(facts.scale.median, [np.median(norms(h)) for h in hs], rtol=1e-5)
    np.testing.assert_allclose(facts.reference.per_sample, [norms(g).mean() for g in gs], rtol=1e-5)
    assert facts.alignment is not None
    wanted = [cosines(u.flatten(1), g.flatten(1)) for u, g in zip(a, gs, strict=True)]
    np.testing.assert_allclose(floats(facts.alignment.mean), [c.mean() for c in wanted], atol=2e-5)
    np.testing.assert_allclose(floats(facts.alignment.std), [c.std(ddof=1) for c in wanted], atol=2e-5)
    assert facts.loss == pytest.approx(float(losses.mean()), rel=1e-5)
    assert facts.stream.depth == len(steps)
    return report


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_transformer_encoder_equals_hand_written_autograd(pool, batch_first, norm_first):
    model = shaken(EncoderClassifier(pool, batch_first, norm_first))
    x, y = batch((T - 1, D_IN))

    def bring(h: Tensor) -> Tensor:
        return h if batch_first else h.transpose(0, 1)

    report = assert_like_by_hand(
        model,
        list(model.encoder.layers),
        x,
        y,
        read=lambda h: bring(h)[:, 0] if pool == "cls" else bring(h).mean(1),
        read_grad=lambda g: bring(g)[:, 0] if pool == "cls" else bring(g).sum(1),
        blocks="encoder.layers.*",
    )
    assert (report.facts.stream.read, report.facts.stream.kind) == (pool, "residual")
    assert report.facts.stream.blocks == ("encoder.layers.0", "encoder.layers.1", "encoder.layers.2")
    assert report.facts.stream.widths == (D,) * 4


def test_last_token_is_found_where_the_head_reads_it():
    model = shaken(EncoderClassifier())
    model.forward = lambda x: model.head(model.encoder(model.start(x))[:, -1])
    x, y = batch((T - 1, D_IN))
    assert diagnose(model, [(x, y)], blocks="encoder.layers.*").facts.stream.read == "last"


@pytest.mark.parametrize("n", [3, 5, T])
def test_batch_dimension_is_found_when_the_number_of_samples_equals_another_dimension(n):
    # batch_first=False: states are [T, B, d]; with T = 5 and B in {3, 5} the shapes alone mislead
    model = shaken(EncoderClassifier(batch_first=False))
    x, y = batch((T - 1, D_IN), n=n)
    x3, y3 = batch((2, D_IN), n=n)  # three tokens: the probe of three samples is [3, 3, d]
    for inputs, labels in ((x, y), (x3, y3)):
        report = assert_like_by_hand(
            model,
            list(model.encoder.layers),
            inputs,
            labels,
            read=lambda h: h[0],
            read_grad=lambda g: g[0],
            blocks="encoder.layers.*",
        )
        assert report.facts.convention.n_samples == n


def test_post_activation_residual_cnn_equals_hand_written_autograd():
    model = shaken(ResidualCNN())
    x, y = batch((3, 6, 6))
    report = assert_like_by_hand(model, list(model.stages), x, y, blocks="stages.*")
    stream = report.facts.stream
    assert (stream.kind, stream.read) == ("residual", "flatten")
    assert stream.widths == (4 * 36, 4 * 36, 6 * 9, 6 * 9)
    assert any("stages.1" in note and "shape" in note for note in stream.notes)


@pytest.mark.parametrize("inplace", [False, True])
def test_plain_stack_equals_hand_written_autograd_and_is_called_plain(inplace):
    model = shaken(PlainMLP(inplace))
    twin = PlainMLP(inplace=False)
    twin.load_state_dict(model.state_dict())
    x, y = batch((D_IN,))
    report = assert_like_by_hand(model, list(twin.layers), x, y, blocks="layers.*")
    assert (report.facts.stream.kind, report.facts.stream.read) == ("plain", "vector")


def test_blocks_that_work_in_place_leave_the_hidden_states_given_to_the_credit_rule_alone():
    model = shaken(PlainMLP(inplace=True))
    twin = PlainMLP(inplace=False)
    twin.load_state_dict(model.state_dict())
    x, y = batch((D_IN,))
    hs, _, _ = by_hand(twin.start, list(twin.layers), twin.end, x, y)
    seen: list[Tensor] = []

    def credit(hiddens: list[Tensor], logits: Tensor, y: Tensor) -> list[Tensor]:
        seen.extend(hiddens)
        return hiddens

    diagnose(model, [(x, y)], blocks="layers.*", credit=credit)
    for ours, theirs in zip(seen, hs, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    "pick",
    [
        lambda m: "layers.*",
        lambda m: "layers.?",
        lambda m: ["layers.0", "layers.1", "layers.2"],
        lambda m: ["layers.[01]", "layers.2"],
        lambda m: list(m.layers),
        lambda m: m.layers,
        lambda m: ("layers.0", m.layers[1], "layers.*"),
    ],
    ids=["pattern", "question mark", "names", "two patterns", "modules", "container", "mixed, with repeats"],
)
def test_blocks_may_be_given_by_pattern_names_or_modules(pick):
    model = shaken(PlainMLP())
    x, y = batch((D_IN,))
    facts = diagnose(model, [(x, y)], blocks=pick(model)).facts
    assert facts.stream.blocks == ("layers.0", "layers.1", "layers.2")


def test_only_the_named_part_of_a_stack_is_the_stream():
    model = shaken(PlainMLP())
    x, y = batch((D_IN,))
    hs, gs, _ = by_hand(model.start, list(model.layers), model.end, x, y)
    facts = diagnose(model, [(x, y)], blocks=["layers.1"]).facts
    np.testing.assert_allclose(facts.scale.mean, [norms(h).mean() for h in hs[1:3]], rtol=1e-5)
    np.testing.assert_allclose(facts.reference.per_sample, [norms(g).mean() for g in gs[1:3]], rtol=1e-5)


def test_branches_added_by_the_model_equal_hand_written_autograd():
    model: Any = shaken(BranchModel())
    x, y = batch((D_IN,))
    report = assert_like_by_hand(model, model.steps(), x, y, blocks="layers.*")
    assert report.facts.stream.kind == "residual"


def test_a_single_block_whose_branch_the_model_adds_is_residual_like_by_hand():
    model: Any = shaken(BranchModel(n=1))
    x, y = batch((D_IN,))
    report = assert_like_by_hand(model, model.steps(), x, y, blocks="layers.0")
    assert (report.facts.stream.kind, report.facts.stream.notes) == ("residual", ())
    with torch.no_grad():
        stream = HookedStream(model.eval(), x, len(x), "layers.0")
        h = torch.randn(len(x), D)
        torch.testing.assert_close(stream.logits_from(1, h, x), model.last(h))


@pytest.mark.parametrize(
    ("join", "kind", "note"),
    [
        (lambda h, f: f, "plain", None),
        (lambda h, f: h * f, "plain", "after layers.0 the model itself goes on with the state (mul)"),
        (lambda h, f: h + 2 * f, "residual", "(mul, add)"),
        (lambda h, f: h - f, "residual", "(sub)"),
    ],
)
def test_what_the_model_does_with_a_single_block_is_part_of_the_step(join, kind, note):
    model: Any = shaken(BranchModel(n=1))
    model.forward = lambda x: model.last(join(h := model.first(x), model.layers[0](h)))
    x, y = batch((D_IN,))
    report = assert_like_by_hand(model, [lambda h: join(h, model.layers[0](h))], x, y, blocks="layers.0")
    assert report.facts.stream.kind == kind
    assert [note in n for n in report.facts.stream.notes] == ([True] if note else [])


def test_a_block_called_three_times_is_three_layers():
    model: Any = shaken(BranchModel(n=3, tied=True))
    x, y = batch((D_IN,))
    report = assert_like_by_hand(model, model.steps(), x, y, blocks="layers.*")
    assert report.facts.stream.blocks == ("layers.0",) * 3


def test_something_between_the_blocks_is_noted_and_belongs_to_every_step_the_last_included():
    model: Any = shaken(BranchModel(between=True))
    x, y = batch((D_IN,))
    model.eval()
    report = assert_like_by_hand(model, model.steps(), x, y, blocks="layers.*")
    assert any("between layers.0 and layers.1" in note for note in report.facts.stream.notes)


def test_interface_and_hooks_give_the_same_facts_of_one_model():
    model = shaken(ResMLP(D_IN, C, width=D, depth=3))
    x, y = batch((D_IN,), n=40)
    a = random_credit([(40, D)] * 4)
    left = diagnose(model, [(x, y)], credit=lambda *_: a).facts
    right = diagnose(model, [(x, y)], credit=lambda *_: a, blocks="blocks.*").facts
    assert left.stream.kind == right.stream.kind == "residual"
    for name in ("scale", "reference", "alignment", "aggregate", "concentration"):
        for key, value in (
            getattr(left, name).model_dump(exclude={"counting_note", "growth_all_tokens", "loss_scale"}).items()
        ):
            np.testing.assert_allclose(getattr(getattr(right, name), key), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_logits_from_every_layer_give_back_the_logits_of_the_model(pool):
    model = shaken(EncoderClassifier(pool, batch_first=False)).eval()
    x, _ = batch((T - 1, D_IN), n=6)
    with untouched(model), torch.no_grad():
        stream = make_stream(model, x, 6, "encoder.layers.*")
        hiddens: list[Tensor] = []
        stream.forward(x, lambda layer, value, handle: hiddens.append(value.clone()) if layer == 0 else None)
        h = hiddens[0]
        for layer, block in enumerate(model.encoder.layers):
            torch.testing.assert_close(stream.logits_from(layer, h, x), model(x))
            h = block(h)
        torch.testing.assert_close(stream.logits_from(3, h, x), model(x))
        assert not torch.allclose(stream.logits_from(3, h * 1.5 + 1, x), model(x))


def test_logits_from_the_last_layer_where_the_model_adds_the_branch():
    model: Any = shaken(BranchModel()).eval()
    x, _ = batch((D_IN,), n=6)
    with torch.no_grad():
        stream = HookedStream(model, x, 6, "layers.*")
        h = torch.randn(6, D)
        torch.testing.assert_close(stream.logits_from(3, h, x), model.last(h))
        torch.testing.assert_close(stream.logits_from(2, h, x), model.last(h + model.layers[2](h)))


def test_skip_is_a_path_through_an_addition_and_no_feature_mixing_map():
    x = torch.randn(3, D, requires_grad=True)
    w = torch.randn(D, D)
    assert has_skip(edge_of(x + x @ w), edge_of(x))
    assert has_skip(edge_of(torch.relu(torch.nn.functional.layer_norm(x + torch.tanh(x @ w), (D,)))), edge_of(x))
    assert not has_skip(edge_of(torch.relu(x @ w)), edge_of(x))
    assert not has_skip(edge_of(torch.relu(x)), edge_of(x))
    assert not has_skip(edge_of(x @ w + x @ w.t()), edge_of(x))


@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        ([], "blocks is empty"),
        ("nothing.*", "'nothing.*'"),
        ([nn.Linear(2, 2)], "not a part of the model"),
        ([3], "int"),
        (["layers", "layers.0"], "inside another block"),
        (["spare"], "'spare' was not called"),
    ],
)
def test_unusable_blocks_are_one_line_errors(blocks, says):
    model = PlainMLP()
    model.layers = nn.Sequential(*model.layers)  # type: ignore[assignment]
    model.forward = lambda x: model.end(model.layers(model.start(x)))  # type: ignore[method-assign]
    model.spare = nn.Linear(2, 2)
    x, y = batch((D_IN,))
    with pytest.raises(CreditscopeError) as caught:
        diagnose(model, [(x, y)], blocks=blocks)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_blocks_whose_shapes_do_not_chain_are_named_with_their_shapes():
    x, y = batch((3, 6, 6))
    with pytest.raises(
        CreditscopeError, match=r"do not chain: 'stages.0' gives \[3, 4, 6, 6\] and 'fc' takes \[3, 6\]"
    ) as e:
        diagnose(ResidualCNN(), [(x, y)], blocks=["stages.0", "fc"])
    assert "\n" not in str(e.value)


def test_a_first_block_that_takes_the_users_own_tensor_leaves_it_alone():
    model = nn.Sequential(nn.Sequential(nn.Linear(D_IN, D), nn.Tanh()), nn.Sequential(nn.Linear(D, D), nn.Tanh()))
    x, y = batch((D_IN,))
    kept = x.clone()
    diagnose(model, [(x, y % C)], blocks=["0", "1"])
    assert not x.requires_grad
    assert x.grad_fn is None
    assert torch.equal(x, kept)


def test_diagnose_works_where_gradients_are_switched_off():
    model = shaken(BranchModel())
    x, y = batch((D_IN,))
    with torch.no_grad():
        off = diagnose(model, [(x, y)], blocks="layers.*").facts
    assert off == diagnose(model, [(x, y)], blocks="layers.*").facts


def test_logits_that_do_not_depend_on_the_blocks_are_refused():
    model = PlainMLP()
    model.forward = lambda x: (model.layers[0](model.start(x)), model.end(model.start(x)))[1]  # type: ignore[method-assign]
    x, y = batch((D_IN,))
    with pytest.raises(CreditscopeError, match="do not depend"):
        diagnose(model, [(x, y)], blocks="layers.0")


def test_model_without_interface_and_without_blocks_is_told_what_to_pass():
    x, y = batch((D_IN,))
    with pytest.raises(CreditscopeError, match="blocks=") as caught:
        diagnose(PlainMLP(), [(x, y)])
    assert "\n" not in str(caught.value)


def test_mapping_batches_and_outputs_with_logits_are_understood():
    class Wrapped(PlainMLP):
        def forward(self, features: Tensor, scale: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            return {"logits": super().forward(features) * scale[:, None]}

    model = shaken(Wrapped())
    x, y = batch((D_IN,))
    item = {"features": x, "scale": torch.ones(len(y)), "labels": y}
    plain: Any = PlainMLP()
    plain.load_state_dict(model.state_dict())
    report = diagnose(model, [item], blocks="layers.*")
    expected = diagnose(plain, [(x, y)], blocks="layers.*")
    assert report.facts.reference == expected.facts.reference
    assert report.facts.accuracy == expected.facts.accuracy


class Pooled(nn.Module):
    """Affine, a slice of the tokens, and their mean, as timm's networks have them."""

    def __init__(self, kept: Any) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(5, 6), nn.Linear(6, 3)
        self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.scale, self.shift = nn.Parameter(torch.rand(1, 1, 6)), nn.Parameter(torch.rand(1, 1, 6))
        self.kept = kept

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = h + block(h).tanh()
        h = torch.addcmul(self.shift, self.scale, h)
        out: Tensor = self.head(h[:, self.kept].mean(1))
        return out


@pytest.mark.parametrize(
    ("kept", "read"), [(slice(0, None), "mean"), ([0, 3, 1, 0], "flatten"), (slice(1, None), "flatten")]
)
def test_a_mean_over_all_tokens_is_told_from_one_over_some(kept: Any, read: str):
    torch.manual_seed(0)
    given = [(torch.randn(7, 4, 5), torch.randint(0, 3, (7,)))]
    assert diagnose(Pooled(kept), given, blocks="blocks.*").facts.stream.read == read
    t = given[0][0]
    assert _is_all_of(t[:, kept], t) == (read == "mean")
