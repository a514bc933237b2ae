"""`diagnose` as a user meets it: the model is left alone, faults are one line, and every status is reachable."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tests.known import known
from tests.refusals import refusal
from tests.stream.nets import D_IN, C, D, EncoderClassifier, PlainMLP, T, batch, floats, shaken
from tests.trust.oracle import left_as_found
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from creditscope import CreditscopeError, DiagnosticReport, DiagnosticThresholds, depth_profile, diagnose
from creditscope.credit import BP
from creditscope.models import ResMLP, SmallCNN, ViTMini
from creditscope.stream.untouched import untouched

NO_NULL = "VERDICT: incomplete: D3 depth utility not measured (no failure found so far)"


def resmlp(**options: Any) -> Any:
    return shaken(ResMLP(D_IN, C, width=D, depth=2, **options))


def batches(n: int = 2, size: int = 128, shape: tuple[int, ...] = (D_IN,)) -> list[tuple[Tensor, Tensor]]:
    return [batch(shape, n=size, seed=k) for k in range(n)]


def to_fit() -> list[tuple[Tensor, Tensor]]:
    return [batch((D_IN,), n=128, seed=50 + k) for k in range(3)]


def answered(given: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """The same samples; of three in four the label is what `resmlp` answers: it lies above chance."""
    with torch.no_grad():
        own = [resmlp()(x).argmax(1) for x, _ in given]
    return [
        (x, torch.where(torch.arange(len(y)) % 4 == 0, y, answer)) for (x, y), answer in zip(given, own, strict=True)
    ]


def one_line(call: Callable[[], Any], *says: str) -> None:
    message = refusal(call)
    assert [word for word in says if word not in message] == [], message


# ---- the model is left as found -------------------------------------------------------------------------------------


def mixed_state(model: nn.Module, x: Tensor, y: Tensor) -> nn.Module:
    """Part in train mode, part in eval mode, part frozen, gradients on some parameters, a user's own hook."""
    model.train()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    children = list(model.children())
    children[0].eval()
    children[-1].requires_grad_(False)
    next(iter(children[-1].parameters())).grad = None
    children[0].register_forward_hook(lambda *_: None)
    return model


def dropout_mlp() -> nn.Module:
    model = shaken(PlainMLP(inplace=True))
    model.layers[1].append(nn.Dropout(0.5))
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Any]] = {
    "interface": (resmlp, (D_IN,), None),
    "batch norm": (lambda: shaken(SmallCNN(C, width=8, size=4)), (3, 4, 4), None),
    "hooks": (lambda: shaken(EncoderClassifier("cls", False, False)), (T - 1, D_IN), "encoder.layers.*"),
    "in place, dropout": (dropout_mlp, (D_IN,), "layers.*"),
}


def messy_credit(hiddens: list[Tensor], logits: Tensor, y: Tensor) -> list[Tensor]:
    """Draws from every RNG."""
    random.random()
    np.random.rand()  # noqa: NPY002
    return [torch.randn_like(h) for h in hiddens]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("level", ["basic", "full"])
def test_model_gradients_modes_hooks_and_generators_are_left_as_found(name, level):
    make, shape, blocks = MODELS[name]
    x, y = batch(shape, n=12)
    model = mixed_state(make(), x, y)
    with left_as_found(model):
        diagnose(model, [(x, y)], credit=messy_credit, blocks=blocks, level=level)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("where", ["credit", "loss", "second batch"])
def test_model_is_left_as_found_after_an_error_in_the_middle(name, where):
    make, shape, blocks = MODELS[name]
    x, y = batch(shape, n=12)
    model = mixed_state(make(), x, y)

    def raising(*_: Any) -> Any:
        torch.rand(1)
        raise ZeroDivisionError("in the middle")

    options: dict[str, Any] = {"credit": {"credit": raising}, "loss": {"loss_fn": raising}, "second batch": {}}[where]
    given = [(x, y), (x, y + 100)] if where == "second batch" else [(x, y)]
    with left_as_found(model), pytest.raises((ZeroDivisionError, CreditscopeError)):
        diagnose(model, given, blocks=blocks, **options)


