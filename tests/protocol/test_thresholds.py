"""The published defaults, the floor of each dtype, and what a threshold may not be."""

import math

import pytest
from tests.refusals import refusal

from creditscope.errors import CreditscopeError
from creditscope.protocol import DiagnosticThresholds


def test_published_defaults():
    t = DiagnosticThresholds()
    assert (t.g_norm_floor, t.h_norm_explosion_ratio, t.stability_drift_ceiling) == (1e-7, 50.0, 0.30)
    assert (t.frozen_acc_margin_pp, t.concentration_share) == (2.0, 0.6)


def test_floor_of_each_dtype():
    t = DiagnosticThresholds()
    assert t.floor_for("float16") == pytest.approx(5.9604645e-7)  # 10 x 2^-24
    assert t.floor_for("torch.float16") == t.floor_for("float16")
    for dtype in ("bfloat16", "float32", "float64", "torch.float32"):
        assert t.floor_for(dtype) == 1e-7


def test_floor_follows_the_user_where_it_is_higher():
    assert DiagnosticThresholds(g_norm_floor=1e-5).floor_for("float16") == 1e-5
    assert DiagnosticThresholds(g_norm_floor=1e-12).floor_for("float64") == 1e-12
    assert DiagnosticThresholds(g_norm_floor=1e-50).floor_for("float32") == pytest.approx(1.4012985e-44)


def test_unknown_dtype():
    with pytest.raises(CreditscopeError, match="no floor is known for dtype 'int8': use float16, bfloat16"):
        DiagnosticThresholds().floor_for("int8")


@pytest.mark.parametrize("name", list(DiagnosticThresholds.__dataclass_fields__))
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "50", None, True])
def test_a_threshold_is_finite_and_positive(name, value):
    assert f"threshold {name} must be" in refusal(lambda: DiagnosticThresholds(**{name: value}))


@pytest.mark.parametrize("name", ["stability_drift_ceiling", "concentration_share"])
def test_a_share_in_percent_is_refused(name):
    assert f"threshold {name} must be at most 1" in refusal(lambda: DiagnosticThresholds(**{name: 30.0}))
    assert getattr(DiagnosticThresholds(**{name: 1}), name) == 1
