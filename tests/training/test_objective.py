"""The gradients of one batch against autograd of the objective as PROTOCOL.md states it, written as one sum."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.known import known
from torch import Tensor

from creditscope.credit import BP, EP, CreditBatch, CreditRule
from creditscope.credit.base import rms_normalised
from creditscope.models import ResMLP, SmallCNN, StudentNet, ViTMini
from creditscope.stream.interface import InterfaceStream
from creditscope.training.objective import Objective, freeze_first

from ..stream.nets import D_IN, C, batch, shaken


class Fixed(CreditRule):
    """Credit that is drawn once per layer, so that the test knows it."""

    name = "fixed"

    def __init__(self, native: bool = False) -> None:
        super().__init__()
        self.native = native
        self.a: list[Tensor] = []
        self.seen: list[CreditBatch] = []

    def learn(self, batch: CreditBatch) -> None:
        self.seen.append(batch)

    def credit(self, batch: CreditBatch) -> list[Tensor]:
        self.seen.append(batch)
        gen = torch.Generator().manual_seed(3)
        shapes = [h.shape for h in batch.hiddens] if self.native else [(len(batch.y), w) for w in batch.stream.widths]
        self.a = [torch.randn(tuple(s), generator=gen, dtype=torch.float64) for s in shapes]
        return self.a


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "resmlp": (lambda: ResMLP(D_IN, C, width=8, depth=3, ratio=2), (D_IN,)),
    "student": (lambda: StudentNet(D_IN, C, width=8, depth=3), (D_IN,)),
    "vit": (lambda: ViTMini(C, width=8, depth=3, size=8), (3, 8, 8)),
    "small-cnn": (lambda: SmallCNN(C, width=8, size=4), (3, 4, 4)),
}
N = 5


def prepared(name: str, n: int = N) -> tuple[Any, Any, InterfaceStream, Tensor, Tensor]:
    """(model, an untouched twin, the model's stream, x, y) in double."""
    make, shape = MODELS[name]
    model = shaken(make(), std=0.4).double()
    x, y = batch(shape, n=n)
    stream = InterfaceStream(model.eval(), x.double()[:3])
    model.train()
    return model, copy.deepcopy(model), stream, x.double(), y


def normalised(a: Tensor, norm: str) -> Tensor:
    return a if norm == "none" else a / ((a**2).mean(1, keepdim=True) ** 0.5 + 1e-6)


def stated_objective(
    model: Any, x: Tensor, y: Tensor, a: list[Tensor], norm: str, site: str, penalty: float, first: int
) -> Tensor:
    """Σ over the trained parts of ⟨output, a⟩ + λ‖f_l‖², sums over features, means over the batch, plus the readout's loss."""
    plain, n = model.stream_kind == "plain", len(y)

    def inner(out: Tensor, credit: Tensor) -> Tensor:
        credit = normalised(credit, norm)
        if out.dim() == 3:  # every token gets the credit of the read token
            return torch.einsum("btd,bd->", out, credit) / n
        return (out.reshape(n, -1) * credit).sum() / n

    h0 = model.embed(x)
    total = inner(h0, a[0])
    h = h0.detach()
    for layer, block in enumerate(model.blocks):
        f = block(h.detach())
        if layer >= first:
            total = total + inner(f, a[layer + 1 if plain or site == "output" else layer])
            total = total + penalty * (f**2).sum() / n
        h = (f if plain else h + f).detach()
    return total + F.cross_entropy(model.readout(h), y)


def compare(model: Any, twin: Any) -> None:
    for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        if p.grad is None:
            assert q.grad is None or not q.grad.any(), name
        else:
            assert q.grad is not None, name
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-8, atol=1e-10, msg=name)


@pytest.mark.parametrize("norm", ["none", "rms"])
@pytest.mark.parametrize("site", ["input", "output"])
@pytest.mark.parametrize("penalty", [0.0, 0.3])
@pytest.mark.parametrize("name", ["resmlp", "vit", "small-cnn"])
@pytest.mark.parametrize("n", [5, 8])  # the mean over 2^k is taken elsewhere
def test_local_gradients_equal_autograd_of_the_stated_objective(n, name, penalty, site, norm):
    model, twin, stream, x, y = prepared(name, n)
    rule = Fixed()
    loss = Objective(stream, rule, norm, site, penalty, 0).backward(x, y)
    stated_objective(twin, x, y, rule.a, norm, site, penalty, 0).backward()
    compare(model, twin)
    assert all(p.grad is not None and p.grad.any() for n, p in model.named_parameters() if "conv.bias" not in n)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, F.cross_entropy(twin(x), y).detach())


