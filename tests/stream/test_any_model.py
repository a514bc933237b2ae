"""Models and batches as other people write them: the facts equal plain autograd, and the model is left bit-identical."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from creditscope import CreditscopeError, Monitor, diagnose, find_blocks
from creditscope.credit import BP, DFA, FA
from creditscope.stream.interface import make_stream
from creditscope.stream.untouched import untouched

from .nets import D_IN, BranchModel, C, D, EncoderClassifier, T, batch, norms, shaken
from .test_find import CASES, IMAGE, Residual, ResNet, gpt2, ladder, vit

Loss = Callable[[Any], Tensor]


def by_autograd(
    model: nn.Module, blocks: Sequence[nn.Module], losses: Loss
) -> tuple[list[Tensor], list[Tensor], float]:
    """(h_0..h_L, g_0..g_L, mean loss) of one ordinary forward and backward pass: each block's first argument is kept."""
    model.eval()
    states: list[Tensor] = []

    def before(_: Any, args: Any, kwargs: Any) -> None:
        states.append(args[0] if args else kwargs["hidden_states"])

    hooks = [block.register_forward_pre_hook(before, with_kwargs=True) for block in blocks]
    last: list[Tensor] = []
    hooks.append(
        blocks[-1].register_forward_hook(lambda _, args, out: last.append(out if isinstance(out, Tensor) else out[0]))
    )
    each = losses(model)
    for hook in hooks:
        hook.remove()
    states.append(last[-1])
    grads = torch.autograd.grad(each.sum(), states)
    model.train()
    return [s.detach() for s in states], list(grads), float(each.detach().double().mean())


def whole_state(model: nn.Module) -> dict[str, Any]:
    """Everything that must be bit-identical afterwards; what is not a tensor is compared by value."""
    state: dict[str, Any] = {k: v.clone() for k, v in (*model.named_parameters(), *model.named_buffers())}
    state |= {f"{n} grad": None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}
    state |= {f"{n} flag": p.requires_grad for n, p in model.named_parameters()}
    state |= {f"{n} mode": m.training for n, m in model.named_modules()}
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    state |= {f"{n} {kind}": list(getattr(m, kind)) for n, m in model.named_modules() for kind in kinds}
    state |= {f"{n} attributes": sorted(vars(m)) for n, m in model.named_modules()}
    numpy_rng = torch.from_numpy(np.random.get_state()[1].copy())  # type: ignore[index]  # noqa: NPY002
    return state | {"torch": torch.get_rng_state(), "numpy": numpy_rng, "python": random.getstate()}


def assert_same_state(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]) if isinstance(value, Tensor) else value == b[name], name


def check(
    model: nn.Module,
    batches: list[Any],
    blocks: Sequence[nn.Module],
    losses: Loss,
    read: Callable[[Tensor], Tensor] = lambda t: t,
    read_grad: Callable[[Tensor], Tensor] | None = None,
    rtol: float = 1e-4,
    **options: Any,
) -> Any:
    """diagnose equals plain autograd and leaves everything as it was; returns the facts."""
    hs, gs, loss = by_autograd(model, blocks, losses)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    before = whole_state(model)
    facts = diagnose(model, batches, credit=BP(), **options).facts
    assert_same_state(before, whole_state(model))
    np.testing.assert_allclose(facts.scale.mean, [norms(read(h).double()).mean() for h in hs], rtol=rtol)
    np.testing.assert_allclose(
        facts.reference.per_sample, [norms((read_grad or read)(g).double()).mean() for g in gs], rtol=rtol
    )
    assert facts.loss == pytest.approx(loss, rel=rtol)
    assert facts.alignment is not None
    assert facts.convention.mode == "eval"
    np.testing.assert_allclose(np.array(facts.alignment.mean, float), 1.0, rtol=1e-6)
    return facts


