"""Every number of a sweep against numpy on the raw vectors, and its independence of how samples are batched."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from creditscope import diagnose
from creditscope.credit import DFA, FA
from creditscope.measure.alignment import aggregate, alignment, cosine
from creditscope.measure.concentration import concentration
from creditscope.measure.facts import Facts
from creditscope.measure.loss import of_any_number
from creditscope.measure.reference import reference
from creditscope.measure.scale import growth_of, scale
from creditscope.measure.stability import GroupMeans, mean_pairwise_cosine, stability
from creditscope.measure.sweep import sweep
from creditscope.models import ResMLP
from creditscope.stream.interface import InterfaceStream

from ..refusals import refusal
from ..stream.nets import D_IN, Array, C, D, batch, by_hand, floats, shaken

N = 1024


def vectors(model: Any, x: Tensor, y: Tensor) -> tuple[list[Array], list[Array], Array]:
    """(h_l, g_l, losses) as float64 arrays, by plain autograd."""
    steps = [lambda h, b=b: h + b(h) for b in model.blocks]
    hs, gs, losses = by_hand(model.embed, steps, model.readout, x, y)
    return [h.double().numpy() for h in hs], [g.double().numpy() for g in gs], losses.double().numpy()


def cos(u: Array, v: Array) -> float:
    return float(np.dot(u, v) / (np.linalg.norm(u) * np.linalg.norm(v)))


def test_every_fact_equals_a_numpy_recomputation_from_the_raw_vectors():
    model: Any = shaken(ResMLP(D_IN, C, width=D, depth=3)).double()
    x, y = batch((D_IN,), n=300)
    x = x.double()
    hs, gs, losses = vectors(model, x, y)
    rng = np.random.default_rng(3)
    credit = [g * 0.5 + rng.standard_normal(g.shape) * 0.02 * (layer + 1) for layer, g in enumerate(gs)]
    parts = [slice(0, 100), slice(100, 130), slice(130, 300)]
    calls = iter(parts)

    def rule(hiddens: list[Tensor], logits: Tensor, labels: Tensor) -> list[Tensor]:
        part = next(calls)
        return [torch.from_numpy(a[part]) for a in credit]

    facts = diagnose(model, [(x[p], y[p]) for p in parts], credit=rule).facts
    h_norm = np.array([[np.linalg.norm(v) for v in h] for h in hs])
    g_norm = np.array([[np.linalg.norm(v) for v in g] for g in gs])
    np.testing.assert_allclose(facts.scale.mean, h_norm.mean(1), rtol=1e-12)
    np.testing.assert_allclose(facts.scale.median, np.median(h_norm, axis=1), rtol=1e-12)
    steps = h_norm.mean(1)[1:] / h_norm.mean(1)[:-1]
    assert facts.scale.growth == pytest.approx(steps.max(), rel=1e-12)
    assert facts.scale.growth_at == steps.argmax()
    assert facts.scale.total_growth == pytest.approx(h_norm[-1].mean() / h_norm[0].mean(), rel=1e-12)
    groups = [slice(0, 128), slice(128, 256)]  # 44 samples are left over
    for got, part in zip(facts.scale.growth_by_group, groups, strict=True):
        m = h_norm[:, part].mean(1)
        assert got == pytest.approx((m[1:] / m[:-1]).max(), rel=1e-12)
    np.testing.assert_allclose(facts.reference.per_sample, g_norm.mean(1), rtol=1e-12)
    np.testing.assert_allclose(facts.reference.batch_mean_128, g_norm.mean(1) / 128, rtol=1e-12)
    np.testing.assert_allclose(facts.reference.clamp_batch_size, g_norm.mean(1) / 1e-7, rtol=1e-12)
    np.testing.assert_allclose(facts.reference.deepest_by_group, [g_norm[-1, p].mean() for p in groups], rtol=1e-12)
    assert facts.loss == pytest.approx(losses.mean(), rel=1e-12)
    with torch.no_grad():
        assert facts.accuracy == float((model(x).argmax(1) == y).double().mean())

    cosines = np.array([[cos(u, v) for u, v in zip(a, g, strict=True)] for a, g in zip(credit, gs, strict=True)])
    al, ag, co = facts.alignment, facts.aggregate, facts.concentration
    assert al is not None
    assert ag is not None
    assert co is not None
    np.testing.assert_allclose(floats(al.mean), cosines.mean(1), rtol=1e-10)
    np.testing.assert_allclose(floats(al.std), cosines.std(1, ddof=1), rtol=1e-10)
    np.testing.assert_allclose(al.credit_norm, [np.linalg.norm(a, axis=1).mean() for a in credit], rtol=1e-12)
    assert al.measurable == (300,) * 4
    assert ag.headline == pytest.approx(cosines.mean(1).mean(), rel=1e-10)
    long_a, long_g = np.concatenate(credit, axis=1), np.concatenate(gs, axis=1)
    concat = np.mean([cos(u, v) for u, v in zip(long_a, long_g, strict=True)])
    assert ag.concat == pytest.approx(concat, rel=1e-10)
    weights = g_norm.mean(1) / g_norm.mean(1).sum()
    assert ag.norm_weighted == pytest.approx((weights * cosines.mean(1)).sum(), rel=1e-10)
    flat = np.mean([cos(a.ravel(), g.ravel()) for a, g in zip(credit, gs, strict=True)])
    assert ag.flattened == pytest.approx(flat, rel=1e-10)
    five = [ag.headline, ag.concat, ag.norm_weighted, ag.flattened, ag.clamped_128]
    assert ag.spread == pytest.approx(max(five) - min(five))  # type: ignore[type-var, operator]
    np.testing.assert_allclose(floats(co.share), cosines.mean(1) / np.abs(cosines.mean(1)).sum(), rtol=1e-10)
    assert co.deep_mean == pytest.approx(cosines.mean(1)[1:].mean(), rel=1e-10)
    for layer, g in enumerate(gs):
        assert facts.stability.per_layer[layer] == pytest.approx(cos(g[groups[0]].mean(0), g[groups[1]].mean(0)))


@pytest.mark.parametrize("head", [1.0, 1e-6, 1e-9])
def test_clamped_cosine_is_the_eps_formula_at_batch_128(head):
    # ‖g‖/128 is far above, around and far below eps = 1e-8
    model: Any = shaken(ResMLP(D_IN, C, width=D, depth=2)).double()
    with torch.no_grad():
        model.out_head.weight *= head
    x, y = batch((D_IN,), n=40)
    _, gs, _ = vectors(model, x.double(), y)
    a = [np.random.default_rng(layer).standard_normal(g.shape) + 30 * g / np.abs(g).max() for layer, g in enumerate(gs)]
    facts = diagnose(model, [(x.double(), y)], credit=lambda *_: [torch.from_numpy(v) for v in a]).facts
    by_layer = []
    for u, g in zip(a, gs, strict=True):
        size_a, size_g = np.linalg.norm(u, axis=1), np.linalg.norm(g / 128, axis=1)
        by_layer.append(((u * g / 128).sum(1) / (np.maximum(size_a, 1e-8) * np.maximum(size_g, 1e-8))).mean())
    assert facts.aggregate is not None
    assert facts.aggregate.clamped_128 == pytest.approx(np.mean(by_layer), rel=1e-9)
    if head == 1e-9:
        assert facts.aggregate.headline is not None
        assert facts.aggregate.clamped_128 is not None
        assert facts.aggregate.clamped_128 < 0.1 * facts.aggregate.headline


BATCHINGS: dict[str, list[int]] = {
    "32": [32] * 32,
    "1024": [1024],
    "uneven": [5, 1, 122, 300, 500, 96],
    "remainder": [1000, 24],
}


@pytest.fixture(scope="module")
def task() -> tuple[Any, Tensor, Tensor, dict[str, Any]]:
    model: Any = shaken(ResMLP(D_IN, C, width=D, depth=3))
    x, y = batch((D_IN,), n=N)
    stream = InterfaceStream(model.eval(), x[:3])
    rules: dict[str, Any] = {"dfa": DFA(), "fa": FA()}
    for rule in rules.values():
        rule.setup(stream, C, torch.Generator().manual_seed(7))
    return model, x, y, rules


def run(task: Any, sizes: list[int], rule: str) -> Facts:
    model, x, y, rules = task
    return sweep(model, list(zip(x.split(sizes), y.split(sizes), strict=True)), rules[rule])


@pytest.mark.parametrize("rule", ["dfa", "fa"])
@pytest.mark.parametrize("name", BATCHINGS)
def test_nothing_that_is_reported_depends_on_how_the_samples_are_batched(task, name, rule):
    expected = run(task, [128] * 8, rule).model_dump()
    found = run(task, BATCHINGS[name], rule).model_dump()
    assert expected["convention"].pop("batch_sizes") == (128,)
    assert found["convention"].pop("batch_sizes") == tuple(sorted(set(BATCHINGS[name])))
    assert found["convention"] == expected["convention"]  # the hash of the samples too
    assert found["stream"] == expected["stream"]
    assert found["stability"]["groups"] == 8
    for part in ("scale", "reference", "alignment", "aggregate", "concentration", "stability"):
        for key, value in expected[part].items():
            if isinstance(value, str):
                assert found[part][key] == value
            else:
                np.testing.assert_allclose(
                    np.array(found[part][key], dtype=float),
                    np.array(value, dtype=float),
                    rtol=1e-4,
                    atol=1e-7,
                    err_msg=f"{part}.{key}",
                )
    assert found["accuracy"] == expected["accuracy"]


def test_hash_of_the_samples_changes_with_the_samples_their_order_and_their_labels(task):
    model, x, y, _ = task
    seen = set()
    for inputs, labels in ((x, y), (x.flip(0), y.flip(0)), (x, (y + 1) % C), (x + 1e-3, y), (x[:-1], y[:-1])):
        seen.add(sweep(model, [(inputs, labels)]).convention.samples)
    assert len(seen) == 5


def test_mean_reduced_gradient_at_batch_128_is_what_the_second_convention_states():
    model: Any = shaken(ResMLP(D_IN, C, width=D, depth=2)).double()
    x, y = batch((D_IN,), n=128)
    h = model.embed(x.double()).detach().requires_grad_()
    z = h
    for block in model.blocks:
        z = z + block(z)
    (g,) = torch.autograd.grad(torch.nn.functional.cross_entropy(model.readout(z), y), h)
    facts = sweep(model, [(x.double(), y)])
    assert facts.reference.batch_mean_128[0] == pytest.approx(float(g.norm(dim=1).mean()), rel=1e-10)


def test_loss_fn_of_the_user_is_what_is_differentiated():
    model: Any = shaken(ResMLP(D_IN, C, width=D, depth=2)).double()
    x, y = batch((D_IN,), n=20)

    def halved(logits: Tensor, labels: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none") / 2

    whole, half = sweep(model, [(x.double(), y)]), sweep(model, [(x.double(), y)], loss_fn=halved)
    np.testing.assert_allclose(half.reference.per_sample, np.array(whole.reference.per_sample) / 2, rtol=1e-10)
    assert half.convention.loss == "halved"


# ---- the small functions, in closed form ---------------------------------------------------------------------------


def test_growth_of_a_known_sequence():
    norms = np.array([[1.0, 3.0], [4.0, 4.0], [2.0, 2.0], [20.0, 60.0]])  # means 2, 4, 2, 40
    fact = scale(norms)
    assert (fact.growth, fact.growth_at, fact.total_growth) == (20.0, 2, 20.0)
    assert fact.median == (2.0, 4.0, 2.0, 40.0)
    assert fact.growth_by_group == ()


def test_growth_out_of_zero_is_infinite_and_from_zero_to_zero_says_nothing():
    assert growth_of(np.array([0.0, 0.0, 3.0, 6.0])) == (math.inf, 1)
    assert growth_of(np.array([0.0, 0.0, 0.0])) == pytest.approx((math.nan, None), nan_ok=True)
    assert math.isnan(growth_of(np.array([1.0, math.nan]))[0])


def test_reference_counts_samples_whose_gradient_is_exactly_zero():
    fact = reference(np.array([[0.0, 2.0, 0.0], [1e-300, 1.0, 2.0]]))
    assert fact.zero_samples == (2, 0)
    assert fact.per_sample == pytest.approx((2 / 3, 1.0))


def test_samples_with_a_zero_vector_are_counted_out_never_scored():
    # layer 0: one ordinary pair (cos .6), a zero credit, a zero reference, both zero; layer 1: nothing measurable
    dot = np.array([[0.6, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    aa = np.array([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    gg = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    fact = alignment(dot, aa, gg, floor=1e-7)
    assert fact.mean[0] == pytest.approx(0.6)
    assert fact.mean[1] is None
    assert fact.measurable == (1, 0)
    assert fact.std == (None, None)
    assert fact.under_floor == (0.5, 1.0)
    total = aggregate(dot, aa, gg, np.zeros_like(dot))
    assert total.headline == pytest.approx(0.6)
    assert np.isnan(cosine(dot, aa, gg)[0, 1:]).all()


def test_perfect_alignment_of_a_tiny_gradient_is_one_without_clamp():
    g = 1e-25
    fact = alignment(np.array([[g * g]]), np.array([[g * g]]), np.array([[g * g]]), floor=1e-7)
    assert fact.mean[0] == pytest.approx(1.0, abs=1e-12)
    assert fact.under_floor == (1.0,)


def test_aggregations_of_one_case_flip_the_sign():
    # layer 0: large gradients, cos -.2; layer 1: tiny gradients, cos +.8
    aa, gg = np.ones((2, 1)), np.array([[100.0], [1e-4]])
    dot = np.array([[-0.2 * 10], [0.8 * 1e-2]])
    fact = aggregate(dot, aa, gg, np.array([[-0.2], [0.8]]))
    assert fact.headline == pytest.approx(0.3)
    assert fact.norm_weighted == pytest.approx((-0.2 * 10 + 0.8 * 0.01) / 10.01)
    assert fact.concat == pytest.approx((-2 + 0.008) / math.sqrt(2 * 100.0001))
    assert fact.sign_flips
    assert not aggregate(np.abs(dot), aa, gg, np.array([[0.2], [0.8]])).sign_flips


def test_concentration_of_a_known_profile_with_and_without_exact_layers():
    fact = concentration((0.4, -0.1, None, 0.5), exact_layers=(3,))
    np.testing.assert_allclose(floats(fact.share), [0.4, -0.1, np.nan, 0.5], rtol=1e-12)
    assert fact.top_layer == 3
    assert fact.top_share == pytest.approx(0.5)
    assert fact.deep_mean == pytest.approx(0.2)
    assert fact.deep_mean_without_exact == pytest.approx(-0.1)
    everything = concentration((1.0, 1.0), exact_layers=(0, 1))
    assert everything.deep_mean_without_exact is None


def test_mean_pairwise_cosine_equals_the_mean_over_all_pairs():
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal(7) for _ in range(6)]
    expected = np.mean([cos(u, v) for u, v in combinations(rows, 2)])
    assert mean_pairwise_cosine([torch.from_numpy(v) for v in rows]) == pytest.approx(expected, rel=1e-10)
    assert mean_pairwise_cosine([torch.ones(3), torch.ones(3) * 5]) == pytest.approx(1.0)
    assert mean_pairwise_cosine([torch.ones(3), -torch.ones(3)]) == pytest.approx(-1.0)
    assert mean_pairwise_cosine([torch.ones(3), torch.zeros(3), torch.full((3,), math.nan)]) is None


def test_group_means_do_not_depend_on_the_way_samples_arrive():
    g = torch.from_numpy(np.random.default_rng(1).standard_normal((300, 4)))
    for sizes in ([300], [1] * 300, [127, 2, 171], [256, 44]):
        groups = GroupMeans()
        for part in g.split(sizes):
            groups.add(part)
        assert len(groups.means) == 2
        torch.testing.assert_close(groups.means[0], g[:128].mean(0))
        torch.testing.assert_close(groups.means[1], g[128:256].mean(0))


def test_stability_needs_two_groups_and_says_so():
    groups = [GroupMeans()]
    groups[0].add(torch.ones(255, 2, dtype=torch.float64))
    fact = stability(groups)
    assert (fact.deepest, fact.groups) == (None, 1)
    assert fact.reason.startswith("needs 2 batches")
    assert "8 advised" in fact.reason
    groups[0].add(torch.ones(1, 2, dtype=torch.float64))
    assert stability(groups).deepest == pytest.approx(1.0)


def test_share_under_the_floor_is_in_the_convention_of_batch_128():
    norms = np.array([[2e-7 * 128, 2e-7, 0.5e-7 * 128]])  # /128: above, under, under; as they are: all above
    fact = alignment(norms**2, norms**2, norms**2, floor=1e-7)
    assert list(fact.under_floor) == pytest.approx([2 / 3])


def test_small_positive_aggregates_are_no_flip_of_the_sign():
    one = np.ones((1, 1))
    assert not aggregate(one * 0.5, one, one, one * 0.005).sign_flips


def test_stability_is_that_of_the_deepest_layer():
    turning, fixed = GroupMeans(size=1), GroupMeans(size=1)
    for k in range(4):
        turning.add(torch.eye(4, dtype=torch.float64)[k : k + 1])
        fixed.add(torch.ones(1, 4, dtype=torch.float64))
    assert stability([fixed, turning]).deepest == pytest.approx(0.0, abs=1e-12)
    assert stability([turning, fixed]).deepest == pytest.approx(1.0)


BATCH_LOSSES: dict[str, Any] = {
    "a share of the batch": lambda logits, y: F.cross_entropy(logits, y, reduction="none") / len(y),
    "of centred logits": lambda logits, y: F.cross_entropy(logits - logits.mean(0), y, reduction="none"),
    "random": lambda logits, y: F.cross_entropy(F.dropout(logits, 0.5), y, reduction="none"),
    "of labels that spread over the batch": lambda logits, y: ((logits[:, :1] - y) ** 2).mean(1),
}


@pytest.mark.parametrize("n", [1, 2, 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", BATCH_LOSSES)
def test_a_loss_that_depends_on_the_batch_is_refused(name, dtype, n):
    """Where neither a later sample nor a finite difference shows it: one sample, half precision."""
    model: Any = shaken(ResMLP(D_IN, C, width=D, depth=2)).to(dtype)
    x, y = batch((D_IN,), n=2 * n)[0], torch.arange(2 * n) % C
    batches = [(x[:n].to(dtype), y[:n]), (x[n:].to(dtype), y[n:])]
    if name.startswith("of labels") and n == 1:
        return  # there is no other label
    torch.manual_seed(0)  # dropout may leave the same logits twice
    assert "loss_fn" in refusal(lambda: diagnose(model, batches, loss_fn=BATCH_LOSSES[name]))


def test_a_random_loss_is_refused_where_the_drawn_sample_does_not_show_it():
    """The noise is on a sample with a small loss; the one with the largest is compared with itself alone."""

    def noisy(logits: Tensor, y: Tensor) -> Tensor:
        each = F.cross_entropy(logits, y, reduction="none")
        return torch.where(each < each.max(), each * torch.rand(()), each)

    model: Any = shaken(ResMLP(D_IN, C, width=D, depth=2))
    x, y = batch((D_IN,), n=16)[0], torch.arange(16) % C
    assert "it must not draw random numbers" in refusal(lambda: diagnose(model, [(x, y)], loss_fn=noisy))


@pytest.mark.parametrize("n", [2, 3, 16])
def test_a_loss_that_takes_no_single_sample_is_measured_and_its_mean_refused(n):
    """A batch of two does not show a share of the batch where a sample cannot stand by itself."""

    def of_several(logits: Tensor, y: Tensor) -> Tensor:
        if len(y) < 2:
            raise ValueError("expected several rows")
        return F.cross_entropy(logits, y, reduction="none")

    model: Any = shaken(ResMLP(D_IN, C, width=D, depth=2))
    x, y = batch((D_IN,), n=48)[0], torch.arange(48) % C
    batches = [(x[k : k + n], y[k : k + n]) for k in range(0, 48, n)]
    want, found = diagnose(model, batches).facts, diagnose(model, batches, loss_fn=of_several).facts
    assert found.reference.model_copy(update={"loss_scale": None}) == want.reference
    shared = refusal(lambda: diagnose(model, batches, loss_fn=lambda logits, y: of_several(logits, y) / len(y)))
    assert shared.startswith("loss_fn gives sample ")
    with pytest.raises(ValueError, match="expected several rows"):
        of_any_number(lambda logits, y: of_several(logits, y[:1]))(x[:1], y[:1])


def test_a_share_of_the_batch_is_seen_where_the_first_sample_has_no_loss():
    """0 divided by the size of the batch is 0."""
    model: Any = shaken(ResMLP(D_IN, C, width=D, depth=2)).bfloat16()
    x = batch((D_IN,), n=9)[0].bfloat16()
    y = model(x).argmax(1)
    y[1:] = (y[1:] + 1) % C

    def hinge(logits: Tensor, y: Tensor) -> Tensor:
        own = logits.gather(1, y[:, None])
        others = logits.masked_fill(F.one_hot(y, C).bool(), -100.0)
        return (others.amax(1) - own[:, 0] + 1e-3).relu() / len(y)

    assert float(hinge(model(x), y)[0]) == 0.0
    assert "loss_fn" in refusal(lambda: diagnose(model, [(x, y)], loss_fn=hinge))


def test_a_loss_of_one_batch_size_is_refused_and_one_that_writes_is_taken():
    model: Any = shaken(ResMLP(D_IN, C, width=D, depth=2))
    x, y = batch((D_IN,), n=9)
    weights = torch.arange(1.0, 10.0)
    said = refusal(
        lambda: diagnose(model, [(x, y)], loss_fn=lambda z, t: weights * F.cross_entropy(z, t, reduction="none"))
    )
    assert "not 1 of them" in said or "not 2 of them" in said
    own, written = (
        diagnose(model, [(x, y)], loss_fn=loss).facts.reference.per_sample
        for loss in (None, lambda z, t: F.cross_entropy(z.mul_(1.0), t, reduction="none"))
    )
    np.testing.assert_allclose(written, own, rtol=1e-6)
