"""Laws that hold for any network and any numbers: what must not change a fact, and what must change it by how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.factory import make_facts, margin
from torch import Tensor

from creditscope.credit.dfa import DFA
from creditscope.measure.alignment import aggregate, alignment, inner_products
from creditscope.measure.concentration import concentration
from creditscope.measure.depth import depth_margin
from creditscope.measure.facts import Depth, Facts
from creditscope.measure.reference import reference
from creditscope.measure.scale import scale
from creditscope.measure.stability import mean_pairwise_cosine
from creditscope.measure.sweep import lengths, sweep
from creditscope.models import ResMLP
from creditscope.protocol import DiagnosticThresholds, judge
from creditscope.protocol.intervals import t_interval
from creditscope.training.build import build_stream

law = settings(derandomize=True, max_examples=20, deadline=None)
fast = settings(derandomize=True, max_examples=100, deadline=None)
seeds = st.integers(0, 2**31)
factors = st.floats(1e-12, 1e12)
N, IN, D, C, L = 24, 6, 5, 3, 2


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(seed: int) -> tuple[ResMLP, DFA, Tensor, Tensor]:
    """A float64 network away from its initialisation, its DFA rule, and N samples."""
    gen = rng(seed)
    model = ResMLP(IN, C, D, L, 1, True).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=gen, dtype=torch.float64) * 0.5)
    x = torch.randn(N, IN, generator=gen, dtype=torch.float64)
    rule = DFA()
    rule.setup(build_stream(model, x[:2]), C, gen)
    rule.B = [b.double() for b in rule.B]
    return model, rule, x, torch.randint(C, (N,), generator=gen)


def numbers(facts: Facts) -> list[float]:
    """Everything that is a mean over samples; neither groups nor stability."""
    assert facts.alignment is not None
    assert facts.aggregate is not None
    assert facts.accuracy is not None
    assert facts.loss is not None
    a = facts.aggregate
    gammas = [a.headline, a.concat, a.norm_weighted, a.flattened, a.clamped_128]
    found = [facts.accuracy, facts.loss, facts.scale.growth, *facts.scale.mean, *facts.scale.median]
    found += [*facts.reference.per_sample, *facts.alignment.credit_norm, *facts.alignment.under_floor]
    return found + [v for v in (*facts.alignment.mean, *gammas) if v is not None]


def close(a: Sequence[float], b: Sequence[float]) -> None:
    assert list(a) == pytest.approx(list(b), rel=1e-9, abs=1e-12)


@law
@given(seeds, st.lists(st.integers(1, N), min_size=1, max_size=6), seeds)
def test_splitting_into_batches_and_the_order_of_samples_change_nothing(seed, cuts, order):
    model, rule, x, y = network(seed)
    whole = sweep(model, [(x, y)], rule)
    p = torch.randperm(N, generator=rng(order))
    edges = sorted({0, *(c for c in cuts if c < N), N})
    parts = [(x[p][a:b], y[p][a:b]) for a, b in pairwise(edges)]
    close(numbers(sweep(model, parts, rule)), numbers(whole))


@law
@given(seeds, st.integers(2, 4))
def test_duplicated_samples_change_no_mean(seed, copies):
    model, rule, x, y = network(seed)
    once, often = (sweep(model, [(x.repeat(k, 1), y.repeat(k))], rule) for k in (1, copies))
    close(numbers(often), numbers(once))


@law
@given(seeds, st.permutations(range(C)))
def test_names_of_the_classes_do_not_matter(seed, order):
    model, rule, x, y = network(seed)
    before = sweep(model, [(x, y)], rule)
    inverse = torch.argsort(torch.tensor(order))
    with torch.no_grad():
        head: Any = model.out_head
        head.weight.copy_(head.weight[order].clone())
        head.bias.copy_(head.bias[order].clone())
    rule.B = [b[order] for b in rule.B]
    close(numbers(sweep(model, [(x, inverse[y])], rule)), numbers(before))


def vectors(seed: int, layers: int = 3, n: int = 8, d: int = 6) -> tuple[Tensor, Tensor]:
    """Credit and reference, [layers, n, d] each, float64."""
    gen = rng(seed)
    a, g = (torch.randn(layers, n, d, generator=gen, dtype=torch.float64) for _ in range(2))
    return a, g


def products(a: Tensor, g: Tensor) -> tuple[Any, Any, Any]:
    """<a, g>, <a, a>, <g, g>: [layers, n] each."""
    dot, aa = (np.stack(column) for column in zip(*map(inner_products, a, g), strict=True))
    return dot, aa, np.stack([inner_products(each, each)[1] for each in g])


def measured(a: Tensor, g: Tensor) -> list[float]:
    dot, aa, gg = products(a, g)
    fact, total = alignment(dot, aa, gg, 1e-7), aggregate(dot, aa, gg, np.zeros_like(dot))
    found = [*fact.mean, *fact.std, total.headline, total.concat, total.norm_weighted, total.flattened]
    found += concentration(fact.mean, (2,)).share
    found.append(mean_pairwise_cosine(list(g[0])))
    return [v for v in found if v is not None]


@fast
@given(seeds)
def test_an_orthogonal_change_of_basis_changes_no_measure(seed):
    a, g = vectors(seed)
    q, _ = torch.linalg.qr(torch.randn(6, 6, generator=rng(seed + 1), dtype=torch.float64))
    close(measured(a @ q, g @ q), measured(a, g))
    close(lengths((a @ q)[0]).tolist(), lengths(a[0]).tolist())


@fast
@given(seeds, factors, factors)
def test_cosines_do_not_know_the_length_of_credit_or_reference(seed, c, k):
    a, g = vectors(seed)
    close(measured(a * c, g * k), measured(a, g))
    flipped, straight = (alignment(*products(sign * a, g), 1e-7) for sign in (-c, 1.0))
    close([-v for v in flipped.mean if v is not None], [v for v in straight.mean if v is not None])


@fast
@given(seeds, factors)
def test_growth_does_not_know_the_unit_of_h_and_the_reference_scales_with_g(seed, c):
    norms = np.random.default_rng(seed).uniform(0.1, 10, size=(4, 300))
    one, other = scale(norms), scale(norms * c)
    close(
        [other.growth, other.total_growth, *other.growth_by_group], [one.growth, one.total_growth, *one.growth_by_group]
    )
    assert other.growth_at == one.growth_at
    assert list(other.mean) == pytest.approx([c * m for m in one.mean])
    r, s = reference(norms), reference(norms / c)
    for name in ("per_sample", "batch_mean_128", "clamp_batch_size", "deepest_by_group"):
        assert [c * v for v in getattr(s, name)] == pytest.approx(list(getattr(r, name)))


@fast
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12), st.floats(1e-3, 1e3), st.floats(-100, 100))
def test_a_t_interval_moves_and_stretches_with_its_values(values, c, shift):
    low, high = t_interval(values) or (math.nan, math.nan)
    moved = t_interval([c * v + shift for v in values])
    size = c * max(map(abs, values)) + abs(shift) + 1e-300
    assert moved == pytest.approx((c * low + shift, c * high + shift), rel=1e-9, abs=1e-9 * size)


accuracy = st.floats(0, 1)


@fast
@given(st.lists(st.tuples(accuracy, accuracy), min_size=1, max_size=10), st.sampled_from([None, 100, 10_000]))
def test_a_margin_holds_itself_within_its_interval_and_changes_sign_with_its_sides(pairs, n_test):
    a, b = ([*side] for side in zip(*pairs, strict=True))
    there = depth_margin(a, b, null_kind="matched", n_test=n_test)
    back = depth_margin(b, a, null_kind="matched", n_test=n_test)
    assert there.margin_pp == pytest.approx(-back.margin_pp, abs=1e-8)
    assert there.margin_pp == pytest.approx(100 * (np.mean(a) - np.mean(b)), abs=1e-7)
    if there.low_pp is not None and there.high_pp is not None and back.low_pp is not None:
        assert there.low_pp <= there.margin_pp <= there.high_pp
        assert there.high_pp == pytest.approx(-back.low_pp, abs=1e-8)


ORDER = {"fail": 0, "inconclusive": 1, "incomplete": 2, "pass": 3}
positive = st.floats(1e-12, 1e6)


@fast
@given(positive, positive, positive, positive, st.floats(-50, 50), st.floats(-50, 50))
def test_a_verdict_never_improves_when_a_fact_gets_worse(growth, more, g, less, pp, fewer):
    """Growth up, reference down, margin down: no policy may then give a better status."""

    def status(policy: str, growth: float, g: float, pp: float) -> int:
        depth = Depth(margins=(margin(pp, interval=(pp - 1, pp + 1)),))
        return ORDER[judge(make_facts(growth=growth, g_128=g, depth=depth), DiagnosticThresholds(), policy).status]

    for policy in ("three-check", "four-diagnostic"):
        before = status(policy, min(growth, more), max(g, less), max(pp, fewer))
        assert status(policy, max(growth, more), min(g, less), min(pp, fewer)) <= before
