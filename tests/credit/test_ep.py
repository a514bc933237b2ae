"""EP against closed forms (linear streams), backpropagation (the limit), and its own promises about the relaxation."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.refusals import refusal
from torch import Tensor, nn

from creditscope.credit import EP, CreditBatch
from creditscope.credit.registry import make_rule
from creditscope.errors import CreditscopeError
from creditscope.measure.sweep import sweep
from creditscope.models import ResMLP, SmallCNN, ViTMini
from creditscope.stream.interface import InterfaceStream
from creditscope.training.objective import Objective, freeze_first
from creditscope.training.spec import make_spec

from .zoo_nets import LinearStream

CONVERGED = {"steps": 2000, "tolerance": 1e-9}


def seen(model: nn.Module, x: Tensor, y: Tensor) -> tuple[CreditBatch, list[Tensor]]:
    """The batch as a rule sees it, and the exact g_0..g_L."""
    model.eval()
    stream = InterfaceStream(model, x[:3])
    taps: list[Tensor] = []
    logits = stream.forward(x, lambda layer, value, handle: taps.append(handle))
    g = torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), taps)
    batch = CreditBatch(stream, [h.detach() for h in taps], logits.detach(), y)
    return batch, [stream.read_grad(t) for t in g]


def resmlp(depth: int = 4, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = ResMLP(20, 5, width=16, depth=depth).to(dtype)
    for block in model.blocks:
        block.linear2.weight.data *= scale  # type: ignore[union-attr,operator]
    return model, torch.randn(12, 20, dtype=dtype), torch.randint(0, 5, (12,))


def of_kind(kind: str, **options: float) -> tuple[nn.Module, Tensor, Tensor]:
    """A network of three blocks with a residual or a plain stream."""
    model, x, y = resmlp(depth=3, **options)  # type: ignore[arg-type]
    return (model if kind == "residual" else LinearStream(kind, n_in=20, n_classes=5).double()), x, y


def relative_error(a: list[Tensor], g: list[Tensor]) -> float:
    return max(float((x - z).norm() / z.norm()) for x, z in zip(a, g, strict=True))


def linear_equilibrium(model: LinearStream, x: Tensor, y: Tensor, beta: float) -> tuple[list[np.ndarray], ...]:
    """(displacements u_l, errors r_l) of one sample, by numpy: r_l = -β P_lᵀ q and u_l = Σ_{k<=l} P_{k->l} r_k.

    P_{k->l} carries h_k to h_l, P_l = P_{l->L}; q is dLoss/dh_L at the equilibrium itself.
    """
    depth = len(model.blocks)
    weights: list[np.ndarray] = [p.detach().numpy() for p in model.blocks.parameters()]
    eye = np.eye(model.out_head.weight.shape[1])
    step = [w + eye if model.stream_kind == "residual" else w for w in weights]

    def carry(k: int, to: int) -> np.ndarray:
        out = eye
        for j in range(k, to):
            out = step[j] @ out
        return out

    w, b = model.out_head.weight.detach().numpy(), model.out_head.bias.detach().numpy()
    h0 = model.embed(x[None]).detach().numpy()[0]
    top0 = carry(0, depth) @ h0
    metric = sum(carry(k, depth) @ carry(k, depth).T for k in range(depth + 1))
    u = np.zeros_like(top0)
    for _ in range(100):  # Newton on u + β M q(top0 + u) = 0
        z = w @ (top0 + u) + b
        p = np.exp(z - z.max())
        p /= p.sum()
        q = w.T @ (p - np.eye(len(p))[int(y)])
        hessian = w.T @ (np.diag(p) - np.outer(p, p)) @ w
        u = u - np.linalg.solve(eye + beta * metric @ hessian, u + beta * metric @ q)
    r = [-beta * carry(layer, depth).T @ q for layer in range(depth + 1)]
    return [sum((carry(k, layer) @ r[k] for k in range(layer + 1)), np.zeros_like(u)) for layer in range(depth + 1)], r


@pytest.mark.parametrize("kind", ["residual", "plain"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_linear_stream_has_the_closed_form_equilibrium(kind: str, symmetric: bool) -> None:
    torch.manual_seed(1)
    model = LinearStream(kind, n_in=4, n_classes=3).double()
    x, y = torch.randn(6, 4).double(), torch.tensor([0, 1, 2, 0, 1, 2])
    batch, _ = seen(model, x, y)
    beta = 0.7
    rule = EP(beta=beta, symmetric=symmetric, **CONVERGED)
    got = rule.readings(batch)
    assert all(r.residual_max <= 1e-9 for r in rule.last)
    for sample in range(6):
        u, r = linear_equilibrium(model, x[sample], y[sample], beta)
        if symmetric:
            u2, r2 = linear_equilibrium(model, x[sample], y[sample], -beta)
            u, r = ([(a - b) / 2 for a, b in zip(one, two, strict=True)] for one, two in ((u, u2), (r, r2)))
        for layer in range(4):
            np.testing.assert_allclose(got["displacement"][layer][sample], -u[layer] / beta, atol=1e-7)
            np.testing.assert_allclose(got["error"][layer][sample], -r[layer] / beta, atol=1e-7)


def test_error_credit_is_the_gradient_in_the_limit() -> None:
    batch, g = seen(*resmlp())
    a = EP(beta=1e-3, reading="error", **CONVERGED).credit(batch)
    for credit, reference in zip(a, g, strict=True):
        assert float(F.cosine_similarity(credit, reference, dim=1).min()) > 0.999
        ratio = credit.norm(dim=1) / reference.norm(dim=1)
        assert 0.99 < float(ratio.min()) <= float(ratio.max()) < 1.01


def test_symmetric_nudge_has_the_smaller_bias() -> None:
    batch, g = seen(*resmlp())
    bias = {
        symmetric: [
            relative_error(EP(beta=beta, symmetric=symmetric, **CONVERGED).readings(batch)["error"], g)
            for beta in (0.02, 0.01, 0.005)
        ]
        for symmetric in (False, True)
    }
    assert all(two < one for one, two in zip(bias[False], bias[True], strict=True))
    orders = {s: [math.log2(a / b) for a, b in pairwise(values)] for s, values in bias.items()}
    assert orders[False] == pytest.approx([1, 1], abs=0.3)  # bias ~ β
    assert orders[True] == pytest.approx([2, 2], abs=0.3)  # bias ~ β²


def test_the_loss_reaches_one_more_layer_per_step() -> None:
    """Plain relaxation, no backpropagation in disguise: after k steps the k deepest states have moved, and no other."""
    batch, _ = seen(*resmlp())
    for steps in (1, 2, 3, 4, 5):
        moved = [bool(u.abs().sum() > 0) for u in EP(steps=steps).readings(batch)["displacement"]]
        assert moved == [False] * (5 - steps) + [True] * steps


def gradients(model: nn.Module, x: Tensor, y: Tensor, method: str, penalty: float = 0.0, **kw) -> dict[str, Tensor]:
    model.zero_grad()
    stream = InterfaceStream(model, x[:3])
    first = freeze_first(stream, kw.pop("train_last", None))
    Objective(stream, make_rule(method, kw), None, None, penalty, first).backward(x, y)
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", ["residual", "plain"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_contrastive_gradient_is_the_backpropagated_one_in_the_limit(kind: str, symmetric: bool) -> None:
    model, x, y = of_kind(kind)
    exact = gradients(model, x, y, "bp")
    ours = gradients(model, x, y, "ep", beta=1e-3, symmetric=symmetric, **CONVERGED)
    assert ours.keys() == exact.keys()
    for name, g in exact.items():
        assert relative_error([ours[name]], [g]) < 1e-2, name
    coarse = gradients(model, x, y, "ep", beta=5.0, steps=1)
    for name in (n for n in exact if n.startswith("out_")):  # from the free state: exact at any β
        torch.testing.assert_close(coarse[name], exact[name])


def test_reading_does_not_change_what_is_learnt() -> None:
    model, x, y = resmlp()
    one, two = (gradients(model, x, y, "ep", reading=reading) for reading in ("displacement", "error"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_penalty_is_local_and_at_the_free_state() -> None:
    model, x, y = resmlp()
    plain = gradients(model, x, y, "ep")
    with_penalty = gradients(model, x, y, "ep", penalty=0.3)
    hiddens = [h.detach() for h in model.hidden_states(x)]  # type: ignore[operator]
    model.zero_grad()
    for block, h in zip(model.blocks, hiddens, strict=False):  # type: ignore[arg-type]
        (0.3 * block(h).square().sum() / len(y)).backward()
    for name, p in model.named_parameters():
        added = with_penalty[name] - plain[name]
        torch.testing.assert_close(added, torch.zeros_like(added) if p.grad is None else p.grad, atol=1e-12, rtol=1e-9)


def test_frozen_blocks_get_nothing_and_pass_credit_on() -> None:
    model, x, y = resmlp()
    every = gradients(model, x, y, "ep")
    last_two = gradients(model, x, y, "ep", train_last=2)
    assert {n for n in every if n not in last_two} == {n for n in every if n.startswith(("blocks.0", "blocks.1"))}
    assert all(torch.equal(g, every[name]) for name, g in last_two.items())


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("scale", [1.0, 100.0, 3000.0])
@pytest.mark.parametrize("step_size", [0.3, 1e3])
def test_energy_never_rises(momentum: bool, scale: float, step_size: float) -> None:
    """Also where the branches explode or the step is absurd: the step size comes down, nothing becomes NaN."""
    batch, _ = seen(*resmlp(scale=scale))
    rule = EP(beta=0.5, steps=60, step_size=step_size, momentum=momentum, symmetric=True)
    readings = rule.readings(batch)
    for report in rule.last:
        assert all(b <= a + 1e-12 for a, b in pairwise(report.energy))
        assert report.energy[-1] < 0
        assert 0 <= report.residual <= report.residual_max < math.inf
        assert report.steps <= 60
        if step_size > 1:
            assert report.step_size < 1
            assert report.rejected >= 9
    assert all(bool(a.isfinite().all()) for a in (*readings["displacement"], *readings["error"]))


def test_residual_is_the_gradient_of_the_energy() -> None:
    """Recomputed by autograd from the energy as it is written in the protocol."""
    model, x, y = resmlp()
    batch, g = seen(model, x, y)
    rule = EP(beta=0.5, steps=7)
    u = rule.readings(batch)["displacement"]
    h = [(free - 0.5 * d).requires_grad_() for free, d in zip(batch.hiddens, u, strict=True)]
    energy = 0.5 * (h[0] - batch.hiddens[0]).square().sum()
    for layer, block in enumerate(model.blocks):  # type: ignore[arg-type]
        energy = energy + 0.5 * (h[layer + 1] - h[layer] - block(h[layer])).square().sum()
    energy = energy + 0.5 * F.cross_entropy(model.readout(h[-1]), y, reduction="sum")  # type: ignore[operator]
    grad = torch.cat(torch.autograd.grad(energy, h), dim=1).norm(dim=1)
    expected = grad / (0.5 * g[-1].norm(dim=1))
    (report,) = rule.last
    assert report.residual == pytest.approx(float(expected.mean()), rel=1e-9)
    assert report.residual_max == pytest.approx(float(expected.max()), rel=1e-9)
    free_loss = 0.5 * F.cross_entropy(batch.logits, y, reduction="sum")
    assert report.energy[-1] == pytest.approx(float((energy - free_loss).detach() / len(y)), rel=1e-9)
    assert rule.diagnostics()["residual"] == report.residual


def test_more_steps_leave_a_smaller_residual_and_tolerance_ends_early() -> None:
    batch, _ = seen(*resmlp())
    residuals = []
    for steps in (2, 6, 20, 60):
        rule = EP(steps=steps, tolerance=0)
        rule.credit(batch)
        residuals.append(rule.last[0].residual)
    assert residuals == sorted(residuals, reverse=True)
    rule = EP(steps=5000, tolerance=0.2)
    rule.credit(batch)
    assert rule.last[0].steps < 30
    assert rule.last[0].residual_max <= 0.2


def test_credit_of_a_sample_does_not_depend_on_its_batch() -> None:
    model, x, y = resmlp(scale=100.0)
    whole, _ = seen(model, x, y)
    part, _ = seen(model, x[:4], y[:4])
    rule = EP(step_size=2.0)
    for a, b in zip(rule.credit(whole), rule.credit(part), strict=True):
        torch.testing.assert_close(a[:4], b, rtol=1e-8, atol=1e-10)


def test_small_nudge_of_a_large_float32_state_survives() -> None:
    """‖h‖ ~ 1e4 in float32: prediction errors are formed from displacements, not from the difference of two states."""
    batch, g = seen(*far_away(torch.float32))
    assert float(batch.hiddens[-1].norm(dim=1).mean()) > 5e3
    a = EP(beta=10.0, steps=300, tolerance=0, reading="error").credit(batch)
    for credit, reference in zip(a, g, strict=True):
        assert float(F.cosine_similarity(credit.double(), reference.double(), dim=1).mean()) > 0.99


def test_diverged_network_is_nan_and_says_so() -> None:
    model, x, y = resmlp()
    batch, _ = seen(model, x, y)
    batch.hiddens[-1][0] = math.nan
    rule = EP()
    a = rule.credit(batch)
    assert math.isnan(rule.last[0].residual)
    assert math.isnan(rule.diagnostics()["residual"])
    assert bool(a[2][0].isnan().all())
    assert bool(a[2][1:].isfinite().all())


def test_saturated_sample_has_nothing_to_relax() -> None:
    model, x, y = resmlp()
    model.out_head.weight.data.zero_()  # type: ignore[union-attr,operator]
    batch, _ = seen(model, x, y)
    rule = EP()
    assert all(not bool(a.any()) for a in rule.credit(batch))
    assert rule.last[0].residual == 0
    assert rule.last[0].steps == 0


def test_batch_statistics_see_the_free_phase_only() -> None:
    torch.manual_seed(0)
    model, twin = SmallCNN(4, width=8, size=8), SmallCNN(4, width=8, size=8)
    twin.load_state_dict(model.state_dict())
    x, y = torch.randn(6, 3, 8, 8), torch.randint(0, 4, (6,))
    model.eval()
    stream = InterfaceStream(model, x[:3])
    model.train()
    twin.train()
    rule = EP(symmetric=True)
    rule.backward(stream, x, y, 0, 0.0)
    twin(x)
    for name, buffer in twin.named_buffers():
        torch.testing.assert_close(dict(model.named_buffers())[name], buffer)
    for report in rule.last:
        assert all(b <= a + 1e-6 for a, b in pairwise(report.energy))
        assert report.residual < 1
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
    assert all(p.requires_grad for p in model.parameters())


def descended(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    beta: float,
    steps: int,
    size: float,
    *,
    clamp: bool = False,
    rounded: bool = False,
) -> list[Tensor]:
    """States after plain gradient descent on the energy as the protocol writes it, by autograd; [h_0, ..., h_L]."""
    free = [h.detach() for h in model.hidden_states(x)]  # type: ignore[operator]
    h = list(free)
    for _ in range(steps):
        h = [state.detach().requires_grad_() for state in h]
        logits = model.readout(h[-1])  # type: ignore[operator]
        energy = 0.5 * (h[0] - free[0]).square().sum() + beta * F.cross_entropy(logits, y, reduction="sum")
        for layer, block in enumerate(model.blocks):  # type: ignore[arg-type]
            predicted = block(h[layer]) if model.stream_kind == "plain" else h[layer] + block(h[layer])
            energy = energy + 0.5 * (h[layer + 1] - predicted).square().sum()
        slopes = torch.autograd.grad(energy, h)
        h = [(s - size * g).detach() for s, g in zip(h, slopes, strict=True)]
        h = [s.float().to(s.dtype) for s in h] if rounded else h
        h = [free[0], *h[1:]] if clamp else h
    return [a - b for a, b in zip(h, free, strict=True)]


PLAIN = {"momentum": False, "control": False, "tolerance": 0}


@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize("nudge", ["sample", "batch"])
@pytest.mark.parametrize("kind", ["residual", "plain"])
def test_uncontrolled_relaxation_is_gradient_descent_on_the_stated_energy(kind: str, nudge: str, clamp: bool) -> None:
    model, x, y = of_kind(kind, scale=30.0)
    batch, _ = seen(model, x, y)
    beta = 0.7 / len(y) if nudge == "batch" else 0.7
    rule = EP(beta=0.7, steps=20, step_size=0.1, nudge=nudge, clamp=clamp, **PLAIN)
    got = rule.readings(batch)["displacement"]
    expected = descended(model, x, y, beta, 20, 0.1, clamp=clamp)
    for layer, (a, u) in enumerate(zip(got, expected, strict=True)):
        torch.testing.assert_close(a, -u / beta, rtol=1e-6, atol=1e-9)
        assert bool(a.any()) == (layer > 0 or not clamp)
    assert rule.last[0].rejected == 0


def test_control_off_takes_the_steps_that_control_undoes() -> None:
    batch, _ = seen(*resmlp(scale=100.0))
    reports = []
    for control in (True, False):
        rule = EP(steps=10, step_size=3.0, momentum=False, control=control)
        rule.credit(batch)
        reports.append(rule.last[0])
    assert reports[0].rejected > 0
    assert reports[1].rejected == 0
    assert any(b > a for a, b in pairwise(reports[1].energy))


def far_away(dtype: torch.dtype) -> tuple[nn.Module, Tensor, Tensor]:
    """States of size 1e4 or so, where float32 resolves .001."""
    model, x, y = resmlp(dtype=torch.float32)
    for p in model.embed.parameters():  # type: ignore[union-attr]
        p.data *= 3e3
    return model.to(dtype), x.to(dtype), y


def test_float32_states_lose_what_their_resolution_does_not_hold() -> None:
    model, x, y = far_away(torch.float64)
    batch, _ = seen(model, x, y)
    options = {"beta": 10.0, "steps": 20, "step_size": 0.1, **PLAIN}
    exact = [-u / 10 for u in descended(model, x, y, 10.0, 20, 0.1)]
    rounded = [-u / 10 for u in descended(model, x, y, 10.0, 20, 0.1, rounded=True)]
    got = EP(states="float32", **options).readings(batch)["displacement"]
    for a, b in zip(got, rounded, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    kept = EP(states="float64", **options).readings(batch)["displacement"]
    for a, b in zip(kept, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-12)
    worse, better = (relative_error(a[2:], exact[2:]) for a in (got, kept))
    assert worse > 1e3 * better


def test_float64_states_of_a_float32_network_are_those_of_the_network_in_float64() -> None:
    options = {"beta": 10.0, "steps": 20, "step_size": 0.1, **PLAIN}
    single, x, y = far_away(torch.float32)
    double, x2, y2 = far_away(torch.float64)
    a = EP(states="float64", **options).readings(seen(single, x, y)[0])
    b = EP(**options).readings(seen(double, x2, y2)[0])
    for reading in ("displacement", "error"):
        for got, expected in zip(a[reading], b[reading], strict=True):
            assert got.dtype == torch.float32
            torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-9)
    assert all(p.dtype == torch.float32 and p.requires_grad for p in single.parameters())
    gradients(single, x, y, "ep", states="float64")  # and it can be trained


@pytest.mark.parametrize("kind", ["residual", "plain"])
@pytest.mark.parametrize("train_last", [None, 1])
def test_clamped_contrastive_gradient_is_the_backpropagated_one_in_the_limit(kind: str, train_last: int | None) -> None:
    """The embedding's, too: it learns through block 0, whether that is trained or frozen."""
    model, x, y = of_kind(kind, scale=30.0)
    exact = gradients(model, x, y, "bp", train_last=train_last)
    ours = gradients(model, x, y, "ep", train_last=train_last, beta=1e-4, clamp=True, **CONVERGED)
    assert ours.keys() == exact.keys()
    for name, g in exact.items():
        assert relative_error([ours[name]], [g]) < 1e-2, name