def cross_entropy(x: Any, y: Tensor) -> Loss:
    return lambda model: F.cross_entropy(getattr(out := model(x), "logits", out), y, reduction="none")


@pytest.mark.parametrize("kind", ["ViT", "DeiT"])
def test_transformers_vision_models(kind):
    model = shaken(vit(kind))
    x, y = batch(IMAGE)
    blocks = list(getattr(model, kind.lower()).layers)
    check(model, [(x, y)], blocks, cross_entropy(x, y), read=lambda t: t[:, 0])
    check(model, [{"pixel_values": x, "labels": y}], blocks, cross_entropy(x, y), read=lambda t: t[:, 0])


def test_staged_resnet_and_transformer_encoder_and_sequential():
    resnet = shaken(ResNet())
    x, y = batch(IMAGE)
    check(resnet, [(x, y)], [*resnet.layer1, *resnet.layer2], cross_entropy(x, y))
    encoder = shaken(EncoderClassifier())
    x, y = batch((T, D_IN))
    check(encoder, [(x, y)], list(encoder.encoder.layers), cross_entropy(x, y), read=lambda t: t[:, 0])
    stack = shaken(ladder())
    x, y = batch((D_IN,))
    check(stack, [(x, y)], list(stack[1:4]), cross_entropy(x, y))


LISTED: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    **{name: (case[0], lambda case=case: batch(case[1], n=6)) for name, case in CASES.items()},  # type: ignore[misc]
    "gpt2": (gpt2, lambda: {"input_ids": (ids := torch.arange(42).view(6, 7) % 11), "labels": ids}),
}


def drawing(hiddens: list[Tensor], logits: Tensor, y: Tensor) -> list[Tensor]:
    """Credit that draws from every generator."""
    random.random()
    np.random.rand()  # noqa: NPY002
    return [torch.randn_like(h) for h in hiddens]


@pytest.mark.parametrize("name", LISTED)
@pytest.mark.parametrize("level", ["basic", "full"])
def test_every_listed_model_is_left_bit_identical(name, level):
    make, given = LISTED[name]
    model, item = shaken(make()).train(), given()
    for k, p in enumerate(model.parameters()):  # gradients on some, some frozen
        p.requires_grad_(k % 3 > 0)
        p.grad = torch.randn_like(p) if k % 2 else None
    next(model.children()).eval()
    next(model.children()).register_forward_hook(lambda *_: None)
    before, grads = whole_state(model), [id(p.grad) for p in model.parameters()]
    diagnose(model, [item], credit=drawing, level=level)
    assert_same_state(before, whole_state(model))
    assert grads == [id(p.grad) for p in model.parameters()]
    find_blocks(model, item)
    monitor = Monitor(model, [item], credit=drawing)
    monitor.step(0)
    assert_same_state(before, whole_state(model))


