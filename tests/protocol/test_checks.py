"""Every check with a known-good and a known-bad network, every answer, and the exact thresholds."""

import math

import pytest
from pydantic import ValidationError
from tests.known import known

from creditscope.measure.facts import Depth
from creditscope.protocol import (
    DiagnosticThresholds,
    check_depth,
    check_reference,
    check_scale,
    check_stability,
    run_checks,
)

from .factory import make_facts, margin

T = DiagnosticThresholds()
UP, DOWN = math.inf, -math.inf


# D1 scale stability


@pytest.mark.parametrize(
    ("growth", "answer"),
    [(1.3, "pass"), (18_000.0, "fail"), (50.0, "pass"), (math.nextafter(50, UP), "fail"), (0.0, "pass")],
)
def test_scale(growth, answer):
    check = check_scale(make_facts(growth=growth), T)
    assert check.answer == answer
    assert (check.id, check.name, check.source) == ("D1", "scale stability", "(a)")
    assert (check.value, check.threshold) == (growth, 50)
    assert (check.interval, check.interval_kind) == (None, "point comparison")


def test_scale_sentence():
    check = check_scale(make_facts(growth=18_000.0), T)
    assert check.sentence == (
        "growth max_l ‖h_l+1‖/‖h_l‖ = 18,000 > 50 at l = 2 (raw norms, mean over 1,024 samples, float32): "
        "the stream explodes within one block"
    )
    assert check.reason == "growth above the threshold"


def test_scale_with_groups():
    # 10 ± 12.7062: [-2.7, 22.7] is below 50; 45 ± 12.7: straddles; 70 ± 12.7: above.
    for centre, answer in ((10.0, "pass"), (45.0, "inconclusive"), (55.0, "inconclusive"), (70.0, "fail")):
        check = check_scale(make_facts(growth=centre, growth_by_group=(centre - 1, centre + 1)), T)
        assert check.answer == answer
        assert check.interval == pytest.approx((centre - 12.7062, centre + 12.7062), abs=1e-4)
        assert check.interval_kind == "t over 2 groups of 128 samples"
    assert (
        check_scale(make_facts(growth=45.0, growth_by_group=(44, 46)), T).reason == "interval straddles the threshold"
    )


def test_scale_at_the_edges_of_its_interval():
    assert check_scale(make_facts(growth=50.0, growth_by_group=(50.0, 50.0)), T).answer == "pass"
    # The fact is pooled, the interval is over groups: if they disagree nothing is decided.
    assert check_scale(make_facts(growth=51.0, growth_by_group=(49.0, 49.0)), T).answer == "inconclusive"


@pytest.mark.parametrize(
    ("mean", "growth", "answer", "reason"),
    [
        ((0.0, *(16.0,) * 4), math.inf, "fail", "h_0 is zero for every sample, so growth out of it is infinite"),
        ((0.0,) * 5, math.nan, "not measurable", "every state is zero"),
    ],
)
def test_a_state_of_zeros_is_no_divergence(mean, growth, answer, reason):
    facts = make_facts()
    scale = facts.scale.model_copy(update={"mean": mean, "growth": growth, "total_growth": growth, "growth_at": 0})
    check = check_scale(facts.model_copy(update={"scale": scale}), T)
    assert (check.answer, check.reason, check.diverged) == (answer, reason, False)
    assert check.sentence.endswith(reason)


# D2 reference validity


@pytest.mark.parametrize(
    ("g", "dtype", "answer"),
    [
        (4e-4, "float32", "pass"),
        (4.2e-9, "float32", "fail"),
        (0.0, "float32", "fail"),
        (1e-7, "float32", "pass"),
        (math.nextafter(1e-7, DOWN), "float32", "fail"),
        (3e-7, "bfloat16", "pass"),
        (3e-7, "float64", "pass"),
        (3e-7, "float16", "fail"),
        (10 * 2.0**-24, "float16", "pass"),
    ],
)
def test_reference(g, dtype, answer):
    check = check_reference(make_facts(g_128=g, dtype=dtype), T)
    assert check.answer == answer
    assert (check.id, check.name, check.source, check.value) == ("D2", "reference validity", "(b)", g)