@pytest.mark.parametrize("over", ["module", "global"])
@pytest.mark.parametrize("kind", ["local", "exact", "own"])
@pytest.mark.parametrize("name", ["resmlp", "vit", "small-cnn"])
def test_clipping_is_that_of_torch_on_the_gradients_as_they_are_without_it(name, kind, over):
    """The way without clipping has its own tests; here each part's gradient is its own, shortened to the norm."""
    rules: dict[str, type[CreditRule]] = {"local": Fixed, "exact": BP, "own": EP}
    norm, site = ("rms", "output") if kind == "local" else (None, None)
    found = []
    for clip in (None, 0.02):
        model, _, stream, x, y = prepared(name)
        Objective(stream, rules[kind](), norm, site, 0.1, 1, grad_clip=clip, clip_over=over).backward(x, y)
        found.append(model)
    whole, clipped = found
    kept = ("out_ln", "out_head")
    groups = {part: [part] for part in ("embed", *(f"blocks.{k}" for k in range(len(whole.blocks))))}
    factors = []
    for names in groups.values() if over == "module" else [[*groups, *kept]]:
        a, b = (
            {n: p.grad for n, p in m.named_parameters() if n.startswith(tuple(f"{k}." for k in names))} for m in found
        )
        size = math.sqrt(sum(float(g.square().sum()) for g in a.values() if g is not None))
        factor = min(1.0, 0.02 / (size + 1e-6))
        factors.append(factor)
        for n, g in a.items():
            assert (g is None) == (b[n] is None), n
            if g is not None:
                torch.testing.assert_close(b[n], g * factor, rtol=1e-9, atol=0, msg=n)
    assert min(factors) < 1
    if over == "module":
        for part in kept:
            for p, q in zip(getattr(whole, part).parameters(), getattr(clipped, part).parameters(), strict=True):
                assert torch.equal(p.grad, q.grad)


@pytest.mark.parametrize("train_last", [0, 1, 2])
@pytest.mark.parametrize("name", ["resmlp", "student", "vit"])
def test_only_the_last_k_blocks_are_trained_and_the_rest_gets_its_gradient_all_the_same(name, train_last):
    model, twin, stream, x, y = prepared(name)
    rule = Fixed()
    first = freeze_first(stream, train_last)
    assert first == 3 - train_last
    Objective(stream, rule, "none", "input", 0.1, first).backward(x, y)
    stated_objective(twin, x, y, rule.a, "none", "input", 0.1, first).backward()
    compare(model, twin)
    for layer, block in enumerate(model.blocks):
        for p in block.parameters():
            assert (p.grad is not None) == (layer >= first)
            assert p.requires_grad == (layer >= first)
    assert all(p.grad is not None for part in (model.embed, model.out_ln, model.out_head) for p in part.parameters())


def test_native_credit_of_a_token_model_is_read_before_it_is_broadcast():
    model, twin, stream, x, y = prepared("vit")
    rule = Fixed(native=True)
    Objective(stream, rule, "rms", "output", 0.0, 0).backward(x, y)
    read = [a[:, 0] for a in rule.a]
    stated_objective(twin, x, y, read, "rms", "output", 0.0, 0).backward()
    compare(model, twin)


@pytest.mark.parametrize("name", ["resmlp", "student", "vit", "small-cnn"])
def test_no_gradient_crosses_a_block_boundary(name):
    # credit at the last block alone: only it and the readout may have a gradient, although both depend on every block
    model, _, stream, x, y = prepared(name)
    rule, last = Fixed(), stream.depth - 1
    rule.credit = lambda batch: [  # type: ignore[method-assign]
        torch.randn_like(h) if layer > last else torch.zeros_like(h) for layer, h in enumerate(batch.hiddens)
    ]
    Objective(stream, rule, "none", "output", 0.0, 0).backward(x, y)
    for part, p in model.named_parameters():
        assert bool(known(p.grad).any()) == part.startswith(("out_", f"blocks.{last}.")), part


@pytest.mark.parametrize("n", [5, 8])
@pytest.mark.parametrize("name", ["resmlp", "vit", "small-cnn"])
def test_rule_is_given_the_per_sample_gradient_at_the_last_state(name, n):
    """To learn from, and then for its credit."""
    _, twin, stream, x, y = prepared(name, n)
    rule = Fixed()
    Objective(stream, rule, "none", "output", 0.0, 0).backward(x, y)
    h = twin.hidden_states(x)[-1].detach().requires_grad_()
    (g,) = torch.autograd.grad(F.cross_entropy(twin.readout(h), y, reduction="sum"), h)
    assert len(rule.seen) == 2
    for given in rule.seen:
        torch.testing.assert_close(given.output_grad, g[:, 0] if g.dim() == 3 else g.flatten(1))
        assert not any(h.requires_grad for h in given.hiddens)