def test_a_credit_rule_that_backpropagates_into_the_weights_leaves_the_users_gradients_alone():
    x, y = batch((D_IN,), n=12)
    model = mixed_state(resmlp(), x, y)

    def rule(hiddens: list[Tensor], logits: Tensor, labels: Tensor) -> list[Tensor]:
        with torch.enable_grad():
            model(x).sum().backward()
        return hiddens

    with left_as_found(model):
        diagnose(model, [(x, y)], credit=rule)


def test_a_loader_that_draws_from_the_global_generator_leaves_it_as_found():
    x, y = batch((D_IN,), n=256)
    loader: DataLoader[Any] = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    model = resmlp()
    with left_as_found(model):
        report = diagnose(model, loader)
    assert report.facts.convention.n_samples == 256


def test_untouched_restores_after_the_code_inside_changed_everything():
    x, y = batch((D_IN,), n=12)
    model = mixed_state(resmlp(), x, y)
    with left_as_found(model), untouched(model):
        assert not any(m.training for m in model.modules())
        model.requires_grad_(True)
        model(x).sum().backward()
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)


def _given_new_data(w: Tensor, a: Tensor) -> None:
    w.data = w.data + a


WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "in place": lambda w, a: w.add_(a),
    "to its data": lambda w, a: w.data.add_(a),
    "to a view": lambda w, a: w.data[1].mul_(1.7),
    "by index": lambda w, a: w.data.__setitem__([0, 2], a[:2]),
    "of a list": lambda w, a: torch._foreach_add_([w], [a]),
    "as out=": lambda w, a: torch.add(w, a, out=w),
    "new data": _given_new_data,
}


@pytest.mark.parametrize("how", WRITES)
def test_weights_that_change_with_the_mode_are_put_back_to_the_bit(how):
    class Merging(nn.Linear):
        @torch.no_grad()
        def train(self, mode: bool = True) -> Merging:
            if mode != self.training:
                WRITES[how](self.weight, self.bias.expand(3, 3) * (-1 if mode else 1) / 3)
            return super().train(mode)

    part = Merging(3, 3)
    before, place = part.weight.detach().clone(), part.weight.data_ptr()
    with untouched(nn.Sequential(part)):
        assert not torch.equal(part.weight, before)
    assert torch.equal(part.weight, before)
    assert part.weight.data_ptr() == place


def test_diagnose_measures_in_eval_mode_whatever_mode_the_model_is_in():
    model = shaken(EncoderClassifier())
    given = batches(1, 16, (T - 1, D_IN))
    left = diagnose(model.train(), given, blocks="encoder.layers.*").facts
    assert left == diagnose(model.eval(), given, blocks="encoder.layers.*").facts
    assert left.convention.mode == "eval"


# ---- statuses and verdicts -----------------------------------------------------------------------------------------


def test_without_a_null_the_report_is_incomplete_and_says_so_last():
    report = diagnose(resmlp(), batches(), headline_acc=0.5, headline_on="other data", credit=BP())
    assert report.status == "incomplete"
    assert str(report).splitlines()[-1] == NO_NULL


def test_call_of_the_papers_readme_works_unchanged():
    report = diagnose(
        model=resmlp(),
        eval_batches=batches(),
        headline_acc=0.31,
        frozen_baseline_acc=0.349,
        method_name="DFA",
        notes="4-block d=256 ResMLP",
        thresholds=DiagnosticThresholds(
            g_norm_floor=1e-7, h_norm_explosion_ratio=50.0, stability_drift_ceiling=0.30, frozen_acc_margin_pp=2.0
        ),
        credit=None,
        blocks=None,
        n_test=None,
        protocol="three-check",
    )
    assert isinstance(report, DiagnosticReport)
    assert (report.status, report.checks["D3"].reason) == (
        "inconclusive",
        "interval of the accuracy reaches chance",
    )  # of 4 classes
    assert report.checks["D3"].value == pytest.approx(-3.9)


def test_backpropagation_as_the_rule_has_cosine_one_at_every_layer_exactly():
    facts = diagnose(resmlp(), batches(), credit=BP()).facts
    assert facts.concentration is not None
    np.testing.assert_allclose(floats(known(facts.alignment).mean), 1, atol=1e-12)
    assert facts.concentration.exact_layers == (0, 1, 2)
    assert facts.concentration.deep_mean_without_exact is None