def test_reference_sentence():
    check = check_reference(make_facts(g_128=4.2e-9), T)
    assert check.sentence == (
        "mean per-sample ‖g_L‖ / 128 = 4.2e-09 < 1e-07 (batch-mean convention, B = 128, float32): "
        "the reference gradient sits at the numerical floor; Γ is withheld even where a clamped and an unclamped cosine print "
        "the same number, because both are angles to a gradient that has all but vanished"
    )
    assert check.convention == "batch-mean convention, B = 128, float32"


def test_reference_with_groups():
    # Standard error 1e-9, so the interval is ± 1.27062e-8, in the batch-mean convention.
    for centre, answer in ((8e-8, "fail"), (9.5e-8, "inconclusive"), (1.05e-7, "inconclusive"), (1.2e-7, "pass")):
        check = check_reference(make_facts(g_128=centre, g_128_by_group=(centre - 1e-9, centre + 1e-9)), T)
        assert check.answer == answer
        assert check.interval == pytest.approx((centre - 1.27062e-8, centre + 1.27062e-8), rel=1e-4)


# D3 depth utility


@pytest.mark.parametrize(
    ("pp", "interval", "answer"),
    [
        (10.0, None, "pass"),
        (-3.9, None, "fail"),
        (2.0, None, "pass"),
        (math.nextafter(2, DOWN), None, "fail"),
        (10.0, (8.0, 12.0), "pass"),
        (-3.9, (-5.0, -2.8), "fail"),
        (3.0, (2.0, 4.0), "pass"),
        (3.0, (1.99, 4.01), "inconclusive"),
        (1.0, (0.01, 1.99), "fail"),
        (1.0, (0.0, 2.0), "inconclusive"),
    ],
)
def test_depth(pp, interval, answer):
    check = check_depth(make_facts(depth=Depth(margins=(margin(pp, interval=interval),))), T)
    assert (check.answer, check.value, check.interval, check.threshold) == (answer, pp, interval, 2.0)
    assert (check.id, check.name, check.source) == ("D3", "depth utility", "(d)")


def test_depth_sentence():
    fact = Depth(margins=(margin(-4.0, interval=(-5.0, -3.0)),))
    assert check_depth(make_facts(depth=fact), T).sentence == (
        "accuracy 26.00 % - null 30.00 % = -4 pp < 2 pp (matched null; paired t over 3 seeds): "
        "the trained blocks do not beat random blocks"
    )


@pytest.mark.parametrize(
    ("nulls", "used"),
    [
        (("bp", "matched"), "matched"),
        (("bp", "kind unstated"), "kind unstated"),
        (("kind unstated", "matched"), "matched"),
        (("bp",), "bp"),
    ],
)
def test_depth_uses_the_matched_null_first_and_says_which(nulls, used):
    fact = Depth(margins=tuple(margin(10.0 if null == used else -10.0, null) for null in nulls))
    check = check_depth(make_facts(depth=fact), T)
    assert check.answer == "pass"
    name = "null of unstated kind" if used == "kind unstated" else f"{used} null"
    assert check.convention.startswith(f"{name}; ")
    assert f"({name}; " in check.sentence


@pytest.mark.parametrize("fact", [None, Depth(margins=())])
def test_depth_without_a_null_is_not_measured(fact):
    check = check_depth(make_facts(depth=fact), T)
    assert (check.answer, check.value) == ("not measured", None)
    assert check.reason == "no null (random-blocks baseline) was given"


@pytest.mark.parametrize(
    ("bp_pp", "answer"), [(-11.2, "not measurable"), (1.99, "not measurable"), (2.0, "pass"), (20.0, "pass")]
)
def test_depth_is_not_measurable_where_bp_does_not_beat_its_null(bp_pp, answer):
    # StudentNet: frozen .908, BP .796. BP's margin is a point comparison, whatever its interval.
    fact = Depth(margins=(margin(10.0),), bp_margin=margin(bp_pp, "bp", interval=(bp_pp - 30, bp_pp + 30)))
    check = check_depth(make_facts(depth=fact), T)
    assert check.answer == answer
    if answer == "not measurable":
        assert "the task cannot show depth utility" in check.sentence
        assert check.reason == "BP itself does not beat its null by 2 pp"


# C direction stability


