"""No wrong number from any odd network: exact, or refused in one line."""

from __future__ import annotations

import pytest
from tests.trust.odd_networks import CASES, judged


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_an_odd_network_is_measured_exactly_or_refused(case):
    found = judged(case)
    assert found.outcome != "wrong", found.line


def test_the_zoo_is_large_and_covers_every_kind_of_defect():
    assert len({case.name for case in CASES}) == len(CASES) >= 80
    assert {k for case in CASES for k in case.classes} >= set(range(1, 12))


@pytest.mark.slow
def test_few_networks_are_refused_where_measuring_was_possible():
    found = [judged(case) for case in CASES]
    gaps = [f"{one.name}: {one.line}" for one in found if one.gap]
    assert len(gaps) < 0.1 * len(found), gaps
