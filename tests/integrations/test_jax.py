"""The same ResMLP with the same weights in torch, numpy, Equinox, Flax and plain JAX: the same report."""

from __future__ import annotations

import importlib
import sys
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from tests.refusals import refusal

jax = pytest.importorskip("jax", reason="extra dev-jax is missing: the JAX adapter is NOT tested (make test-jax)")

import jax.numpy as jnp  # noqa: E402

from creditscope import DiagnosticReport, diagnose  # noqa: E402
from creditscope.integrations.jax import Blocks, _float64  # noqa: E402
from creditscope.integrations.jax import diagnose as diagnose_jax  # noqa: E402

from ..resmlp import (  # noqa: E402
    CLASSES,
    DEPTH,
    EPS,
    N_IN,
    WIDTH,
    direct_feedback,
    network,
    same,
    samples,
    torch_rule,
    twin_of,
    weights,
)

SIZES = (128, 128, 128)  # of one size: JAX compiles once
Made = tuple[Blocks, Any, Any]
"""(parts, params, own forward pass)"""


def plain(w: dict[str, Any]) -> Made:
    def norm(w: Any, name: str, h: Any) -> Any:
        centred = h - h.mean(1, keepdims=True)
        return centred / jnp.sqrt((centred**2).mean(1, keepdims=True) + EPS) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(w: Any, name: str, h: Any) -> Any:
        return h @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def block(k: int) -> Any:
        def step(w: Any, h: Any) -> Any:
            b = f"blocks.{k}."
            inner = jax.nn.gelu(linear(w, b + "linear1", norm(w, b + "norm", h)), approximate=False)
            return h + linear(w, b + "linear2", inner)

        return step

    blocks = [block(k) for k in range(DEPTH)]

    def readout(w: Any, h: Any) -> Any:
        return linear(w, "out_head", norm(w, "out_ln", h))

    def whole(w: Any, x: Any) -> Any:
        h = linear(w, "embed.linear", x)
        for step in blocks:
            h = step(w, h)
        return readout(w, h)

    return Blocks(lambda w, x: linear(w, "embed.linear", x), blocks, readout), w, whole


@cache
def equinox_network() -> Any:
    eqx = pytest.importorskip("equinox", reason="extra dev-jax is missing: Equinox is NOT tested (make test-jax)")

    class Block(eqx.Module):  # type: ignore[misc,name-defined]
        norm: Any
        linear1: Any
        linear2: Any
        act: Any

        def __init__(self, key: Any) -> None:
            self.norm = eqx.nn.LayerNorm(WIDTH, eps=EPS)
            self.linear1 = eqx.nn.Linear(WIDTH, WIDTH, key=key)
            self.linear2 = eqx.nn.Linear(WIDTH, WIDTH, key=key)
            self.act = lambda z: jax.nn.gelu(z, approximate=False)  # a leaf that is no array

        def __call__(self, h: Any) -> Any:
            return h + self.linear2(self.act(self.linear1(self.norm(h))))

    class Net(eqx.Module):  # type: ignore[misc,name-defined]
        embed: Any
        blocks: Any
        out_ln: Any
        out_head: Any

        def __init__(self, key: Any) -> None:
            self.embed = eqx.nn.Linear(N_IN, WIDTH, key=key)
            self.blocks = [Block(key) for _ in range(DEPTH)]
            self.out_ln = eqx.nn.LayerNorm(WIDTH, eps=EPS)
            self.out_head = eqx.nn.Linear(WIDTH, CLASSES, key=key)

        def __call__(self, x: Any) -> Any:
            h = self.embed(x)
            for block in self.blocks:
                h = block(h)
            return self.out_head(self.out_ln(h))

    return Net(jax.random.PRNGKey(0))


def equinox(w: dict[str, Any]) -> Made:
    eqx = pytest.importorskip("equinox", reason="extra dev-jax is missing: Equinox is NOT tested (make test-jax)")
    net = equinox_network()
    for name, value in w.items():
        path = name.replace("embed.linear", "embed").split(".")

        def where(tree: Any, path: Any = path) -> Any:
            for part in path:
                tree = tree[int(part)] if part.isdigit() else getattr(tree, part)
            return tree

        net = eqx.tree_at(where, net, jnp.asarray(value))
    parts = Blocks(
        lambda m, x: jax.vmap(m.embed)(x),
        [partial(lambda k, m, h: jax.vmap(m.blocks[k])(h), k) for k in range(DEPTH)],
        lambda m, h: jax.vmap(lambda z: m.out_head(m.out_ln(z)))(h),
    )
    return parts, net, lambda m, x: jax.vmap(m)(x)


