"""Reporting strategies on the published cases and on every undecidable one."""

import math

import numpy as np
import pytest

from creditscope.errors import CreditscopeError
from creditscope.protocol import STRATEGIES, V1_COLUMNS, Answer, Case, accuracy_interval, decide

HEALTHY: dict[str, Answer] = {"D1": "pass", "D2": "pass", "D3": "pass", "C": "pass"}


def case(gamma=0.1, accuracy=0.306, **answers):
    return Case(accuracy=accuracy, chance=0.1, gamma=gamma, answers={**HEALTHY, **answers})


def test_interval_over_seeds():
    # Mean .3, standard deviation .01: ± 4.302653 x .01 / sqrt(3).
    interval = accuracy_interval([0.29, 0.30, 0.31], n_test=100)
    half = 4.302653 * 0.01 / math.sqrt(3)
    assert (interval.mean, interval.low, interval.high) == pytest.approx((0.3, 0.3 - half, 0.3 + half), rel=1e-6)
    assert interval.kind == "t over 3 seeds"


def test_interval_of_one_network():
    interval = accuracy_interval(0.2, n_test=1600)
    # the shares from which .2 is 1.96 standard errors away: (.2 - x)^2 = z^2 x (1 - x) / 1600
    z2 = 1.959964**2 / 1600
    low, high = sorted(np.roots([1 + z2, -(0.4 + z2), 0.04]))
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-6)
    assert interval.kind == "binomial, this network only"


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
def test_an_accuracy_of_0_or_1_has_an_interval_with_a_width(accuracy):
    one = accuracy_interval(accuracy, n_test=100)
    seeds = accuracy_interval([accuracy] * 3)
    for interval in (one, seeds):
        assert interval.high - interval.low > 0.01
    # three accuracies rounded to whole percents: a standard deviation of .01/sqrt(12) at least
    assert seeds.high - seeds.mean == pytest.approx(4.302653 * 0.01 / math.sqrt(36), rel=1e-6)


def test_point():
    interval = accuracy_interval([0.2])
    assert (interval.low, interval.high, interval.kind) == (0.2, 0.2, "point comparison")


@pytest.mark.parametrize(
    ("accuracy", "n_test", "decision"),
    [
        (0.306, None, "accept"),
        (0.10, None, "reject"),
        (0.11, None, "accept"),
        (0.11, 100, "reject"),  # .11 - 1.96 x .0313 = .049
        (0.11, 100_000, "accept"),  # .11 - 1.96 x .00099 = .108
        ([0.12, 0.20], None, "reject"),  # .16 - 12.7 x .04 < 0
        ([0.28, 0.30, 0.29], None, "accept"),
        (0.05, None, "reject"),
        (None, None, "not decidable"),
    ],
)
def test_s0(accuracy, n_test, decision):
    assert STRATEGIES["S0"](Case(accuracy=accuracy, chance=0.1, n_test=n_test)) == decision


@pytest.mark.parametrize(
    ("gamma", "decision"),
    [(0.1, "accept"), (0.0, "reject"), (-0.1, "reject"), (math.nan, "reject"), (None, "not decidable")],
)
def test_s1(gamma, decision):
    assert STRATEGIES["S1"](case(gamma)) == decision
    assert STRATEGIES["S1"](case(gamma, accuracy=0.1)) == "reject"


@pytest.mark.parametrize(
    ("d1", "d2", "decision"),
    [
        ("fail", "fail", "reject"),
        ("fail", "pass", "accept"),
        ("pass", "fail", "accept"),
        ("inconclusive", "pass", "accept"),
        ("inconclusive", "fail", "not decidable"),
        ("not measured", "not measured", "not decidable"),
    ],
)
def test_s2(d1, d2, decision):
    assert STRATEGIES["S2"](case(D1=d1, D2=d2)) == decision


@pytest.mark.parametrize("answer", ["inconclusive", "not measurable", "not measured"])
def test_s3(answer):
    assert STRATEGIES["S3"](case()) == "accept"
    assert STRATEGIES["S3"](case(D3="fail")) == "reject"
    assert STRATEGIES["S3"](case(D3=answer)) == "not decidable"
    assert STRATEGIES["S3"](case(D1="fail", D2="fail", D3=answer)) == "reject"
    assert STRATEGIES["S3"](case(D1=answer, D2="fail", D3="fail")) == "reject"


def test_table_4_of_the_final_paper():
    dfa = case(gamma=0.10, D1="fail", D2="fail", D3="fail")
    fa = case(gamma=0.48, accuracy=0.345, D3="fail")
    assert list(decide(dfa).values()) == ["accept", "accept", "reject", "reject"]
    assert list(decide(fa).values()) == ["accept", "accept", "accept", "reject"]
    assert set(decide(case(gamma=1.0, accuracy=0.61)).values()) == {"accept"}


def test_seven_columns_of_v1():
    def walked_back(**answers):
        return [name for name, decision in decide(case(**answers), V1_COLUMNS).items() if decision == "reject"]

    assert list(V1_COLUMNS) == ["S0", "S1", "+(a)", "+(b)", "+(c)", "+(d)", "full"]
    assert walked_back() == []  # BP
    assert walked_back(D1="fail", D2="fail", D3="fail") == ["+(a)", "+(b)", "+(d)", "full"]  # DFA
    bridge = walked_back(D1="fail", D2="fail", C="fail", D3="fail")
    assert bridge == ["+(a)", "+(b)", "+(c)", "+(d)", "full"]
    assert walked_back(C="fail") == ["+(c)"]  # (c) does not walk back in the full protocol
    assert walked_back(D3="fail") == ["+(d)", "full"]  # EP, taken literally


def test_missing_answers_are_not_decidable():
    unjudged = Case(accuracy=0.3, chance=0.1, gamma=0.1)
    assert list(decide(unjudged).values()) == ["accept", "accept", "not decidable", "not decidable"]


@pytest.mark.parametrize("bad", [{"chance": 10.0}, {"accuracy": 30.6}, {"n_test": 0}])
def test_bad_numbers_are_one_line(bad):
    with pytest.raises(CreditscopeError):
        decide(Case(**{"accuracy": 0.3, "chance": 0.1, **bad}))
