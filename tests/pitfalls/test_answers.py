"""What the catalogue answers of reports whose facts are made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from creditscope.measure.concentration import concentration
from creditscope.measure.facts import Aggregate, Facts
from creditscope.pitfalls import get_pitfall, pf05_aggregation
from creditscope.pitfalls.base import Answer
from creditscope.pitfalls.evidence import Evidence
from creditscope.protocol import DiagnosticThresholds, judge
from creditscope.protocol.report import make_report
from creditscope.stream.notes import GIVEN_AS_ARRAYS
from creditscope.training.spec import make_spec

from ..protocol.factory import make_facts


def test_aggregations_are_shown_with_their_extremes():
    near = Aggregate(
        headline=0.657, concat=0.445, norm_weighted=0.517, flattened=0.5, clamped_128=0.6, spread=0.2, sign_flips=False
    )
    assert pf05_aggregation.extremes(near) == (("concatenated", 0.445), ("mean of layers", 0.657))
    assert pf05_aggregation.disagreement(near) is None
    far = near.model_copy(update={"concat": -0.2})
    assert str(pf05_aggregation.disagreement(far)).startswith(
        "the sign of Γ depends on the aggregation: concatenated -0.200"
    )


@pytest.mark.parametrize(
    ("values", "status", "says"),
    [
        ((-0.019, 0.001, -0.009, -0.012), "clear", "all aggregations lie within ±0.05 of 0: "),  # was "15.1-fold"
        ((-0.049, 0.049, 0.0, 0.02), "clear", "all aggregations lie within ±0.05 of 0: "),
        ((0.05, 0.01, 0.03, 0.04), "found", "Γ depends on the aggregation 5.0-fold: "),
        ((-0.02, 0.3, 0.2, 0.2), "found", "the sign of Γ depends on the aggregation: "),
        ((-0.06, 0.02, 0.01, -0.01), "found", "the sign of Γ depends on the aggregation: "),
        ((0.3, 0.2, 0.25, 0.25), "clear", "the aggregations agree within a factor of 2: "),
    ],
)
def test_a_ratio_of_numbers_near_zero_is_no_pitfall(values, status, says):
    names = ("norm_weighted", "flattened", "headline", "concat")
    fact = Aggregate(**dict(zip(names, values, strict=True)), clamped_128=0.0, spread=0.0, sign_flips=False)
    answer = answer_of(5, make_facts(cosines=(0.3,) * 5).model_copy(update={"aggregate": fact}))
    assert (answer.status, answer.sentence.startswith(says)) == (status, True), answer


@pytest.mark.parametrize(
    ("cosines", "status", "says"),
    [
        ((0.9, 0.1, 0.1, 0.1, 0.05), "clear", "no layer carries more than 29% of"),  # .1 / .35: layer 0 does not count
        ((0.1, 0.9, 0.1, 0.05, 0.05), "found", "layer 1 carries 82% of"),  # .9 / 1.1
        ((0.9, 0.09, 0.01, 0.01, 0.0), "found", "layer 1 carries 82% of"),  # Γ .22
        ((-0.01, 0.09, 0.01, 0.01, 0.0), "clear", "all aggregations of Γ lie within ±0.05 of 0: "),
    ],
)
def test_the_layer_that_carries_gamma_is_one_that_counts(cosines, status, says):
    """The rule and the layer of Mode 2."""
    spread = concentration(cosines, (), counting=(1, 2, 3, 4))
    facts = make_facts(cosines=cosines).model_copy(update={"concentration": spread})
    answer = answer_of(6, facts)
    assert (answer.status, answer.sentence.startswith(says)) == (status, True), answer
    assert ("Mode 2" in judge(facts, DiagnosticThresholds()).mode) is (status == "found")


def test_two_layers_have_no_share():
    facts = make_facts(cosines=(0.3,) * 5)
    facts = facts.model_copy(update={"concentration": concentration((0.3,) * 5, (), counting=(1, 2))})
    assert answer_of(6, facts).sentence.startswith("no share is computed: it needs 3 layers that count")


def test_one_norm_of_a_whole_tensor_has_no_spread_over_samples():
    facts = make_facts(cosines=(0.3,) * 5)
    equal = facts.scale.model_copy(update={"median": facts.scale.mean})
    spread = facts.scale.model_copy(update={"median": tuple(0.9 * v for v in facts.scale.mean)})
    found = [answer_of(1, facts.model_copy(update={"scale": scale})) for scale in (spread, equal)]
    assert [answer.status for answer in found] == ["clear", "cannot be told"]
    assert found[0].sentence.startswith(
        "‖h_l‖ is taken per sample over all its features; mean and median over samples differ"
    )


@pytest.mark.parametrize(
    ("cosines", "status"), [((0.007, -0.071, 0.008, 0.0, 0.0), "clear"), ((0.42, 0.006, -0.015, 0.0, 0.0), "found")]
)
def test_no_layer_carries_an_alignment_that_is_not_there(cosines, status):
    assert answer_of(6, make_facts(cosines=cosines)).status == status


def answer_of(number: int, facts: Facts) -> Answer:
    spec = make_spec({"method": "dfa", "credit_norm": "none"})
    return get_pitfall(number).audit(Evidence(Path("mine.json"), spec, make_report(facts), None))


@pytest.mark.parametrize(
    ("arrays", "mode", "cosines", "samples_answer", "mode_answer"),
    [
        (False, "eval", (0.3,) * 5, "clear", "clear"),  # one pass of ours answers both questions
        (False, "eval", None, "cannot be told", "cannot be told"),  # no credit: nothing to compare
        (True, "unstated", (0.3,) * 5, "cannot be told", "cannot be told"),  # the author alone knows
        (True, "eval", (0.3,) * 5, "cannot be told", "clear"),  # the mode can be stated, the samples cannot
        (True, "train", (0.3,) * 5, "cannot be told", "found"),
        (False, "train", None, "cannot be told", "found"),
    ],
)
def test_samples_and_mode_are_answered_alike(arrays, mode, cosines, samples_answer, mode_answer):
    facts = make_facts(**({} if cosines is None else {"cosines": cosines}))
    change: dict[str, Any] = {"convention": facts.convention.model_copy(update={"mode": mode})}
    if arrays:
        change["stream"] = facts.stream.model_copy(update={"notes": (GIVEN_AS_ARRAYS,)})
    facts = facts.model_copy(update=change)
    assert [answer_of(number, facts).status for number in (8, 10)] == [samples_answer, mode_answer]
