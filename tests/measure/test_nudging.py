import pytest
import torch
from tests.known import known
from tests.measure.functional_nets import (
    Net,
    constant_loss,
    linear_loss,
    probe_of,
    quadratic_loss,
    samples,
    weights,
)

from creditscope.measure.nudging import nudging, unit


def test_quadratic_loss_exactly():
    """L = ½‖h‖², a = g = h: the change is -η‖h‖ + η²/2."""
    x, y = samples()
    stream, probe = probe_of(Net(), (x, y), loss_fn=quadratic_loss)
    got = nudging(stream, [probe], quadratic_loss)
    expected = float((-0.01 * x.double().norm(dim=1) + 0.01**2 / 2).mean())
    assert got.reference is not None
    assert got.reference.mean == pytest.approx((expected,) * 3, rel=1e-10)
    assert got.reference.deep_mean == pytest.approx(expected, rel=1e-10)
    assert got.step == 0.01


def test_linear_loss_and_any_credit():
    """L = <h, w>: the change is -η <a, w>/‖a‖, whatever the size of a."""
    x, y = samples()
    a = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    w = weights(x, y).double()
    stream, probe = probe_of(Net(), (x, y), credit=[a, 1e-30 * a, 1e30 * a], loss_fn=linear_loss)
    got = nudging(stream, [probe], linear_loss)
    expected = float((-0.01 * (a.double() * w).sum(1) / a.double().norm(dim=1)).mean())
    assert known(got.credit).mean == pytest.approx((expected,) * 3, rel=1e-6)


def test_deep_mean_leaves_out_layer_zero_and_exact_layers():
    x, y = samples()
    g = weights(x, y)
    stream, probe = probe_of(Net(), (x, y), credit=[g, -g, g], loss_fn=linear_loss)
    got = nudging(stream, [probe], linear_loss, exact_layers=(2,))
    assert got.credit is not None
    c0, c1, c2 = got.credit.mean
    assert c0 == pytest.approx(c2)
    assert got.credit.deep_mean == pytest.approx(0.0, abs=1e-12)
    assert got.credit.deep_mean_without_exact == pytest.approx(c1)


def test_below_the_resolution_is_not_measurable():
    stream, probe = probe_of(Net(), samples(), loss_fn=constant_loss)
    got = nudging(stream, [probe], constant_loss)
    assert got.random is not None
    assert got.random.mean == (None, None, None)
    assert got.random.measurable == (0, 0, 0)


def test_unit_of_zero_is_nan():
    a = torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e-200, 4e-200]], dtype=torch.float64)
    got = unit(a)
    assert got[0].tolist() == pytest.approx([0.6, 0.8])
    assert got[2].tolist() == pytest.approx([0.6, 0.8])
    assert bool(got[1].isnan().all())
