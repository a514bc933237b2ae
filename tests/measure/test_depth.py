"""Depth margins against intervals worked out by hand from tabulated quantiles."""

import math

import numpy as np
import pytest
from scipy import stats
from tests.known import known
from tests.refusals import refusal

from creditscope.measure.depth import accuracies, depth, depth_margin, seeds_to_decide

Z_975 = 1.959964
ROUNDING_PP = 1 / math.sqrt(6)
"""Standard deviation, in percentage points, of the difference of two accuracies that were rounded to whole percents."""
T_975 = {1: 12.70620, 2: 4.302653, 3: 3.182446}


def test_paired_t():
    # Differences .05, .06, .07: mean 6 pp, standard deviation 1 pp.
    fact = depth_margin([0.40, 0.42, 0.44], [0.35, 0.36, 0.37], null_kind="matched")
    half = T_975[2] / math.sqrt(3)
    assert fact.margin_pp == 6.0
    assert fact.low_pp == pytest.approx(6 - half, rel=1e-6)
    assert fact.high_pp == pytest.approx(6 + half, rel=1e-6)
    assert (fact.interval, fact.n, fact.null) == ("paired t over 3 seeds", 3, "matched")
    assert fact.accuracy == pytest.approx(0.42)
    assert fact.null_accuracy == pytest.approx(0.36)
    assert fact.binomial_se_pp is None


def test_pairing_follows_the_order_of_seeds():
    # Differences .05, .05 whatever the seeds do: no more width than rounding gives. In the other order .15 and -.05.
    straight = depth_margin([0.30, 0.40], [0.25, 0.35], null_kind="bp")
    assert straight.high_pp == pytest.approx(5 + T_975[1] * ROUNDING_PP / math.sqrt(2), rel=1e-6)
    crossed = depth_margin([0.40, 0.30], [0.25, 0.35], null_kind="bp")
    assert crossed.high_pp == pytest.approx(5 + T_975[1] * 10, rel=1e-6)


def test_binomial_error_is_printed_next_to_the_t_interval_and_not_added():
    without = depth_margin([0.5, 0.5], [0.4, 0.4], null_kind="matched")
    fact = depth_margin([0.5, 0.5], [0.4, 0.4], null_kind="matched", n_test=4900)
    assert fact.binomial_se_pp == pytest.approx(1.0)  # sqrt((.25 + .24) / 4900) = .01
    assert (fact.low_pp, fact.high_pp) == (without.low_pp, without.high_pp)


@pytest.mark.parametrize(
    ("trained", "frozen", "n_test", "step"),
    [
        ([0.36, 0.37, 0.38], [0.30, 0.31, 0.32], None, 0.01),  # stated to whole percents
        ([0.361, 0.372, 0.383], [0.301, 0.312, 0.323], None, 0.001),
        ([0.361, 0.372, 0.383], [0.301, 0.312, 0.323], 100, 0.01),  # no finer than one sample of the test set
        ([1.0, 1.0, 1.0], [0.94, 0.94, 0.94], None, 0.01),
        ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], None, 0.01),
    ],
)
def test_equal_rounded_margins_are_as_wide_as_the_rounding(trained, frozen, n_test, step):
    # Each accuracy is off by up to half a step, uniformly: variance step^2/12, of a difference step^2/6.
    fact = depth_margin(trained, frozen, null_kind="matched", n_test=n_test)
    half = T_975[2] * 100 * step / math.sqrt(6 * 3)
    assert fact.low_pp is not None
    assert (known(fact.high_pp) - fact.margin_pp, fact.margin_pp - fact.low_pp) == pytest.approx((half, half), rel=1e-6)


def test_rounding_adds_nothing_to_a_spread_that_is_larger():
    wide = depth_margin([0.40, 0.42, 0.44], [0.35, 0.36, 0.37], null_kind="matched", n_test=10_000)
    assert wide.low_pp == pytest.approx(6 - T_975[2] / math.sqrt(3), rel=1e-6)


def test_welch():
    # Squared errors .0016/4 and .0008/2 are equal, so df = 4 / (1/3 + 1/1) = 3 and the error is sqrt(.0008).
    d = math.sqrt(0.0012)
    fact = depth_margin([0.5 - d, 0.5 + d, 0.5 - d, 0.5 + d], [0.30, 0.34], null_kind="matched")
    half = 100 * T_975[3] * math.sqrt(0.0008)
    assert fact.margin_pp == pytest.approx(18.0)
    assert fact.low_pp == pytest.approx(18 - half, rel=1e-6)
    assert fact.high_pp == pytest.approx(18 + half, rel=1e-6)
    assert fact.interval == "Welch t, 4 against 2 seeds (not paired)"
    assert fact.n == 4