def flax(w: dict[str, Any]) -> Made:
    nn = pytest.importorskip("flax.linen", reason="extra dev-jax is missing: Flax is NOT tested (make test-jax)")

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        @nn.compact
        def __call__(self, h: Any) -> Any:
            z = nn.Dense(WIDTH, name="linear1")(nn.LayerNorm(EPS, use_fast_variance=False, name="norm")(h))
            return h + nn.Dense(WIDTH, name="linear2")(nn.gelu(z, approximate=False))

    class Net(nn.Module):  # type: ignore[misc,name-defined]
        def setup(self) -> None:
            self.embed = nn.Dense(WIDTH)
            self.blocks = [Block() for _ in range(DEPTH)]
            self.out_ln = nn.LayerNorm(EPS, use_fast_variance=False)
            self.out_head = nn.Dense(CLASSES)

        def first(self, x: Any) -> Any:
            return self.embed(x)

        def step(self, h: Any, k: int) -> Any:
            return self.blocks[k](h)

        def last(self, h: Any) -> Any:
            return self.out_head(self.out_ln(h))

        def __call__(self, x: Any) -> Any:
            h = self.embed(x)
            for block in self.blocks:
                h = block(h)
            return self.last(h)

    tree: dict[str, Any] = {}
    for name, value in w.items():
        *path, kind = name.replace("embed.linear", "embed").replace("blocks.", "blocks_").split(".")
        at = tree
        for part in path:
            at = at.setdefault(part, {})
        norm = path[-1] in ("norm", "out_ln")
        at["bias" if kind == "bias" else "scale" if norm else "kernel"] = jnp.asarray(value if norm else value.T)
    net = Net()
    parts = Blocks(
        lambda p, x: net.apply(p, x, method="first"),
        [partial(lambda k, p, h: net.apply(p, h, k, method="step"), k) for k in range(DEPTH)],
        lambda p, h: net.apply(p, h, method="last"),
    )
    return parts, {"params": tree}, net.apply


def rule(hiddens: list[Any], logits: Any, y: Any, x: Any) -> list[Any]:
    return [jnp.asarray(a) for a in direct_feedback(np.asarray(logits), np.asarray(y))]


def numpy_batches(sizes: tuple[int, ...], seed: int, dtype: torch.dtype) -> list[tuple[Any, Any]]:
    return [(x.numpy(), y.numpy()) for x, y in samples(sizes, seed, dtype)]


def reports(make: Any, dtype: torch.dtype) -> tuple[DiagnosticReport, DiagnosticReport]:
    model = network(dtype)
    fit, test = (256, 256), SIZES
    theirs = diagnose(
        model, samples(test, 1, dtype), credit=torch_rule, level="full", fit_batches=samples(fit, 7, dtype)
    )
    parts, params, whole = make(weights(model))
    twin = make(weights(twin_of(model)))[1]
    ours = diagnose_jax(
        parts,
        params,
        numpy_batches(test, 1, dtype),
        credit=rule,
        model=whole,
        level="full",
        fit_batches=numpy_batches(fit, 7, dtype),
        twin=twin,
    )
    return ours, theirs


APART = ("proof", "fresh_b")


@pytest.mark.parametrize("make", [plain, equinox, flax])
def test_float32_gives_the_report_of_torch(make):
    ours, theirs = reports(make, torch.float32)
    assert ours.facts.convention.dtype == "float32"
    same(ours, theirs, 1e-5, 1e-6, but=APART)


@pytest.mark.parametrize("make", [plain, equinox, flax])
def test_float64_gives_the_report_of_torch(make):
    with _float64():
        ours, theirs = reports(make, torch.float64)
    assert ours.facts.convention.dtype == "float64"
    same(ours, theirs, 1e-10, 1e-12, but=APART)