# ---- language models ----------------------------------------------------------------------------------------------


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Sum over the scored tokens of a sample, written as a loop."""
    rows = []
    for row, wanted in zip(torch.log_softmax(logits, -1), labels, strict=True):
        rows.append(row.new_zeros(()) - sum(row[t, k] for t, k in enumerate(wanted.tolist()) if k != -100))
    return torch.stack(rows)


def test_language_model_is_scored_against_the_next_token_as_in_its_own_loss():
    model = shaken(gpt2())
    gen = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 11, (6, 7), generator=gen)
    labels = ids.clone()
    labels[:, :2] = -100
    labels[0, 4:] = -100
    moved = torch.cat([labels[:, 1:], torch.full((6, 1), -100)], 1)

    def losses(m: Any) -> Tensor:
        out = m(input_ids=ids, labels=labels)
        each = token_losses(out.logits, moved)
        assert out.loss.item() == pytest.approx(each.sum().item() / int((moved != -100).sum()), rel=1e-5)
        return each

    facts = check(model, [{"input_ids": ids, "labels": labels}], list(model.transformer.h), losses)
    assert facts.stream.read == "flatten"
    assert "summed over the tokens" in facts.convention.loss
    assert "label t + 1" in facts.convention.loss
    with torch.no_grad():
        hits = (model.eval()(input_ids=ids).logits.argmax(-1) == moved)[moved != -100]
    assert facts.accuracy == pytest.approx(float(hits.float().mean()))


def numpy_error(logits: Tensor, labels: Tensor) -> Any:
    """softmax - onehot at the scored tokens and zero elsewhere, token by token in numpy."""
    z = logits.numpy().astype(np.float64)
    e = np.zeros_like(z)
    for b, t in zip(*np.nonzero(labels.numpy() != -100), strict=True):
        p = np.exp(z[b, t] - z[b, t].max())
        e[b, t] = p / p.sum()
        e[b, t, labels[b, t]] -= 1
    return e


@pytest.mark.parametrize("make", [DFA, FA])
@pytest.mark.parametrize("level", ["basic", "full"])
def test_feedback_rules_on_a_language_model_work_token_by_token(make, level):
    model = shaken(gpt2())
    gen = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 11, (6, 7), generator=gen)
    labels = ids.clone()
    labels[:, :2] = -100
    labels[0, 4:] = -100
    moved = torch.cat([labels[:, 1:], torch.full((6, 1), -100)], 1)
    _, gs, _ = by_autograd(model, list(model.transformer.h), lambda m: token_losses(m(input_ids=ids).logits, moved))
    with torch.no_grad():
        e = numpy_error(model.eval()(input_ids=ids).logits, moved)
    rule = make()
    with untouched(model):
        stream = make_stream(model, {"input_ids": ids}, 6, "transformer.h.*")
        rule.setup(stream, 11, gen)
    assert stream.scores_tokens
    matrices = [b.numpy().astype(np.float64) for b in rule.B]
    if make is DFA:
        credits = [e @ b for b in matrices]
    else:
        credits = [gs[-1].numpy().astype(np.float64)]
        for b in reversed(matrices):
            credits.insert(0, np.einsum("btk,jk->btj", credits[0], b))
    assert [b.shape for b in matrices] == ([(11, D)] * 4 if make is DFA else [(D, D)] * 3)
    before = whole_state(model)
    facts: Any = diagnose(model, [{"input_ids": ids, "labels": labels}], credit=rule, level=level).facts
    assert_same_state(before, whole_state(model))
    for layer, (a, g) in enumerate(zip(credits, gs, strict=True)):
        rows = [(u.ravel(), v.ravel()) for u, v in zip(a, g.numpy().astype(np.float64), strict=True)]
        wanted = np.mean([u @ v / np.linalg.norm(u) / np.linalg.norm(v) for u, v in rows])
        assert facts.alignment.mean[layer] == pytest.approx(wanted, abs=1e-5)
    assert any("e = 0 where a label is -100" in note for note in facts.stream.notes)
    if level == "full":
        assert facts.perturbation.reason == facts.fresh_b.reason == ""


class TokenTagger(nn.Module):
    """Logits [B, T, C] for labels [B, T], token by token: nothing is shifted."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(9, D)
        self.stack = nn.ModuleList(Residual() for _ in range(3))
        self.head = nn.Linear(D, C)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.embed_tokens(tokens)
        for block in self.stack:
            h = block(h)
        return self.head(h)


def test_token_labels_are_taken_as_given_where_the_model_has_no_loss_of_its_own():
    model = shaken(TokenTagger())
    tokens, labels = torch.randint(0, 9, (6, 5)), torch.randint(0, C, (6, 5))
    labels[1, 3] = -100
    facts = check(model, [(tokens, labels)], list(model.stack), lambda m: token_losses(m(tokens), labels))
    assert "token t is scored against label t, as given" in facts.convention.loss
    with pytest.raises(CreditscopeError, match="pad sequences"):
        diagnose(model, [(tokens, labels), (tokens[:, :4], labels[:, :4])])
    with pytest.raises(CreditscopeError, match="label 4 is out of range"):
        diagnose(model, [(tokens, torch.full((6, 5), C))])