def test_welch_without_any_spread_is_as_wide_as_the_rounding():
    fact = depth_margin([0.5, 0.5, 0.5], [0.4, 0.4], null_kind="matched")
    parts = [(1 / 12 / n, n) for n in (3, 2)]  # in squared percentage points
    error = sum(part for part, _ in parts)
    freedom = error**2 / sum(part**2 / (n - 1) for part, n in parts)
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(error)
    assert (fact.low_pp, fact.high_pp) == pytest.approx((10 - half, 10 + half), rel=1e-6)


@pytest.mark.parametrize(
    ("right", "wrong", "low", "high"),
    [(9, 3, 0.1705, 0.8090), (0, 0, -0.2775, 0.2775), (10, 0, 0.6075, 1.0)],
)
def test_newcombes_own_examples(right, wrong, low, high):
    # Newcombe 1998, table II, method 10: 9/10 - 3/10, 0/10 - 0/10, 10/10 - 0/10
    fact = depth_margin(right / 10, wrong / 10, null_kind="matched", n_test=10)
    assert (fact.low_pp, fact.high_pp) == pytest.approx((100 * low, 100 * high), abs=0.006)


def score_ends(share, n):
    """The ends of the score interval as roots of (share - x)^2 = z^2 x (1 - x) / n."""
    z2 = Z_975**2 / n
    return sorted(np.roots([1 + z2, -(2 * share + z2), share**2]))


def newcombe_pp(p, q, n):
    (p_low, p_high), (q_low, q_high) = score_ends(p, n), score_ends(q, n)
    low = p - q - math.sqrt((p - p_low) ** 2 + (q_high - q) ** 2)
    return 100 * low, 100 * (p - q + math.sqrt((p_high - p) ** 2 + (q - q_low) ** 2))


def test_the_evaluation_samples_stand_in_for_the_test_set():
    for accuracy, null in ((0.36, 0.30), (0.615, 0.349), (1.0, 0.0)):
        fact = depth_margin(accuracy, null, null_kind="kind unstated", n_eval=1024)
        assert (fact.low_pp, fact.high_pp) == pytest.approx(newcombe_pp(accuracy, null, 1024), rel=1e-6)
        assert fact.from_evaluation
        assert fact.interval == ("binomial, this network only; n_test not given, so from the 1,024 evaluation samples")
        assert fact.binomial_se_pp is None
    known = depth_margin(0.36, 0.30, null_kind="kind unstated", n_eval=1024, n_test=10_000)
    assert not known.from_evaluation
    assert (known.low_pp, known.high_pp) == pytest.approx(newcombe_pp(0.36, 0.30, 10_000), rel=1e-6)


@pytest.mark.parametrize("single", [0.31, [0.31], np.float32(0.31), np.array(0.31), np.array([0.31])])
def test_one_network_with_a_known_test_set(single):
    fact = depth_margin(single, 0.349, null_kind="kind unstated", n_test=10_000)
    se = 100 * math.sqrt((0.31 * 0.69 + 0.349 * 0.651) / 10_000)
    assert fact.margin_pp == pytest.approx(-3.9, abs=1e-5)
    assert fact.binomial_se_pp == pytest.approx(se, rel=1e-5)
    assert (fact.low_pp, fact.high_pp) == pytest.approx(newcombe_pp(0.31, 0.349, 10_000), rel=1e-5)
    assert (fact.interval, fact.n) == ("binomial, this network only", 1)


@pytest.mark.parametrize("nulls", [[0.3, 0.4, 0.5], [0.3, 0.5]])
def test_one_network_against_several_nulls_uses_their_mean_and_says_so(nulls):
    fact = depth_margin(0.5, nulls, null_kind="matched", n_test=4900)
    assert fact.null_accuracy == pytest.approx(0.4)
    assert fact.high_pp == pytest.approx(newcombe_pp(0.5, 0.4, 4900)[1], rel=1e-6)
    assert fact.interval == f"binomial, this network only (null: mean of {len(nulls)} networks)"


def test_several_networks_against_one_null():
    fact = depth_margin([0.45, 0.55], 0.4, null_kind="matched", n_test=4900)
    assert fact.high_pp == pytest.approx(newcombe_pp(0.5, 0.4, 4900)[1], rel=1e-6)
    assert fact.interval == "binomial, this null network only (accuracy: mean of 2 networks)"
    assert fact.n == 2


@pytest.mark.parametrize(("headline", "null"), [(0.31, 0.35), ([0.3, 0.32], 0.35), (0.31, [0.35, 0.35])])
def test_point_comparison_where_nothing_else_is_possible(headline, null):
    fact = depth_margin(headline, null, null_kind="matched")
    assert (fact.low_pp, fact.high_pp, fact.binomial_se_pp) == (None, None, None)
    assert fact.interval == "point comparison"
    assert fact.margin_pp == -4.0


