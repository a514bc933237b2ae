"""D3 on simulated seeds: intervals cover what they say, and decisions err no more often than they may."""

from __future__ import annotations

import numpy as np
import pytest
from tests.trust.d3_simulation import MARGINS, N_TEST, simulate

REPETITIONS = 600
SLACK = 3 * (0.95 * 0.05 / (REPETITIONS * len(MARGINS))) ** 0.5


@pytest.mark.parametrize("n", [3, 5, 10])
def test_intervals_over_seeds_cover_and_wrong_decisions_are_rare(n):
    cells = [simulate(pp, n, REPETITIONS, np.random.default_rng([n, k])) for k, pp in enumerate(MARGINS)]
    assert np.mean([cell.covered for cell in cells]) > 0.95 - SLACK > 0.93
    for cell in cells:
        assert cell.wrong < 0.05  # one side of a 95 % interval errs in 2.5 %
        assert cell.label == f"paired t over {n} seeds"
    if n == 10:
        assert cells[-1].undecided < 0.05
        assert cells[0].undecided < 0.2


def test_one_network_covers_itself_only_and_says_so():
    cell = simulate(1.0, 1, REPETITIONS, np.random.default_rng(1))
    assert cell.label == "binomial, this network only"
    assert cell.covered_network > 0.95 - 4 * (0.95 * 0.05 / REPETITIONS) ** 0.5
    assert cell.covered < 0.93  # other seeds are another matter


def test_a_point_comparison_decides_often_and_wrongly():
    cell = simulate(2.0, 1, REPETITIONS, np.random.default_rng(2), n_test=None)
    assert cell.undecided == 0
    assert cell.wrong > 0.3
    assert cell.label == "point comparison"
    assert N_TEST == 10_000