@pytest.mark.parametrize(
    ("stability", "answer", "word"),
    [
        (0.99, "fail", "drift-dominated (interpretive only)"),
        (0.02, "pass", "noise-dominated or sample-specific (interpretive only)"),
        (-0.04, "pass", "noise-dominated"),
        (0.30, "pass", "noise-dominated"),
        (math.nextafter(0.30, UP), "fail", "drift-dominated"),
    ],
)
def test_stability(stability, answer, word):
    check = check_stability(make_facts(stability=stability), T)
    assert (check.id, check.source, check.answer, check.value) == ("C", "(c)", answer, stability)
    assert word in check.sentence
    assert check.reason == ("drift-dominated" if answer == "fail" else "")
    assert check.interval_kind == "point comparison"
    assert "8 groups of 128 samples" in check.convention


def test_stability_needs_two_batches():
    check = check_stability(make_facts(stability=None, groups=1), T)
    assert (check.answer, check.reason, check.value) == ("not measured", "needs 2 batches, 8 advised", None)
    assert check.sentence.endswith("needs 2 batches, 8 advised")


def test_stability_without_directions_is_not_measurable():
    check = check_stability(make_facts(stability=None, groups=8, stability_reason="g_L is zero"), T)
    assert (check.answer, check.reason) == ("not measurable", "g_L is zero")
    unexplained = check_stability(make_facts(stability=None, groups=2), T)
    assert (unexplained.answer, unexplained.reason) == ("not measurable", "a group has no gradient direction")
    assert unexplained.interval_kind == "none"


# NaN and Inf


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ({"non_finite": ("weights", "h_3")}, "weights, h_3"),
        ({"growth": math.nan}, "growth"),
        ({"growth": math.inf}, "growth"),
        ({"growth_by_group": (1.0, math.nan)}, "growth"),
        ({"g_128": math.nan}, "‖g‖"),
        ({"g_128": math.inf}, "‖g‖"),
        ({"g_128_by_group": (math.inf, 1e-4)}, "‖g‖"),
        ({"stability": math.nan}, "stability"),
        ({"accuracy": math.nan}, "accuracy"),
        ({"cosines": (math.nan, 0.1, 0.1, 0.1, 0.1)}, "cosine, headline Γ"),
    ],
)
def test_a_diverged_network_never_passes_and_never_crashes(broken, where):
    d1, d2, d3, c = run_checks(make_facts(**broken), T)
    assert (d1.answer, d2.answer, d3.answer, c.answer) == ("fail", "fail", "pass", "not measurable")
    for check in (d1, d2, c):
        assert check.reason == f"diverged: {where}"
        assert check.diverged


def test_a_margin_that_is_not_finite_fails():
    check = check_depth(make_facts(depth=Depth(margins=(margin(math.nan),))), T)
    assert (check.answer, check.reason) == ("fail", "diverged: depth margin")


# All of them


def test_run_checks_in_order():
    assert [check.id for check in run_checks(make_facts(), T)] == ["D1", "D2", "D3", "C"]


def test_thresholds_of_the_user_are_used():
    loose = DiagnosticThresholds(
        g_norm_floor=1e-10, h_norm_explosion_ratio=1e6, stability_drift_ceiling=0.9, frozen_acc_margin_pp=0.5
    )
    facts = make_facts(growth=1e4, g_128=4e-9, stability=0.5, depth=Depth(margins=(margin(1.0),)))
    assert [check.answer for check in run_checks(facts, T)] == ["fail"] * 4
    assert [check.answer for check in run_checks(facts, loose)] == ["pass"] * 4
    assert [check.threshold for check in run_checks(facts, loose)] == [1e6, 1e-10, 0.5, 0.9]


def test_a_check_is_immutable_and_survives_json():
    check = check_scale(make_facts(growth=math.nan), T)
    with pytest.raises(ValidationError):
        check.answer = "pass"
    again = type(check).model_validate_json(check.model_dump_json())
    assert math.isnan(known(again.value))
    assert again.sentence == check.sentence


def test_the_interval_of_d3_is_told_no_further_than_100_points():
    said = check_depth(make_facts(depth=Depth(margins=(margin(10.0, interval=(-117.0, 137.0)),))), T).sentence
    assert "the 95 % interval [-100, 100], cut at the possible range does not decide" in said
