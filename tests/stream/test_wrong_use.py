"""Wrong use of diagnose, find_blocks and credit_from_grads: one line that says what to do, and nothing is measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from creditscope import CreditscopeError, Monitor, credit_from_grads, diagnose, find_blocks
from creditscope.credit import BP, DFA
from creditscope.stream.blocks import resolve_blocks
from creditscope.stream.interface import make_stream
from creditscope.stream.untouched import untouched

from .nets import D_IN, C, D, PlainMLP, batch, shaken
from .test_find import Residual, ladder


def one_line(says: str, call: Callable[[], Any]) -> None:
    with pytest.raises(CreditscopeError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_batches_that_cannot_be_used():
    model = shaken(ladder())
    x, y = batch((D_IN,), n=40)
    used = iter([(x, y)])
    diagnose(model, used)
    one_line("used up", lambda: diagnose(model, used))
    one_line("eval_batches is empty", lambda: diagnose(model, []))
    one_line("eval_batches is an int", lambda: diagnose(model, 3))  # type: ignore[arg-type]
    one_line("no label in common", lambda: diagnose(model, [(x, y % 2), (x, y % 2 + 2)]))
    one_line("not of the form of batch 0", lambda: diagnose(model, [(x, y), (x, y[:, None].expand(-1, 3))]))
    one_line("out of range", lambda: diagnose(model, [(x, y), (x, y + C - 1)]))
    one_line("tuple of length 3", lambda: diagnose(model, [(x, x, y)]))
    one_line(r"a single batch goes into a list", lambda: diagnose(model, (x, y)))
    one_line("give integer class indices, or pass loss_fn", lambda: diagnose(model, [(x, y.float())]))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a.b.c.d", "no module is named 'a.b.c.d'; a.b has a.b.0, a.b.1"),
        ("a.b.c", "no module is named 'a.b.c'; a.b has a.b.0, a.b.1"),
        ("a.b.0.x.*", r"no module is named 'a.b.0.x.\*'; a.b.0 has no parts"),
        ("a.c", "no module is named 'a.c'; a has a.b"),
        ("c.b.0", "no module is named 'c.b.0'; the model's children are: a, head"),
    ],
)
def test_a_name_that_is_not_there_is_answered_from_the_deepest_part_that_is(name, says):
    inner = nn.Sequential(nn.Linear(D_IN, D_IN), nn.Linear(D_IN, D_IN))
    model = nn.ModuleDict({"a": nn.ModuleDict({"b": inner}), "head": nn.Linear(D_IN, C)})
    one_line(f"{says}$", lambda: resolve_blocks(model, name))


def test_small_batches_may_happen_to_share_no_label():
    model = shaken(ladder())
    x, y = batch((D_IN,), n=4)
    assert diagnose(model, [(x, y * 0), (x, y * 0 + 1)]).facts.convention.n_samples == 8


@pytest.mark.parametrize("how", ["in place", "data", "replaced", "new parameter"])
def test_credit_that_changes_the_weights_is_refused(how):
    model = shaken(ladder())
    x, y = batch((D_IN,))

    def credit(hiddens: list[Tensor], logits: Tensor, y: Tensor) -> list[Tensor]:
        if how == "in place":
            with torch.no_grad():
                model[1].inner[1].weight.mul_(0.9)
        elif how == "data":
            model[1].inner[1].weight.data.mul_(0.9)
        elif how == "replaced":
            model[1].inner[1].weight.data = torch.randn(D, D)
        else:
            model[1].inner[1].weight = nn.Parameter(torch.randn(D, D))
        return hiddens

    one_line(r"'callable' wrote to the weight '1\.inner\.1\.weight'", lambda: diagnose(model, [(x, y)], credit=credit))


def test_error_that_is_not_defined_is_one_line():
    model = shaken(nn.Sequential(nn.Linear(D_IN, D), Residual(), Residual(), nn.Linear(D, C)))
    x, _ = batch((D_IN,))
    rule = DFA()
    with untouched(model):
        rule.setup(make_stream(model, x, len(x)), C, torch.Generator())
    wanted = torch.randn(len(x), C)
    one_line(
        "needs one class per row of logits",
        lambda: diagnose(model, [(x, wanted)], credit=rule, loss_fn=lambda out, t: (out - t).square().sum(1)),
    )


# ---- models that cannot be measured --------------------------------------------------------------------------------


def half_on_meta() -> nn.Module:
    model = shaken(ladder())
    model[2].to("meta")
    return model


def exported() -> nn.Module:
    """A program of torch.export refuses train() and eval()."""
    return torch.export.export(ladder(), (batch((D_IN,))[0],)).module()


def made_in_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return ladder()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ladder().to("meta"), "'0.weight' is on the meta device"),
        (half_on_meta, "'2.inner.0.weight' is on the meta device"),
        (lambda: nn.Sequential(nn.LazyLinear(D), Residual(), Residual()), "a lazy module"),
        (made_in_inference_mode, "made inside torch.inference_mode"),
        (lambda: torch.jit.trace(ladder().eval(), batch((D_IN,))[0]), "TorchScript"),
        (exported, "cannot be put into eval mode"),
        (lambda: None, "model is a NoneType"),
        (lambda: nn.Linear, "model is a type"),
    ],
)
@pytest.mark.parametrize(
    "call", [lambda m, b: diagnose(m, [b]), lambda m, b: diagnose(m, [b], blocks=["1"]), find_blocks, Monitor]
)
@pytest.mark.filterwarnings("ignore")  # torch.jit.trace is deprecated
def test_models_that_can_never_be_measured(make, says, call):
    model, b = make(), batch((D_IN,))
    one_line(says, lambda: call(model, [b] if call is Monitor else b))


class Wrapped(nn.Module):
    """Returns its logits in another form."""

    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.net, self.wrap = shaken(ladder()), wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(self.net(x))


@pytest.mark.parametrize("wrap", [lambda z: (z, "more"), lambda z: [z], lambda z: {"logits": z}])
def test_logits_in_a_tuple_or_mapping_are_found(wrap):
    x, y = batch((D_IN,))
    expected = diagnose(shaken(ladder()), [(x, y)]).facts
    facts = diagnose(Wrapped(wrap), [(x, y)]).facts
    assert (facts.scale, facts.reference, facts.loss) == (expected.scale, expected.reference, expected.loss)


@pytest.mark.parametrize(
    ("wrap", "says"),
    [
        (lambda z: {"scores": z}, "returned dict without logits"),
        (lambda z: ("logits", z), "returned tuple without logits"),
        (lambda z: None, "returned NoneType without logits"),
        (lambda z: z.sum(), "a single number"),
        (lambda z: z[:, 0], "one label per sample"),
        (lambda z: z.detach(), "do not depend on the output"),
    ],
)
@pytest.mark.parametrize("blocks", [None, "net.[123]"])
def test_outputs_that_are_no_logits(wrap, says, blocks):
    one_line(says, lambda: diagnose(Wrapped(wrap), [batch((D_IN,))], blocks=blocks))


# ---- batches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda x, y: (x[:, :3], y), "cannot run on the evaluation batch: mat1 and mat2"),
        (lambda x, y: (x.long(), y), "cannot run on the evaluation batch"),
        (lambda x, y: (y, x), r"cannot run on the evaluation batch: .*; are x and y swapped\? Give \(inputs, labels\)"),
        (lambda x, y: (x.tolist(), y), "of which no samples can be taken"),
        (lambda x, y: (x, y[:5]), "5 labels for inputs of shape"),
        (lambda x, y: (x, ["a"] * len(x)), "not a tensor of numbers"),
        (lambda x, y: (x, None), "not a tensor of numbers"),
        (lambda x, y: (x * float("nan"), y), "hold NaN or Inf"),
        (lambda x, y: (x, y - 50), "label -50 is out of range"),
        (lambda x, y: {"x": x}, "none is a label"),
        (lambda x, y: (x[:0], y[:0]), "eval_batches is empty"),
    ],
)
@pytest.mark.parametrize("blocks", [None, ["1", "2"]])
def test_spoilt_batches(spoil, says, blocks):
    one_line(says, lambda: diagnose(shaken(ladder()), [spoil(*batch((D_IN,)))], blocks=blocks))


def test_options_that_do_not_fit():
    b = batch((D_IN,))
    one_line("unexpected keyword argument", lambda: diagnose(ladder(), [b], forward_kwargs={"gain": 1}, blocks=["1"]))
    one_line("blocks is an int", lambda: diagnose(ladder(), [b], blocks=3))
    one_line("model is an int", lambda: credit_from_grads(3, twin=ladder()))  # type: ignore[arg-type]


def test_batches_of_inference_mode_are_copied():
    x, y = batch((D_IN,))
    first = nn.Sequential(nn.Sequential(nn.Linear(D_IN, D), nn.Tanh()), nn.Sequential(nn.Linear(D, C)))
    with torch.inference_mode():
        given = (x * 1, y * 1)
    assert diagnose(first, [given], blocks=["0", "1"]).facts == diagnose(first, [(x, y)], blocks=["0", "1"]).facts


def test_a_frozen_model_gives_the_facts_of_a_trainable_one_and_stays_frozen():
    x, y = batch((D_IN,))
    model = shaken(ladder()).requires_grad_(False)
    assert diagnose(model, [(x, y)], credit=BP()).facts == diagnose(shaken(ladder()), [(x, y)], credit=BP()).facts
    assert not any(p.requires_grad for p in model.parameters())


def test_hooks_of_the_user_run_and_stay_and_what_they_change_is_measured():
    x, y = batch((D_IN,))
    model, ran = shaken(ladder()), []
    model[1].register_forward_hook(lambda *_: ran.append("forward"))
    model[2].register_forward_pre_hook(lambda *_: ran.append("before"))
    model[2].register_full_backward_hook(lambda *_: ran.append("backward"))
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    before = [[list(getattr(m, kind)) for kind in kinds] for m in model.modules()]
    assert diagnose(model, [(x, y)]).facts == diagnose(shaken(ladder()), [(x, y)]).facts
    assert before == [[list(getattr(m, kind)) for kind in kinds] for m in model.modules()]
    assert {"forward", "before", "backward"} <= set(ran)
    model[2].register_forward_hook(lambda m, args, out: 2 * out)
    doubled = shaken(ladder())
    with torch.no_grad():
        h = doubled[2](doubled[1](doubled[0](x)))
    assert diagnose(model, [(x, y)]).facts.scale.mean[2] == pytest.approx(float(2 * h.norm(dim=1).mean()), rel=1e-5)


def test_a_model_without_blocks_in_a_monitor():
    one_line("no residual blocks", lambda: Monitor(PlainMLP(), [batch((D_IN,))]))