@pytest.mark.parametrize("penalty", [0.0, 0.2])
@pytest.mark.parametrize("name", ["resmlp", "vit", "small-cnn"])
def test_bp_with_penalty_is_autograd_of_loss_plus_penalty_end_to_end(name, penalty):
    model, twin, stream, x, y = prepared(name)
    Objective(stream, BP(), None, None, penalty, 0).backward(x, y)
    h, squares = twin.embed(x), torch.zeros((), dtype=torch.float64)
    for block in twin.blocks:
        f = block(h)
        squares = squares + (f**2).sum()
        h = f if twin.stream_kind == "plain" else h + f
    (F.cross_entropy(twin.readout(h), y) + penalty * squares / N).backward()
    compare(model, twin)


def test_bp_null_trains_the_embedding_through_the_frozen_blocks():
    model, twin, stream, x, y = prepared("resmlp")
    first = freeze_first(stream, 0)
    Objective(stream, BP(), None, None, 0.0, first).backward(x, y)
    F.cross_entropy(twin(x), y).backward()
    for part in ("embed", "out_ln", "out_head"):
        for p, q in zip(getattr(model, part).parameters(), getattr(twin, part).parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
    assert all(p.grad is None for p in model.blocks.parameters())


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("exact", [True, False])
def test_bf16_gives_the_gradients_up_to_its_resolution_and_leaves_fp32_behind(name, exact):
    """bf16 has 8 bits: the gradient of every weight points the same way, and states and .grad are fp32."""
    make, shape = MODELS[name]
    model = shaken(make(), std=0.4)
    x, y = batch(shape, n=N)
    stream = InterfaceStream(model.eval(), x[:3])
    found = {}
    for precision in ("fp32", "bf16"):
        rule: CreditRule = BP() if exact else Fixed()
        norm, site = (None, None) if exact else ("rms", "output")
        model.zero_grad(set_to_none=True)
        Objective(stream, rule, norm, site, 1e-3, 0, precision).backward(x, y)
        found[precision] = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        if isinstance(rule, Fixed):
            assert {h.dtype for given in rule.seen for h in given.hiddens} == {torch.float32}
    assert found["fp32"].keys() == found["bf16"].keys()
    assert any(not torch.equal(found["fp32"][n], found["bf16"][n]) for n in found["fp32"])
    for n, reference in found["fp32"].items():
        assert found["bf16"][n].dtype == torch.float32
        if float(reference.norm()) > 1e-6:
            assert F.cosine_similarity(reference.flatten(), found["bf16"][n].flatten(), dim=0) > 0.99, n


def test_fp32_stays_fp32_inside_a_callers_autocast():
    model, twin, stream, x, y = prepared("resmlp")
    rule = Fixed()
    with torch.autocast("cpu", torch.bfloat16):
        Objective(stream, rule, "none", "output", 0.0, 0).backward(x, y)
    stated_objective(twin, x, y, rule.a, "none", "output", 0.0, 0).backward()
    compare(model, twin)


@pytest.mark.parametrize("part", ["embed", "blocks.1"])
@pytest.mark.parametrize("name", ["resmlp", "vit"])
def test_what_somebody_froze_is_left_alone(name, part):
    model, twin, stream, x, y = prepared(name)
    model.get_submodule(part).requires_grad_(False)
    rule = Fixed()
    Objective(stream, rule, "none", "output", 0.0, 0).backward(x, y)
    stated_objective(twin, x, y, rule.a, "none", "output", 0.0, 0).backward()
    for (n, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        if n.startswith(part):
            assert p.grad is None, n
        else:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-8, atol=1e-10, msg=n)


class Marking(Fixed):
    """Looks at the states with autograd, which is nobody's business but its own."""

    def credit(self, batch: CreditBatch) -> list[Tensor]:
        for h in batch.hiddens:
            h.requires_grad_()
        return super().credit(batch)


@pytest.mark.parametrize("name", ["resmlp", "student"])
def test_gradients_have_no_graph_whatever_is_marked(name):
    model, twin, stream, x, y = prepared(name)
    rule = Marking()
    Objective(stream, rule, "none", "output", 0.2, 0).backward(x.requires_grad_(), y)
    stated_objective(twin, x.detach(), y, rule.a, "none", "output", 0.2, 0).backward()
    compare(model, twin)
    assert not any(p.grad is not None and p.grad.requires_grad for p in model.parameters())


@pytest.mark.parametrize("n", [1, 8, 5])
def test_the_mean_is_taken_with_the_rms_to_the_same_bits(n):
    _, _, stream, _, _ = prepared("resmlp", max(n, 3))
    a = torch.randn(n, stream.widths[1])
    push = Objective(stream, Fixed(), "rms", "output", 0.0, 0)._push(a, 1, n, torch.empty_like(a))
    assert torch.equal(push, rms_normalised(a) / n)