class UntiedLM(TokenTagger):
    """A language model with a loss of its own: the mean over next tokens (times `scale`)."""

    vocabulary = 500

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.embed_tokens, self.head = nn.Embedding(self.vocabulary, D), nn.Linear(D, self.vocabulary)
        self.scale = scale

    def forward(self, tokens: Tensor, labels: Tensor | None = None) -> Any:
        logits = super().forward(tokens)
        if labels is None:
            return {"logits": logits}
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"logits": logits, "loss": self.scale * loss}


def next_of(labels: Tensor) -> Tensor:
    moved = torch.full_like(labels, -100)
    for row, out in zip(labels, moved, strict=True):
        for t in range(len(row) - 1):
            out[t] = row[t + 1]
    return moved


def ids(n: int = 8, t: int = 30) -> Tensor:
    return torch.randint(0, UntiedLM.vocabulary, (n, t), generator=torch.Generator().manual_seed(1))


def test_an_untrained_language_model_is_shifted_although_both_losses_are_alike():
    torch.manual_seed(0)
    model = UntiedLM().eval()
    tokens = ids()
    with torch.no_grad():
        out = model(tokens, tokens)
        as_given = F.cross_entropy(out["logits"].flatten(0, 1), tokens.flatten())
    assert float(out["loss"]) == pytest.approx(float(as_given), rel=1e-2)  # what makes it hard
    batches = [{"tokens": tokens, "labels": tokens}]
    moved = next_of(tokens)
    facts = check(model, batches, list(model.stack), lambda m: token_losses(m(tokens)["logits"], moved))
    assert "label t + 1, as in the model's own loss" in facts.convention.loss
    monitor = Monitor(model, batches)
    monitor.step(0)
    wanted = float(token_losses(out["logits"], moved).mean())
    assert monitor.history[0]["eval_loss"] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("how", "lengths"),
    [("plain", {16}), ("takes no fewer than 20 tokens", {16, 30}), ("its first tokens are not scored", {30})],
)
def test_a_few_tokens_tell_how_labels_are_read_and_else_the_whole_samples(how, lengths):
    class Asked(UntiedLM):
        def forward(self, tokens: Tensor, labels: Tensor | None = None) -> Any:
            if labels is not None:
                seen.add(tokens.shape[1])
            if "20 tokens" in how and tokens.shape[1] < 20:
                raise ValueError("too few tokens")
            return super().forward(tokens, labels)

    seen: set[int] = set()
    torch.manual_seed(0)
    model, tokens = Asked().eval(), ids()
    labels = tokens.clone()
    if "not scored" in how:
        labels[:, :17] = -100
    assert "label t + 1, as in" in diagnose(model, [{"tokens": tokens, "labels": labels}]).facts.convention.loss
    assert seen == lengths


def test_samples_without_labels_do_not_decide_how_labels_are_read():
    model = shaken(gpt2())
    tokens = torch.randint(0, 11, (6, 7), generator=torch.Generator().manual_seed(0))
    labels = tokens.clone()
    labels[:3] = -100
    labels[3, 1:] = -100  # scored as given only
    moved = next_of(labels)
    first = {"input_ids": tokens, "labels": torch.full_like(labels, -100)}
    batches = [first, {"input_ids": tokens, "labels": labels}]

    def losses(m: Any) -> Tensor:
        logits = m(input_ids=tokens).logits
        return torch.cat([0 * token_losses(logits, tokens), token_losses(logits, moved)])

    facts = diagnose(model, batches).facts
    assert "label t + 1" in facts.convention.loss
    with torch.no_grad():
        assert facts.loss == pytest.approx(float(losses(model.eval()).mean()), rel=1e-5)
    with pytest.raises(CreditscopeError, match=r"no sample has a scored token after its first.*shift_labels=True"):
        diagnose(model, [first])