@pytest.mark.parametrize(("headline", "null"), [(0.36, 0.34), (0.37, 0.35), (0.12, 0.10), (0.91, 0.89)])
def test_two_points_are_two_points(headline, null):
    # .36 - .34 is 1.9999999999999962 pp in floating point, which would miss the threshold of D3.
    assert depth_margin(headline, null, null_kind="matched").margin_pp == 2.0


def test_ends_of_the_range_are_accuracies():
    fact = depth_margin(1, 0, null_kind="matched", n_test=1)
    assert (fact.margin_pp, fact.high_pp) == (100.0, 100.0)
    assert known(fact.low_pp) < 2  # one sample decides nothing


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (31.0, "must be in [0, 1], got 31: is it in percent? Give 0.31"),
        ([0.3, 34.9], "must be in [0, 1], got 34.9: is it in percent? Give 0.349"),
        (-0.1, "must be in [0, 1], got -0.1"),
        (310, "must be in [0, 1], got 310"),
        (math.inf, "must be in [0, 1], got inf"),
        (math.nan, "is NaN"),
        ([0.3, math.nan], "is NaN"),
        ([], "empty"),
        ("0.31", "must be a number in [0, 1] or one per seed"),
        (["0.31"], "must hold numbers in [0, 1], got '0.31'"),
        ([[0.3]], "must hold numbers in [0, 1], got [0.3]"),
        (True, "must hold numbers in [0, 1], got True"),
        (None, "must be a number in [0, 1] or one per seed"),
        ({"matched": 0.3}, "must be a number in [0, 1] or one per seed"),
    ],
)
def test_what_is_not_an_accuracy_is_one_line(value, message):
    told = refusal(lambda: accuracies(value, "headline_acc"))
    assert told.startswith("headline_acc ")
    assert message in told


@pytest.mark.parametrize("n_test", [0, -5, 10.5, "many", True])
def test_n_test_must_be_a_positive_integer(n_test):
    assert "n_test must be" in refusal(lambda: depth_margin(0.3, 0.3, null_kind="matched", n_test=n_test))


def test_depth_without_a_null():
    assert depth(0.31, None, 100, 0.6) is None
    assert depth(0.31, {}, None, None) is None
    assert depth(None, None, None, None) is None


def test_depth_of_a_bare_number_is_of_unstated_kind():
    fact = depth(0.31, 0.349, None, 0.6)
    assert fact is not None
    assert [m.null for m in fact.margins] == ["kind unstated"]
    assert fact.margins[0].margin_pp == -3.9
    assert fact.bp_margin is None


def test_depth_to_both_nulls_and_of_bp():
    fact = depth([0.40, 0.42, 0.44], {"bp": [0.39, 0.39, 0.39], "matched": [0.35, 0.36, 0.37]}, None, [0.6, 0.6, 0.6])
    assert fact is not None
    assert [(m.null, m.margin_pp) for m in fact.margins] == [("matched", 6.0), ("bp", 3.0)]
    assert fact.bp_margin is not None
    assert (fact.bp_margin.null, fact.bp_margin.margin_pp) == ("bp", 21.0)


def test_bp_is_compared_to_the_bp_null_only():
    for baselines in (0.3, {"matched": 0.3}, {"matched": 0.3, "bp": None}):
        fact = depth(0.31, baselines, None, 0.6)
        assert fact is not None
        assert fact.bp_margin is None
        assert len(fact.margins) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.3, {"frozen": 0.3}, None, None), "unknown key 'frozen'"),
        ((None, 0.3, None, None), "without headline_acc"),
        ((0.3, {"bp": 39.5}, None, None), 'frozen_baseline_acc["bp"] must be in [0, 1]'),
        ((0.3, 0.3, None, 61.0), "bp_acc must be in [0, 1], got 61: is it in percent? Give 0.61"),
        ((31.0, None, None, None), "headline_acc must be in [0, 1]"),
        ((0.3, None, 0, None), "n_test must be at least 1"),
    ],
)
def test_bad_input_to_depth_is_one_line(arguments, message):
    assert message in refusal(lambda: depth(*arguments))


def test_how_many_more_seeds_would_decide():
    """Gains of 4, 5 and 9 pp: spread sqrt(7) pp, 4 pp above the threshold of 2: five seeds, by t(3) and t(4) from a table."""
    margin = depth_margin([0.35, 0.36, 0.40], [0.31, 0.31, 0.31], null_kind="matched")
    assert 3.182 * 7**0.5 / 4**0.5 > 4 > 2.776 * 7**0.5 / 5**0.5
    assert seeds_to_decide(margin, 2.0) == 2
    assert seeds_to_decide(margin, -20.0) == 0
    assert seeds_to_decide(margin, 6.0) is None  # the margin is the threshold
    assert seeds_to_decide(depth_margin(0.35, 0.31, null_kind="matched", n_test=1000), 2.0) is None