# ---- bad input, bad networks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pool", "noted"), [("cls", True), ("mean", True), (None, False)])
def test_what_is_compared_in_a_token_model_is_noted(pool, noted):
    if pool is None:
        facts = diagnose(resmlp(), batches(1)).facts
        assert facts.scale.growth_all_tokens is None
    else:
        facts = diagnose(EncoderClassifier(pool), batches(1, 8, (T - 1, D_IN)), blocks="encoder.layers.*").facts
    named = {"cls": "cls token", "mean": "token mean"}.get(pool)
    note = f"token model: states, gradients and credit are those of the {named}"
    assert facts.stream.notes == ((note,) if noted else ())
    assert "training" not in note  # how it was trained was not measured
    from_interface = diagnose(ViTMini(C, width=8, depth=2), batches(1, 4, (3, 32, 32))).facts
    assert any("those of the cls token" in note for note in from_interface.stream.notes)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_growth_of_a_token_model_says_what_it_is_of(pool):
    """Against hooks of our own: the vector that the head reads, and all tokens together."""
    model = shaken(EncoderClassifier(pool, False, False))
    data = batches(1, 8, (T - 1, D_IN))
    states: list[torch.Tensor] = []
    first = model.encoder.layers[0].register_forward_pre_hook(lambda _, given: states.append(given[0].detach()))
    rest = [
        layer.register_forward_hook(lambda _, given, out: states.append(out.detach())) for layer in model.encoder.layers
    ]
    model.eval()(data[0][0])
    for hook in (first, *rest):
        hook.remove()
    states = [h.transpose(0, 1) for h in states]  # tokens come first in this network
    read = [h[:, 0] if pool == "cls" else h.mean(1) for h in states]
    of_read, of_all = (
        max(float(b / a) for a, b in pairwise([h.flatten(1).double().norm(dim=1).mean() for h in hs]))
        for hs in (read, states)
    )
    report = diagnose(model, data, blocks="encoder.layers.*")
    assert report.facts.scale.growth == pytest.approx(of_read, rel=1e-6)
    assert report.facts.scale.growth_all_tokens == pytest.approx(of_all, rel=1e-6)
    assert abs(of_read / of_all - 1) > 1e-3
    name = {"cls": "cls token", "mean": "token mean"}[pool]
    assert f"mean ‖h_l‖ ({name})" in report.to_text()
    assert f"({of_all:.3g} over all tokens)" in report.to_text()
    assert f"raw norms of the {name}, mean over" in report.checks["D1"].sentence
    limits = DiagnosticThresholds(h_norm_explosion_ratio=(of_read + of_all) / 2)
    assert not any("depends on the reading" in w for w in report.verdict.warnings)
    parted = diagnose(model, data, blocks="encoder.layers.*", thresholds=limits)
    assert any(w.startswith("D1 depends on the reading") for w in parted.verdict.warnings)


def test_an_input_that_a_linear_readout_solves_is_told():
    """Labels by the sign of one feature: every linear readout finds them, an untrained network does not."""
    given = [(x, (x[:, 0] > 0).long()) for x, _ in batches(6)]
    report = diagnose(resmlp(), given[:3], fit_batches=given[3:], headline_acc=0.5)
    profile = report.facts.profile
    raw = known(known(known(profile).raw).accuracy)
    assert raw > 0.8
    (told,) = (w for w in report.verdict.warnings if "raw input" in w)
    assert (
        told
        == f"a linear readout of the raw input has {raw:.3g}, the network 0.5: this network makes no use of its depth"
    )
    table = report.to_text().splitlines()
    (first,) = (line for line in table if line.startswith("input "))
    assert first.split() == ["input", f"{raw:.3f}"]
    better = diagnose(resmlp(), given[:3], fit_batches=given[3:], headline_acc=1.0)
    assert not any("raw input" in w for w in better.verdict.warnings)


def test_credit_of_a_diverged_network_may_be_nan_and_the_report_says_diverged():
    model = resmlp()
    with torch.no_grad():
        model.embed.linear.bias[0] = math.nan
    report = diagnose(model, batches(), credit=lambda hiddens, logits, y: hiddens)
    assert (report.status, report.verdict.failed) == ("fail", ("diverged",))
    assert {"credit a_0", "credit a_1", "credit a_2"} <= set(report.facts.non_finite)
    assert report.facts.alignment is not None
    assert report.facts.alignment.mean == (None, None, None)
    assert report.facts.alignment.measurable == (0, 0, 0)