def spoilt_lm(how: str) -> UntiedLM:
    torch.manual_seed(0)
    model = UntiedLM(scale=2.0 if how == "another loss" else 1.0)
    with torch.no_grad():
        if how == "all tokens alike":
            model.head.weight.zero_()
            model.head.bias.zero_()
        if how == "diverged":
            model.head.weight[0, 0] = torch.nan
    return model


@pytest.mark.parametrize(
    ("how", "says"), [("all tokens alike", "both"), ("another loss", "neither"), ("diverged", "neither")]
)
def test_where_the_own_loss_does_not_tell_the_user_is_asked(how, says):
    model, tokens = spoilt_lm(how), ids()
    batches = [{"tokens": tokens, "labels": tokens}]
    for measure in (diagnose, Monitor):
        with pytest.raises(CreditscopeError, match=rf"is {says} of the cross-entropies.*shift_labels=True") as caught:
            measure(model, batches)
        assert "\n" not in str(caught.value)
    for shift, note in ((True, "label t + 1, as asked for"), (False, "label t, as asked for")):
        facts = diagnose(model, batches, shift_labels=shift).facts
        assert note in facts.convention.loss
        if how != "diverged":
            wanted = next_of(tokens) if shift else tokens
            with torch.no_grad():
                expected = float(token_losses(model.eval()(tokens)["logits"], wanted).mean())
            assert facts.loss == pytest.approx(expected, rel=1e-5)
            monitor = Monitor(model, batches, shift_labels=shift)
            monitor.step(0)
            assert monitor.history[0]["eval_loss"] == pytest.approx(expected, rel=1e-5)


def test_shift_labels_is_for_token_labels_and_not_beside_loss_fn():
    x, y = batch((D_IN,))
    tokens = ids()
    for model, item, options, says in (
        (ladder(), (x, y), {"shift_labels": True}, "it is for token labels"),
        (UntiedLM(), (tokens, tokens), {"shift_labels": False, "loss_fn": token_losses}, "give one of them"),
        (UntiedLM(), (tokens, tokens), {"shift_labels": "yes"}, "give True, False or None"),
        (UntiedLM(), (tokens, tokens + 500), {}, "-100 for what is not scored, or pass loss_fn"),
    ):
        with pytest.raises(CreditscopeError, match=says) as caught:
            diagnose(model, [item], **options)
        assert "\n" not in str(caught.value)


# ---- losses, batches, arguments -----------------------------------------------------------------------------------


def test_regression_by_loss_fn():
    model = shaken(nn.Sequential(nn.Linear(D_IN, D), Residual(), Residual(), nn.Linear(D, 2)))
    x, _ = batch((D_IN,))
    target = torch.randn(len(x), 2)

    def squared(out: Tensor, y: Tensor) -> Tensor:
        return (out - y).square().sum(1)

    facts = check(model, [(x, target)], list(model[1:3]), lambda m: squared(m(x), target), loss_fn=squared)
    assert facts.convention.loss == "squared"
    assert facts.accuracy is None
    report = diagnose(model, [(x, target)], loss_fn=squared, credit=BP())
    assert report.verdict.failed == ()  # a network without an accuracy has not diverged
    assert "nan" not in str(report).lower()
    with pytest.raises(CreditscopeError, match="one loss per sample") as caught:
        diagnose(model, [(x, target)], loss_fn=F.mse_loss)
    assert "\n" not in str(caught.value)


