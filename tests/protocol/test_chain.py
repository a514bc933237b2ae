"""The walk-back chain on the published DFA (degenerate) and on a healthy network."""

import pytest

from creditscope.errors import CreditscopeError
from creditscope.measure.binomial import evaluation
from creditscope.measure.facts import Claim, Depth, Facts
from creditscope.protocol import DiagnosticThresholds, judge, walk_back_chain
from creditscope.protocol.chain import MEANINGS, s1
from creditscope.protocol.consistency import SAME_DATA, make_claim, reaches_chance
from creditscope.protocol.policies import MODE_2

from .factory import make_aggregate, make_facts, margin

T = DiagnosticThresholds()


def seen(facts: Facts, accuracy: float) -> Facts:
    """The facts with ten classes behind the evaluation samples, so that chance is .1."""
    return facts.model_copy(update={"evaluation": evaluation(accuracy, 1024, 10, None)})


DFA = make_facts(
    growth=2043.0,
    g_128=4.2e-9,
    cosines=(0.42, 0.006, -0.015, -0.004, -0.004),
    depth=Depth(margins=(margin(-4.3, interval=(-6.0, -3.0)),)),
)


def test_chain_of_a_degenerate_network():
    verdict = judge(DFA, T)
    claim, reference, blocks, mode = walk_back_chain(seen(DFA, 0.306), verdict, headline_acc=[0.306])
    assert claim.answer == "S1 accepts"
    assert claim.sentence == "accuracy 0.306 and Γ = +0.081: strategy S1 (accuracy above chance and Γ > 0) accepts"
    assert reference.answer == "no"
    assert "4.2e-09 < 1e-07" in reference.sentence
    assert reference.sentence.endswith("Γ is not interpretable here")
    assert (blocks.answer, blocks.sentence) == ("no", verdict.checks[2].sentence)
    assert mode.answer == "Mode 1: measurement degenerate; depth unused"  # Mode 2 did not fail
    assert mode.sentence.split("; ") == [
        "the gradient at the last block has all but vanished, so Γ compares with next to nothing",
        "random blocks do nearly as well as the trained ones, or better",
        f"warning, {MODE_2}: one layer carries most of Γ, so read the cosines layer by layer",
        "no temporal, intervention or cross-architecture evidence was given",
    ]


@pytest.mark.parametrize(("stability", "sub_mode"), [(0.9, "drift-dominated"), (0.1, "noise-dominated")])
def test_chain_of_a_sub_mode(stability, sub_mode):
    facts = make_facts(g_128=4.2e-9, stability=stability)
    step = walk_back_chain(facts, judge(facts, T, "four-diagnostic"))[3]
    assert step.answer == f"Mode 1: measurement degenerate ({sub_mode})"
    assert step.sentence.startswith("the gradient at the last block has all but vanished")


def test_concentration_alone_is_no_failure():
    facts = make_facts(cosines=(0.42, 0.006, -0.015, -0.004, -0.004))
    verdict = judge(facts, T)
    step = walk_back_chain(facts, verdict)[3]
    assert (verdict.status, verdict.modes) == ("pass", (MODE_2,))
    assert step.answer == "no audited failure found"
    assert step.sentence.startswith(f"a minimum bar, not an endorsement; warning, {MODE_2}: one layer carries")


def test_chain_of_an_inconsistent_network():
    """.9 is stated, and .4 of 1,024 samples seen; growth of 177 is a warning behind the words."""
    facts = make_facts(growth=177.0)
    claim = make_claim((0.9,), None, SAME_DATA, None, 1024)
    facts = seen(facts, 0.4).model_copy(update={"accuracy": 0.4, "claim": claim})
    verdict = judge(facts, T)
    assert (verdict.status, verdict.warned) == ("inconsistent", ("D1 scale stability",))
    assert verdict.line.endswith(" (warning: D1 scale stability)")
    step = walk_back_chain(facts, verdict)[3]
    assert step.answer == "D1 scale stability alone, which does not decide"
    assert step.sentence == (
        "the stated accuracy does not fit the evaluation batches, so D3 was not judged; "
        "no temporal, intervention or cross-architecture evidence was given"
    )