def test_half_precision_raises_the_floor_to_ten_subnormals_and_warns():
    model = resmlp().half()
    given = [(x.half(), y) for x, y in batches()]
    report = diagnose(model, given, credit=BP())
    assert report.checks["D2"].threshold == 10 * 2.0**-24
    assert report.facts.convention.dtype == "float16"
    assert any("float16" in warning for warning in report.verdict.warnings)
    in_float32 = diagnose(resmlp(), batches()).facts
    np.testing.assert_allclose(report.facts.scale.mean, in_float32.scale.mean, rtol=1e-2)
    np.testing.assert_allclose(report.facts.reference.per_sample, in_float32.reference.per_sample, rtol=3e-2)


@pytest.mark.parametrize("labels", [[0, 1, C], [0, -1, 2], [0, 1, 10**12]])
def test_label_out_of_range_is_one_line_with_the_label(labels):
    x, _ = batch((D_IN,), n=3)
    bad = next(v for v in labels if not 0 <= v < C)
    one_line(lambda: diagnose(resmlp(), [(x, torch.tensor(labels))]), f"label {bad} is out of range", "0 to 3")


X, Y = batch((D_IN,), n=4)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "eval_batches is empty"),
        ([(X[:0], Y[:0])], "eval_batches is empty"),
        ([(X, Y.float())], "integer class indices"),
        ([(X, Y[:3])], "one label per sample"),
        ([(X, Y[:, None])], "one label per sample"),
        ([X], "Tensor of length 4"),
        ([(X, Y, Y)], "tuple of length 3"),
        ([{"inputs": X}], "none is a label"),
    ],
)
def test_unusable_batches_are_one_line_errors(given, says):
    one_line(lambda: diagnose(resmlp(), given), says)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"protocol": "five-check"}, "three-check"),
        ({"headline_acc": 31.0}, "percent"),
        ({"headline_acc": math.nan}, "NaN"),
        ({"frozen_baseline_acc": 0.3}, "without headline_acc"),
        ({"headline_acc": 0.3, "frozen_baseline_acc": {"other": 0.3}}, "other"),
        ({"n_test": 0, "headline_acc": 0.3, "frozen_baseline_acc": 0.2}, "n_test"),
        ({"credit": 3}, "CreditRule"),
        ({"loss_fn": nn.CrossEntropyLoss()}, "one loss per sample"),
        ({"level": "deep"}, "basic"),
    ],
)
def test_unusable_options_are_one_line_errors(options, says):
    one_line(lambda: diagnose(resmlp(), batches(1, 4), **options), says)


def test_empty_batches_between_others_are_passed_over():
    given = batches(2)
    with_gap = [given[0], (given[0][0][:0], given[0][1][:0]), given[1]]
    assert diagnose(resmlp(), with_gap).facts == diagnose(resmlp(), given).facts


def test_batches_may_come_from_a_generator_once():
    given = batches(2)
    assert diagnose(resmlp(), (pair for pair in given), level="full").facts.convention.n_samples == 256


def test_credit_in_the_native_shape_of_tokens_is_read_like_the_gradient():
    model = shaken(EncoderClassifier("mean"))
    x, y = batch((T - 1, D_IN), n=6)
    native = [torch.randn(6, T, D) for _ in range(4)]
    left = diagnose(model, [(x, y)], blocks="encoder.layers.*", credit=lambda *_: native).facts.alignment
    read = [a.sum(1) for a in native]
    assert left == diagnose(model, [(x, y)], blocks="encoder.layers.*", credit=lambda *_: read).facts.alignment


# ---- the depth profile ----------------------------------------------------------------------------------------------


def test_data_to_fit_add_the_profile_and_its_estimate():
    model, fit, test = resmlp(), batches(8), [batch((D_IN,), n=128, seed=50)]
    report = diagnose(model, batches(2, size=64), fit_batches=fit, test_batches=test, credit=BP())
    assert report.facts.profile == depth_profile(model, fit, test)
    margin = report.facts.profile.margin
    assert margin is not None
    estimate = f"estimate {margin.pp:+.1f} pp from the checkpoint"
    assert report.verdict.line == NO_NULL.replace(" (", f"; {estimate} (")
    assert estimate in report.checks["D3"].sentence
    assert report.status == "incomplete"
    assert f"profile margin (readout of h_L minus the twin's) {margin.pp:+.1f} pp" in " ".join(
        report.to_text(long=True).split()
    )
    assert "| h\\_2 |" in report.to_markdown()
    assert DiagnosticReport.from_dict(report.to_dict()) == report