def test_what_does_not_fit_is_one_line():
    parts, params, whole = plain(weights(network(torch.float32)))
    batches = numpy_batches((32,), 1, torch.float32)
    x, y = batches[0]
    other_shapes = jax.tree.map(lambda t: t[..., :1], params)
    wrong: list[tuple[Any, Any, dict[str, Any], str]] = [
        (3, batches, {}, "give Blocks"),
        ((parts.embed, [], parts.readout), batches, {}, "has no blocks; give"),
        ((parts.embed, [3], parts.readout), batches, {}, "has int as block 0; give"),
        (parts, 3, {}, "pairs (x, y)"),
        (parts, [3], {}, "batches yields a int; give pairs (x, y)"),
        (parts, [(1, 2, 3)], {}, "batches yields a tuple of 3; give pairs"),
        (parts, batches, {"model": lambda p, x: 2 * whole(p, x)}, "(relative difference 0.5)"),
        (parts, batches, {"model": lambda p, x: whole(p, x)[:, :1]}, "where the model has [32, 1]"),
        (parts, batches, {"loss_fn": lambda z, y: z.sum()}, "one loss per sample"),
        (parts, batches, {"fit_batches": batches, "twin": {"w": np.zeros(3)}}, "give the same pytree"),
        (parts, batches, {"fit_batches": batches, "twin": other_shapes}, "twin has an array of shape"),
        (parts, batches, {"credit": lambda h, z, y, x: None}, "credit returned None"),
        (parts, [(x, y.astype(float))], {}, "integer class indices [B]"),
        (parts, [(x, y[:, None])], {}, "integer class indices [B]"),
        (parts, [(x, y[:5])], {}, "one row per sample"),
        (parts, [(x, y - 1)], {}, "label -1 is out of range"),
    ]
    for given, read, options, said in wrong:
        assert said in refusal(diagnose_jax, given, params, read, **options)


def test_a_backward_pass_of_its_own_is_found():
    parts, params, _ = plain(weights(network(torch.float32)))

    @jax.custom_vjp
    def altered(h: Any) -> Any:
        return h

    altered.defvjp(lambda h: (h, None), lambda _, g: (2 * g,))
    blocks = [parts.blocks[0], lambda w, h: parts.blocks[1](w, altered(h)), *parts.blocks[2:]]
    given = (parts.embed, blocks, parts.readout), params, numpy_batches((32,), 1, torch.float32)
    assert "g_0 is off a finite difference" in refusal(diagnose_jax, *given)


def test_a_network_that_stays_in_float32_is_proved_as_far_as_float32_goes():
    parts, params, _ = plain(weights(network(torch.float32)))
    given = numpy_batches((256,), 1, torch.float32)
    facts: Any = diagnose_jax(parts, params, given, float64=False, level="full").facts
    assert facts.proof.gradient_dtype == "float32"
    known = [m for m in facts.perturbation.reference.mean if m is not None]
    assert known
    assert min(known) > 0.98


def test_a_network_in_bfloat16_is_measured_as_far_as_it_is_resolved():
    parts, params, _ = plain(weights(network(torch.float32)))
    half = jax.tree.map(lambda t: jnp.asarray(t, jnp.bfloat16), params)
    batches = [(x.astype(jnp.bfloat16), y) for x, y in numpy_batches((128,), 1, torch.float32)]
    facts = diagnose_jax(parts, half, batches, level="full").facts
    assert facts.convention.dtype == "bfloat16"
    exact = diagnose_jax(parts, params, numpy_batches((128,), 1, torch.float32)).facts
    assert facts.scale.mean == pytest.approx(exact.scale.mean, rel=0.02)
    assert facts.reference.per_sample == pytest.approx(exact.reference.per_sample, rel=0.05)


def test_jax_is_left_as_found():
    parts, params, _ = plain(weights(network(torch.float32)))
    diagnose_jax(parts, params, numpy_batches((32,), 1, torch.float32), level="full")
    assert jnp.asarray(np.zeros(2)).dtype == jnp.float32


def test_a_missing_extra_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    sys.modules.pop("creditscope.integrations.jax", None)
    assert "pip install 'creditscope[jax]'" in refusal(importlib.import_module, "creditscope.integrations.jax")