class Scaled(nn.Module):
    """Takes more than x."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(D_IN, D), nn.Linear(D, C)
        self.stack = nn.ModuleList(Residual() for _ in range(2))

    def forward(self, x: Tensor, offset: Tensor | None = None, *, gain: Any = 1.0) -> Tensor:
        h = self.first(x) if offset is None else self.first(x) + offset
        for block in self.stack:
            h = block(h) * 1.0
        return self.last(h) * gain


def test_extra_arguments_for_every_sample_and_for_the_call():
    model = shaken(Scaled())
    x, y = batch((D_IN,))
    offset, gain = torch.randn(len(x), D), torch.rand(C)
    wanted: Loss = lambda m: F.cross_entropy(m(x, offset, gain=gain), y, reduction="none")  # noqa: E731
    check(model, [((x, offset), y)], list(model.stack), wanted, forward_kwargs={"gain": gain})
    items = [{"x": x, "offset": offset, "label": y}]
    check(model, items, list(model.stack), wanted, forward_kwargs={"gain": gain})
    full = diagnose(model, items, forward_kwargs={"gain": gain}, level="full").facts
    assert full.perturbation is not None
    assert full.perturbation.reason == ""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_parameters_of_another_dtype_take_float32_batches(dtype):
    model = shaken(ladder()).to(dtype)
    x, y = batch((D_IN,))

    def losses(m: nn.Module) -> Tensor:
        logits = m(x.to(dtype))
        return F.cross_entropy(logits if dtype == torch.float64 else logits.float(), y, reduction="none")

    facts = check(model, [(x, y)], list(model[1:4]), losses)
    assert facts.convention.dtype == str(dtype).removeprefix("torch.")


# ---- how the model is built and run -------------------------------------------------------------------------------


class TupleBlock(Residual):
    def forward(self, h: Tensor, scale: float = 1.0) -> Any:
        return (super().forward(h) * scale, "attention weights")


class TupleModel(Scaled):
    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        cells = [TupleBlock() for _ in range(1 if tied else 3)]
        self.stack = nn.ModuleList(cells * (3 if tied else 1))

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        h = self.first(x)
        for block in self.stack:
            h = block(h, scale=1.0)[0]
        return self.last(h)


@pytest.mark.parametrize("tied", [False, True])
def test_blocks_that_return_tuples_and_tied_blocks(tied):
    model = shaken(TupleModel(tied))
    x, y = batch((D_IN,))
    facts = check(model, [(x, y)], list(dict.fromkeys(model.stack)), cross_entropy(x, y))
    assert facts.stream.depth == 3


class Checkpointed(nn.Module):
    """Recomputes its blocks (or their insides) on the way back, in eval mode too."""

    def __init__(self, reentrant: bool, inside: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(D_IN, D), nn.Linear(D, C)
        self.stack = nn.ModuleList(Residual() for _ in range(3))
        self.reentrant, self.inside, self.off = reentrant, inside, False
        if inside:
            for block in self.stack:
                block.forward = lambda h, block=block: self.run(lambda t: t + block.inner(t), h)

    def run(self, function: Any, h: Tensor) -> Tensor:
        return function(h) if self.off else checkpoint(function, h, use_reentrant=self.reentrant)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for block in self.stack:
            h = block(h) if self.inside else self.run(block, h)
        return self.last(h)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("level", ["basic", "full"])
def test_gradient_checkpointing(reentrant, inside, level):
    model = shaken(Checkpointed(reentrant, inside))
    x, y = batch((D_IN,))

    def losses(m: nn.Module) -> Tensor:
        model.off = True
        each = F.cross_entropy(m(x), y, reduction="none")
        model.off = False
        return each

    facts = check(model, [(x, y)], list(model.stack), losses, level=level)
    assert facts.stream.kind == "residual"
    if level == "full" and not inside:  # closures over the original block do not survive the float64 copy
        assert facts.perturbation.reason == ""


def test_transformers_gradient_checkpointing():
    model = shaken(vit("ViT"))
    model.gradient_checkpointing_enable()
    x, y = batch(IMAGE)
    check(model, [(x, y)], list(model.vit.layers), cross_entropy(x, y), read=lambda t: t[:, 0])


def test_compiled_modules_are_measured_through_the_original():
    compiled: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    model = shaken(ladder())
    x, y = batch((D_IN,))
    expected = diagnose(model, [(x, y)]).facts
    wrapped: Any = torch.compile(model, backend=backend)
    assert diagnose(wrapped, [(x, y)]).facts == expected
    parts = shaken(ladder())
    parts[2] = torch.compile(parts[2], backend=backend)
    parts[3].compile(backend=backend)
    facts = diagnose(parts, [(x, y)], blocks=["1", "2", "3"]).facts
    assert (facts.scale, facts.reference) == (expected.scale, expected.reference)
    assert not compiled
    parts(x)
    assert compiled  # and it is compiled again afterwards


@pytest.mark.parametrize(
    "context", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)]
)
def test_the_surroundings_do_not_change_the_numbers(context):
    model = shaken(ladder())
    x, y = batch((D_IN,))
    expected = diagnose(model, [(x, y)]).facts
    with context():
        assert diagnose(model, [(x, y)]).facts == expected


def test_branches_of_the_model_and_tied_ones_without_naming_them():
    model: Any = shaken(BranchModel(tied=True))
    x, y = batch((D_IN,))
    assert diagnose(model, [(x, y)]).facts.stream.blocks == ("layers.0",) * 3


BUFFERS: dict[str, Callable[[], Tensor]] = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse rows": lambda: torch.eye(3).to_sparse_csr(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
    "conjugate": lambda: torch.ones(3, dtype=torch.complex64).conj(),
}


class Keeping(nn.Module):
    """Three blocks; it keeps a buffer that nothing uses, and writes unseen to another buffer and to an attribute."""

    tally: Tensor

    def __init__(self, buffer: Tensor) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.head = nn.Linear(5, 8), nn.Linear(8, 3)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.register_buffer("odd", buffer)
        self.register_buffer("tally", torch.zeros(2))
        self.seen = torch.zeros(2)

    def forward(self, x: Tensor) -> Tensor:
        self.tally.data.add_(1)
        self.seen.data.add_(1)
        h = self.stem(x)
        for layer in self.layers:
            h = h + torch.tanh(layer(h))
        out: Tensor = self.head(h)
        return out


@pytest.mark.parametrize("name", BUFFERS)
def test_buffers_of_any_layout_and_what_is_written_unseen_are_left_as_found(name):
    model = Keeping(BUFFERS[name]())
    state = torch.get_rng_state()
    diagnose(
        model, [(torch.randn(6, 5, generator=torch.Generator().manual_seed(1)), torch.arange(6) % 3)], blocks="layers.*"
    )
    assert (model.tally.tolist(), model.seen.tolist()) == ([0.0, 0.0], [0.0, 0.0])
    assert torch.equal(torch.get_rng_state(), state)


class Gated(nn.Module):
    """h σ(W h), put into fresh zeros: no skip."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.map, self.how = nn.Linear(8, 8), how

    def forward(self, h: Tensor) -> Tensor:
        f, zeros = h * torch.sigmoid(self.map(h)), torch.zeros_like(h)
        if self.how == "index_add":
            return zeros.index_add(1, torch.arange(8), f)
        if self.how == "scatter_add":
            return zeros.scatter_add(1, torch.arange(8).expand_as(h), f)
        zeros[:, :] += f
        return zeros