def test_the_evaluation_batches_test_the_readouts_where_no_others_are_given():
    model, fit, seen = resmlp(), to_fit(), batches()
    assert diagnose(model, seen, fit_batches=fit).facts.profile == depth_profile(model, fit, seen)


def test_the_profile_of_a_model_that_is_seen_through_hooks():
    torch.manual_seed(0)
    model = PlainMLP()
    fit, seen = to_fit(), batches()
    profile = diagnose(model, seen, fit_batches=fit, blocks="layers.*").facts.profile
    assert profile == depth_profile(model, fit, seen, blocks="layers.*")


def test_without_data_to_fit_nothing_changes_and_old_reports_are_read():
    report = diagnose(resmlp(), batches())
    assert report.facts.profile is None
    assert report.verdict.line == NO_NULL
    old = report.to_dict()
    del old["facts"]["profile"]
    assert DiagnosticReport.from_dict(old) == report
    one_line(lambda: diagnose(resmlp(), batches(), test_batches=batches()), "test_batches", "fit_batches")


def test_the_trained_null_stays_the_judge():
    fit = to_fit()
    options: dict[str, Any] = {"headline_acc": 0.9, "headline_on": "other data", "n_test": 10_000}
    given = answered(batches())
    with_null = diagnose(resmlp(), given, fit_batches=fit, frozen_baseline_acc=0.5, **options)
    without = diagnose(resmlp(), given, frozen_baseline_acc=0.5, **options)
    (apart,) = set(with_null.verdict.warnings) - set(without.verdict.warnings)  # an untrained network cannot do this
    assert apart.startswith("D3 and the depth profile disagree: +40.0 ")
    assert with_null.verdict.line.endswith(", the depth profile contradicts the null)")
    assert with_null.verdict.warned == (*without.verdict.warned, "the depth profile contradicts the null")
    same = {name: getattr(without.verdict, name) for name in ("warnings", "warned", "line")}
    assert with_null.verdict.model_copy(update=same) == without.verdict
    assert with_null.facts.profile is not None
    old = diagnose(resmlp(), batches(), fit_batches=fit, protocol="three-check/1.0")
    assert old.verdict == diagnose(resmlp(), batches(), protocol="three-check/1.0").verdict


def test_a_diverged_network_with_data_to_fit_is_told_as_diverged():
    model = resmlp()
    nn.init.constant_(model.blocks[1].linear2.weight, math.inf)
    report = diagnose(model, batches(), fit_batches=to_fit())
    assert report.status == "fail"
    assert "profile margin not measurable" in report.to_text(long=True)


def test_blocks_that_are_left_out_of_a_list_are_named():
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Linear(D_IN, D), nn.Linear(D, C)
            self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            h = self.stem(x)
            for layer in self.layers:
                h = h + torch.tanh(layer(h))
            return torch.as_tensor(self.head(h))

    torch.manual_seed(0)
    model = Deep()
    report = diagnose(model, batches(), blocks=["layers.2", "layers.3"])
    assert report.facts.stream.left_out == ("layers.0", "layers.1")
    assert any(
        line
        == "layers.0, layers.1 are of the same class as the blocks, in the same list, and not among them: every number is of "
        "the 2 blocks that were named, and h_0 is the input of layers.2"
        for line in report.verdict.warnings
    )
    whole = diagnose(model, batches(), blocks="layers.*")
    assert whole.facts.stream.left_out == ()
    assert not any("not among them" in line for line in whole.verdict.warnings)


@pytest.mark.parametrize(("n", "told"), [(1, "1 evaluation sample:"), (31, "31 evaluation samples:"), (32, "")])
def test_few_samples_are_told(n, told):
    (x, y), *_ = batches(1)
    found = [w for w in diagnose(resmlp(), [(x[:n], y[:n])]).verdict.warnings if "are advised" in w]
    assert found == ([f"{told} every number is a mean over them; 1,024 are advised"] if told else [])
