"""No wrong verdict on any network of the zoo, under either policy."""

from __future__ import annotations

import math

import pytest
from tests.known import known
from tests.trust.networks import GROUPS, STABILITY, Network
from tests.trust.zoo import ZOO

from creditscope import diagnose
from creditscope.protocol import DiagnosticThresholds, judge

WORDS = {"?": "inconclusive", "-": "not measured", "x": "not measurable"}
CHECKED = {n.name: n for n in ZOO}


@pytest.mark.parametrize("name", CHECKED)
def test_truth_of_a_known_network(name):
    net: Network = CHECKED[name]
    report = net.report()
    answers = " ".join(report.checks[i].answer.replace(" ", "_") for i in ("D1", "D2", "D3", "C"))
    assert answers == " ".join(WORDS.get(w, w).replace(" ", "_") for w in net.checks.split())
    assert report.status == net.three, report.verdict.line
    assert net.mode in report.verdict.mode
    assert bool(report.verdict.mode) == bool(net.mode)
    assert report.verdict.gamma_withheld == net.withheld
    for start in net.warns:
        assert any(start in w for w in report.verdict.warnings), (start, report.verdict.warnings)

    four = judge(report.facts, DiagnosticThresholds(), "four-diagnostic")
    assert four.status == net.four, four.line
    assert (net.mode if net.four_mode is None else net.four_mode) in four.mode
    for check in report.verdict.checks:
        assert check.sentence
        assert check.answer == "pass" or check.reason, check.id


@pytest.mark.parametrize("name", [n.name for n in ZOO if n.growth is not None])
def test_numbers_of_a_known_network_are_those_of_its_construction(name):
    net = CHECKED[name]
    facts = diagnose(net.model(), net.batches(), credit=net.arguments()["credit"]).facts
    assert facts.scale.growth == pytest.approx(net.growth, rel=1e-2 if "16" in str(net.dtype) else 1e-5)
    if net.g_128 is not None:
        assert facts.reference.batch_mean_128[-1] == pytest.approx(net.g_128, rel=1e-4)
    if net.checks.split()[3] in ("pass", "fail") and "16" not in str(net.dtype):
        assert facts.stability.deepest == pytest.approx(STABILITY[net.y], abs=1e-6)
        assert facts.stability.groups == GROUPS
    if net.cosines is not None and facts.alignment is not None:
        expected = list(net.cosines) * (facts.stream.depth + 1) if len(net.cosines) == 1 else net.cosines
        if net.credit_size == 0 or net.epsilon == 0:
            assert facts.alignment.mean == (None,) * len(expected)
            assert facts.aggregate is not None
            assert facts.aggregate.headline is None
        else:
            assert facts.alignment.mean == pytest.approx(tuple(expected), abs=1e-6)
            assert known(facts.aggregate).headline == pytest.approx(math.fsum(expected) / len(expected), abs=1e-6)


def test_the_zoo_is_large_and_every_name_is_one_network():
    assert len(CHECKED) == len(ZOO) >= 24