@pytest.mark.parametrize("how", ["index_add", "scatter_add", "+="])
def test_what_is_added_to_fresh_zeros_is_no_skip(how):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Sequential(*(Gated(how) for _ in range(3))), nn.Linear(8, 3))
    report = diagnose(model, [(torch.randn(6, 5), torch.arange(6) % 3)], blocks="1.*")
    assert report.facts.stream.kind == "plain"


def overwritten(f: Tensor, h: Tensor) -> Tensor:
    out = h.clone()
    out[:, :] = f
    out[:, :1] += f[:, 1:2]
    return out


def overwritten_by_parts(f: Tensor, h: Tensor) -> Tensor:
    out = h.clone()
    out[:, :4] = f[:, :4]
    out[:, 4:] = f[:, 4:]
    out[:, :1] += f[:, 1:2]
    return out


def half_kept(f: Tensor, h: Tensor) -> Tensor:
    out = torch.zeros_like(h)
    out[:, :4] += h[:, :4]
    out[:, 4:] += f[:, 4:]
    return out


def in_two_parts(f: Tensor, h: Tensor) -> Tensor:
    out = h.clone()
    out[:, :4] += f[:, :4]
    out[:, 4:] += f[:, 4:]
    return out


class Joined(nn.Module):
    def __init__(self, join: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.map, self.join = nn.Linear(8, 8), join

    def forward(self, h: Tensor) -> Tensor:
        return self.join(torch.tanh(self.map(h)), h)


@pytest.mark.parametrize(
    ("join", "kind"),
    [(overwritten, "plain"), (overwritten_by_parts, "plain"), (half_kept, "plain"), (in_two_parts, "residual")],
)
def test_a_state_that_is_written_over_is_not_carried_on_by_a_later_addition(join, kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Sequential(*(Joined(join) for _ in range(3))), nn.Linear(8, 3))
    report = diagnose(model, [(torch.randn(6, 5), torch.arange(6) % 3)], blocks="1.*")
    assert report.facts.stream.kind == kind


def test_a_buffer_that_is_given_other_memory_is_put_back_and_the_other_left_alone():
    class Sharing(Keeping):
        other: Tensor

        def forward(self, x: Tensor) -> Tensor:
            self.tally.data = self.other.data
            return super().forward(x)

    model = Sharing(torch.ones(3))
    model.other, model.empty = torch.tensor([7.0, 8.0, 9.0]), torch.ones(2, device="meta")
    memory = model.tally.data_ptr()
    diagnose(model, [(torch.randn(6, 5), torch.arange(6) % 3)], blocks="layers.*")
    assert (model.tally.data_ptr(), model.tally.tolist()) == (memory, [0.0, 0.0])
    assert model.other.tolist() == [7.0, 8.0, 9.0]


def test_what_cannot_be_put_back_does_not_keep_the_rest_from_it(monkeypatch):
    from creditscope.stream import untouched as module

    model = Keeping(torch.ones(3))
    monkeypatch.setattr(module, "_attributes", lambda model: lambda: 1 / 0)
    state = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), untouched(model):
        model.tally.add_(torch.rand(2))
    assert model.tally.tolist() == [0.0, 0.0]
    assert torch.equal(torch.get_rng_state(), state)


class Stored(nn.Module):
    """Its first weight is stored in float8, and computed with in float32."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale = nn.Parameter(torch.ones(8).to(torch.float8_e4m3fn), requires_grad=False)
        self.stem, self.head = nn.Linear(5, 8), nn.Linear(8, 3)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x) * self.scale.to(x.dtype)
        for layer in self.layers:
            h = h + torch.tanh(layer(h))
        out: Tensor = self.head(h)
        return out


def test_a_float8_weight_does_not_say_what_a_network_computes_in():
    report = diagnose(Stored(), [(torch.randn(6, 5), torch.arange(6) % 3)], blocks="layers.*")
    assert report.facts.convention.dtype == "float32"


def test_complex_logits_are_refused_in_one_line():
    model = nn.Sequential(nn.Linear(5, 8), nn.Sequential(*(Gated("+=") for _ in range(3))), Complex())
    with pytest.raises(CreditscopeError, match=r"logits of torch\.complex64; return real numbers"):
        diagnose(model, [(torch.randn(6, 5), torch.arange(6) % 3)], blocks="1.*")


class Complex(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return torch.complex(h[:, :3], h[:, 3:6])