def test_batch_mean_nudge_learns_what_a_nudge_of_beta_over_b_learns() -> None:
    model, x, y = resmlp()
    one = gradients(model, x, y, "ep", beta=0.5, nudge="batch")
    two = gradients(model, x, y, "ep", beta=0.5 / len(y))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_options_that_came_later_leave_the_names_of_earlier_runs_alone() -> None:
    """The spec of an archived EP run names seven options and no more."""
    known = {"beta", "steps", "step_size", "momentum", "symmetric", "reading", "tolerance"}
    plain = make_spec({"method": "ep"})
    assert set(plain.options) == known
    assert make_spec({"method": "ep", "options": {"clamp": False, "states": "displacement"}}) == plain
    changed = [{"clamp": True}, {"states": "float32"}, {"states": "float64"}, {"nudge": "batch"}, {"control": False}]
    assert len({make_spec({"method": "ep", "options": o}).hash for o in changed} | {plain.hash}) == 6
    spec = make_spec({"method": "ep", "options": {"clamp": True, "steps": 20, "step_size": 0.05}})
    assert spec.label == "ep(steps=20, step_size=0.05, clamp=on)"
    assert make_spec(spec.model_dump()) == spec


def test_token_model_is_read_at_its_read_token() -> None:
    torch.manual_seed(0)
    model = ViTMini(3, 16, 2, 2).double()
    x, y = torch.randn(4, 3, 32, 32).double(), torch.randint(0, 3, (4,))
    batch, g = seen(model, x, y)
    assert batch.stream.read == "cls"
    a = EP(beta=1e-6, reading="error", **CONVERGED).credit(batch)  # its cls token starts at ‖h‖ ~ .1
    assert [tuple(t.shape) for t in a] == [(4, 16)] * 3
    assert relative_error(list(a), g) < 1e-2


def test_stream_seen_through_hooks_is_refused_in_one_line() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3))
    batches = [(torch.randn(4, 4), torch.randint(0, 3, (4,)))]
    told = refusal(lambda: sweep(net, batches, EP(), blocks=["1"]))
    assert told.startswith("credit rule 'ep' ")
    assert "embed, blocks and readout" in told


@pytest.mark.parametrize(
    "options", [{"beta": 0}, {"steps": 0}, {"step_size": -1}, {"reading": "both"}, {"tolerance": 1}, {"betta": 1}]
)
def test_wrong_options_are_named(options: dict) -> None:
    with pytest.raises(CreditscopeError, match=f"option '{next(iter(options))}' of method ep"):
        EP(**options)
