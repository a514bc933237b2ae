"""t-intervals against tabulated quantiles, and numbers in words."""

import math

import pytest

from creditscope.protocol.intervals import t_interval
from creditscope.protocol.wording import compared, number


def test_t_interval_of_one_two_three():
    # Mean 2, standard deviation 1, t.975 with 2 degrees of freedom = 4.302653.
    low, high = t_interval([1.0, 2.0, 3.0]) or (math.nan, math.nan)
    assert low == pytest.approx(2 - 4.302653 / math.sqrt(3), rel=1e-6)
    assert high == pytest.approx(2 + 4.302653 / math.sqrt(3), rel=1e-6)


def test_t_interval_of_two_values():
    # Mean 11, standard error 1, t.975 with 1 degree of freedom = 12.70620.
    assert t_interval([10.0, 12.0]) == pytest.approx((11 - 12.70620, 11 + 12.70620), abs=1e-5)


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e9, 1e300])
def test_t_interval_does_not_overflow_or_underflow(scale):
    expected = (2 - 2.484138) * scale, (2 + 2.484138) * scale
    assert t_interval([1 * scale, 2 * scale, 3 * scale]) == pytest.approx(expected, rel=1e-5, abs=0)


@pytest.mark.parametrize("values", [(), (1.0,), (1.0, math.nan), (1.0, math.inf)])
def test_no_interval(values):
    assert t_interval(values) is None


def test_equal_values_have_no_width():
    assert t_interval([0.0, 0.0]) == (0.0, 0.0)
    assert t_interval([7.0, 7.0, 7.0]) == (7.0, 7.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.2e-9, "4.2e-09"),
        (50.0, "50"),
        (18_000.0, "18,000"),
        (2.5e8, "2.5e+08"),
        (0.31, "0.31"),
        (0.0, "0"),
        (-3.9, "-3.9"),
    ],
)
def test_numbers_in_sentences(value, text):
    assert number(value) == text


def test_a_comparison_shows_enough_digits():
    assert compared(4.2e-9, 1e-7) == "4.2e-09 < 1e-07"
    assert compared(50.0001, 50.0) == "50.0001 > 50"
    assert compared(1234.4, 1234.0) == "1,234.4 > 1,234"
    assert compared(2.0, 2.0) == "2 = 2"