def test_chain_of_a_healthy_network():
    facts = seen(make_facts(cosines=(0.9,) * 5), 0.4)
    steps = walk_back_chain(facts, judge(facts, T))
    assert [step.answer for step in steps] == ["S1 accepts", "yes", "yes", "no audited failure found"]
    assert steps[1].sentence.endswith("; Γ can be read")
    assert (
        steps[3].sentence
        == "a minimum bar, not an endorsement; no temporal, intervention or cross-architecture evidence was given"
    )
    assert steps[0].sentence.startswith("accuracy 0.4 and Γ = +0.900")  # accuracy of the depth margin


def test_chain_without_credit_null_or_decision():
    facts = make_facts(depth=None, accuracy=0.5, g_128=1e-7, g_128_by_group=(0.9e-7, 1.1e-7))
    steps = walk_back_chain(facts, judge(facts, T))
    assert [step.answer for step in steps[:3]] == ["S1 cannot decide", "inconclusive", "not measured"]
    assert steps[1].sentence.endswith("; Γ needs care")
    assert steps[3].answer == "nothing so far"
    assert (
        steps[3].sentence
        == "the verdict says what is open; no temporal, intervention or cross-architecture evidence was given"
    )
    assert steps[0].sentence.startswith("accuracy 0.5 and Γ was not measured: ")
    nothing = make_facts(depth=None)
    assert walk_back_chain(nothing, judge(nothing, T))[0].sentence.startswith("Γ was not measured")


def test_chain_of_gamma_that_is_not_positive():
    zero = make_facts(aggregate=make_aggregate(0.0))
    assert walk_back_chain(zero, judge(zero, T))[0].answer == "S1 rejects"
    for cosines in ((-0.1,) * 5, (float("nan"),) * 5):
        facts = make_facts(cosines=cosines)
        assert walk_back_chain(facts, judge(facts, T))[0].answer == "S1 rejects"


def test_s1_needs_an_accuracy_interval_above_chance():
    """Of 1,024 samples Wilson's interval of .115 reaches .1 (low end .0968), that of .125 does not (.1062)."""
    facts = seen(make_facts(cosines=(0.5,) * 5), 0.12)
    assert [s1(facts, [acc]) for acc in (0.115, 0.125)] == ["reject", "accept"]
    assert s1(facts, [0.115], n_test=100_000) == "accept"
    assert s1(facts, [0.30, 0.11, 0.20]) == "reject"  # t over seeds: .203 ± .236
    unknown = make_facts(cosines=(0.5,) * 5)  # the labels say nothing about chance
    assert s1(unknown, [0.9]) == "not decidable"
    assert s1(make_facts(cosines=(-0.5,) * 5), [0.9]) == "reject"


def test_evidence_is_rendered_in_order():
    evidence = {"intervention": "the penalty restores the reference", "temporal": "D2 fires at epoch 3"}
    step = walk_back_chain(DFA, judge(DFA, T), evidence=evidence)[3]
    assert "evidence was given" not in step.sentence
    assert step.sentence.endswith("; temporal: D2 fires at epoch 3; intervention: the penalty restores the reference")


def test_every_mode_of_a_verdict_is_explained():
    from creditscope.protocol import policies

    modes = {
        v
        for k, v in vars(policies).items()
        if k.startswith("MODE_") or k in ("SCALE_EXPLODES", "DEPTH_UNUSED", "DIVERGED")
    }
    assert modes == set(MEANINGS)


def test_unknown_evidence():
    with pytest.raises(CreditscopeError, match="unknown kind of evidence 'anecdotal': use temporal"):
        walk_back_chain(DFA, judge(DFA, T), evidence={"anecdotal": "x"})


def test_seeds_that_lie_far_apart_have_not_learned_nothing():
    claim = Claim(accuracy=0.67, low=0.006, high=1.0, interval="t over 3 seeds", own_low=0.4, own_high=1.0, own="range")
    facts = make_facts().model_copy(update={"claim": claim})
    for seen, words in (
        (0.52, "the seeds differ too much to tell their mean"),
        (0.1, "the network may have learned nothing"),
    ):
        assert words in reaches_chance(facts.model_copy(update={"evaluation": evaluation(seen, 1024, 10, None)}))
