"""Every verdict line of every policy, and the warnings that stand beside it."""

import itertools
from typing import Any

import pytest
from tests.known import known
from tests.refusals import refusal

from creditscope.measure.depth import depth_margin
from creditscope.measure.facts import Depth, DepthProfile, Facts, Paired, Readout
from creditscope.protocol import POLICIES, DiagnosticThresholds, Verdict, get_policy, judge
from creditscope.protocol.policies import MODE_2

from .factory import HEALTHY_DEPTH, make_aggregate, make_facts, margin

T = DiagnosticThresholds()

# Arguments of make_facts that make each check answer as named.
D1: dict[str, dict[str, Any]] = {
    "pass": {},
    "fail": {"growth": 18_000.0},
    "inconclusive": {"growth": 45.0, "growth_by_group": (44.0, 46.0)},
}
D2: dict[str, dict[str, Any]] = {
    "pass": {},
    "fail": {"g_128": 4e-9},
    "inconclusive": {"g_128": 1e-7, "g_128_by_group": (0.9e-7, 1.1e-7)},
}
D3: dict[str, dict[str, Any]] = {
    "pass": {},
    "fail": {"depth": Depth(margins=(margin(-3.9, interval=(-5.0, -2.8)),))},
    "inconclusive": {"depth": Depth(margins=(margin(1.5, interval=(0.5, 2.5)),))},
    "not measured": {"depth": None},
    "not measurable": {"depth": Depth(margins=(margin(10.0),), bp_margin=margin(-11.2, "bp"))},
}


def verdict(d1: str = "pass", d2: str = "pass", d3: str = "pass", policy: str = "three-check", **more) -> Verdict:
    result = judge(make_facts(**{**D1[d1], **D2[d2], **D3[d3], **more}), T, policy)
    assert [check.answer for check in result.checks[:3]] == [d1, d2, d3]
    return result


MODE_1 = "D1 scale stability + D2 reference validity (Mode 1)"
SO_FAR = "(no failure found so far)"

ANSWERS = {"p": "pass", "f": "fail", "?": "inconclusive", "-": "not measured", "x": "not measurable"}
"""One letter for each of D1, D2, D3 in the tables below."""
LINES = {
    "three-check/1.1": [
        ("ppp", "pass", "trustworthy"),
        ("ffp", "fail", f"needs walk-back: {MODE_1}"),
        ("ppf", "fail", "needs walk-back: D3 depth utility"),
        ("fff", "fail", f"needs walk-back: {MODE_1}, D3 depth utility"),
        ("fpp", "pass", "trustworthy (warning: D1 scale stability)"),
        ("pfp", "pass", "trustworthy (warning: D2 reference validity)"),
        ("pp?", "inconclusive", "inconclusive: D3 depth utility"),
        ("?pp", "pass", "trustworthy"),
        ("fp?", "inconclusive", "inconclusive: D3 depth utility (warning: D1 scale stability)"),
        ("?fp", "inconclusive", "inconclusive: D1 scale stability (warning: D2 reference validity)"),
        ("pp-", "incomplete", f"incomplete: D3 depth utility not measured {SO_FAR}"),
        ("ppx", "incomplete", f"incomplete: D3 depth utility not measurable {SO_FAR}"),
        (
            "fp-",
            "incomplete",
            "incomplete: D3 depth utility not measured (no failure that decides so far) (warning: D1 scale stability)",
        ),
        ("ff-", "fail", f"needs walk-back: {MODE_1}"),
        (
            "f?-",
            "inconclusive",
            "inconclusive: D2 reference validity (D3 depth utility not measured) (warning: D1 scale stability)",
        ),
    ],
    "three-check/1.0": [
        ("ppp", "pass", "trustworthy"),
        ("ffp", "fail", f"needs walk-back: {MODE_1}"),
        ("ppf", "fail", "needs walk-back: D3 depth utility"),
        ("fff", "fail", f"needs walk-back: {MODE_1}, D3 depth utility"),
        ("fpp", "pass", "trustworthy"),
        ("pfp", "pass", "trustworthy"),
        ("pff", "fail", "needs walk-back: D3 depth utility"),
        ("pp?", "inconclusive", "inconclusive: D3 depth utility"),
        ("?pp", "pass", "trustworthy"),
        ("p?p", "pass", "trustworthy"),
        ("?fp", "inconclusive", "inconclusive: D1 scale stability"),
        ("f?p", "inconclusive", "inconclusive: D2 reference validity"),
        ("???", "inconclusive", "inconclusive: D1 scale stability, D2 reference validity, D3 depth utility"),
        ("??f", "fail", "needs walk-back: D3 depth utility"),
        ("ff?", "fail", f"needs walk-back: {MODE_1}"),
        ("pp-", "incomplete", "trustworthy (D3 not measured)"),
        ("ppx", "incomplete", "trustworthy (D3 not measurable)"),
        ("ff-", "fail", f"needs walk-back: {MODE_1}"),
        ("f?-", "inconclusive", "inconclusive: D2 reference validity (D3 not measured)"),
    ],
}


def spelt(letters: str) -> list[str]:
    return [ANSWERS[letter] for letter in letters]


@pytest.mark.parametrize(("policy", "row"), [(policy, row) for policy, rows in LINES.items() for row in rows])
def test_three_check(policy, row):
    answers, status, line = row
    d1, d2, d3 = spelt(answers)
    result = verdict(d1, d2, d3, policy)
    assert (result.status, result.line) == (status, f"VERDICT: {line}")
    assert result.policy == policy
    assert result.alternative is None


def test_a_margin_without_an_interval_does_not_earn_the_word():
    result = judge(make_facts(depth=Depth(margins=(margin(10.0),))), T)
    assert result.line == "VERDICT: incomplete: D3 depth utility without an interval (no failure found so far)"
    assert judge(make_facts(depth=Depth(margins=(margin(10.0),))), T, "three-check/1.0").line == "VERDICT: trustworthy"
    assert judge(make_facts(depth=Depth(margins=(margin(-9.0),))), T).status == "fail"


FOUR_DIAGNOSTIC = [
    ("ppp", "pass", "trustworthy", "trustworthy"),
    ("fpp", "fail", "needs walk-back: (a) scale", "needs walk-back: (a) scale"),
    ("pfp", "fail", "needs walk-back: (b) reference", "needs walk-back: (b) reference"),
    ("ppf", "fail", "needs walk-back: (d) depth", "trustworthy"),  # EP of the v1 paper
    (
        "fff",
        "fail",
        "needs walk-back: (a) scale, (b) reference, (d) depth",
        "needs walk-back: (a) scale, (b) reference",
    ),
    ("?pp", "inconclusive", "inconclusive: (a) scale", "inconclusive: (a) scale"),
    ("p?f", "fail", "needs walk-back: (d) depth", "inconclusive: (b) reference"),
    ("pp?", "inconclusive", "inconclusive: (d) depth", "trustworthy"),
    ("pp-", "incomplete", "trustworthy (D3 not measured)", "trustworthy"),
    ("ppx", "incomplete", "trustworthy (D3 not measurable)", "trustworthy"),
]


@pytest.mark.parametrize(("answers", "status", "line", "alternative"), FOUR_DIAGNOSTIC)
def test_four_diagnostic(answers, status, line, alternative):
    d1, d2, d3 = spelt(answers)
    result = verdict(d1, d2, d3, "four-diagnostic")
    assert (result.status, result.line) == (status, f"VERDICT: {line}")
    assert result.alternative == f"without (d): {alternative}"
    assert result.policy == "four-diagnostic/1.0"


@pytest.mark.parametrize(("d1", "d2", "d3"), list(itertools.product(D1, D2, D3)))
def test_three_check_rule_over_every_combination(d1, d2, d3):
    # Read an inconclusive answer both ways: the verdict is inconclusive exactly where the two readings differ.
    def fails(optimist):
        a, b, c = (("pass" if optimist else "fail") if x == "inconclusive" else x for x in (d1, d2, d3))
        return (a == "fail" and b == "fail") or c == "fail"

    status = verdict(d1, d2, d3).status
    if fails(optimist=True):
        assert status == "fail"
    elif fails(optimist=False):
        assert status == "inconclusive"
    else:
        assert status == ("pass" if d3 in ("pass", "inconclusive", "fail") else "incomplete")


@pytest.mark.parametrize("stability", [0.02, 0.99, None])
@pytest.mark.parametrize("policy", list(POLICIES))
def test_stability_decides_nothing(policy, stability):
    assert verdict(stability=stability, policy=policy).line == "VERDICT: trustworthy"


@pytest.mark.parametrize("policy", list(POLICIES))
@pytest.mark.parametrize("broken", [{"non_finite": ("h_3",)}, {"growth": float("nan")}, {"g_128": float("inf")}])
def test_diverged(policy, broken):
    result = judge(make_facts(**broken), T, policy)
    assert (result.status, result.line) == ("fail", "VERDICT: needs walk-back: diverged")
    assert (result.failed, result.mode, result.gamma_withheld) == (("diverged",), "diverged", True)
    assert len(result.reasons) == 2
    assert all("NaN or Inf" in reason for reason in result.reasons)


def test_diverged_margin():
    result = judge(make_facts(depth=Depth(margins=(margin(float("nan")),))), T)
    assert result.line == "VERDICT: needs walk-back: diverged"
    assert len(result.reasons) == 1


def test_diverged_without_depth_is_still_diverged():
    result = judge(make_facts(non_finite=("weights",), depth=None), T, "four-diagnostic")
    assert result.alternative == "without (d): needs walk-back: diverged"


def test_reasons_are_the_sentences_that_decided():
    result = verdict("fail", "fail", "fail")
    assert result.reasons == tuple(check.sentence for check in result.checks[:3])
    assert result.failed == (MODE_1, "D3 depth utility")
    assert verdict("pass", "fail", "fail").reasons == (result.checks[2].sentence,)
    assert verdict().reasons == ()


@pytest.mark.parametrize(
    ("d1", "d2", "d3", "mode"),
    [
        ("pass", "pass", "pass", ""),
        ("fail", "fail", "pass", "Mode 1: measurement degenerate"),
        ("pass", "pass", "fail", "depth unused"),
        ("fail", "fail", "fail", "Mode 1: measurement degenerate; depth unused"),
    ],
)
def test_mode_of_three_check(d1, d2, d3, mode):
    assert verdict(d1, d2, d3).mode == mode


@pytest.mark.parametrize(
    ("d1", "d2", "stability", "mode"),
    [
        ("fail", "fail", 0.99, "Mode 1: measurement degenerate (drift-dominated)"),
        ("pass", "fail", 0.02, "Mode 1: measurement degenerate (noise-dominated)"),
        ("pass", "fail", None, "Mode 1: measurement degenerate"),
        ("fail", "pass", 0.99, "scale explodes"),
        ("pass", "pass", 0.99, ""),
    ],
)
def test_stability_names_the_sub_mode_of_four_diagnostic(d1, d2, stability, mode):
    assert verdict(d1, d2, policy="four-diagnostic", stability=stability).mode == mode


@pytest.mark.parametrize(("d2", "withheld"), [("pass", False), ("inconclusive", False), ("fail", True)])
def test_gamma_is_withheld_where_the_reference_fails(d2, withheld):
    for policy in POLICIES:
        assert verdict(d2=d2, policy=policy).gamma_withheld is withheld


# Warnings


def warned(result: Verdict, start: str) -> list[str]:
    return [warning for warning in result.warnings if warning.startswith(start)]


def test_a_healthy_network_has_no_warning():
    assert judge(make_facts(cosines=(0.2,) * 5), T).warnings == ()


def test_scale_alone_is_a_warning_of_three_check_only():
    assert len(warned(verdict("fail"), "D1 alone: D2 passes, so the reference can be used, but the stream grows ")) == 1
    assert not warned(verdict("fail", "fail"), "D1")
    assert not warned(verdict("fail", policy="four-diagnostic"), "D1")


def test_reference_alone_is_a_warning_and_withholds_gamma():
    (sentence,) = warned(verdict(d2="fail"), "D2 alone: ")
    assert sentence.endswith("is a warning, not a failure")
    assert verdict(d2="fail").gamma_withheld
    assert not warned(verdict(d2="fail", policy="four-diagnostic"), "D2")


def test_an_inconclusive_check_speaks_for_itself():
    assert not warned(verdict("inconclusive"), "D")  # its line says so already
    assert not warned(verdict(d2="inconclusive"), "D")
    # With D2 open, D1 is not "alone": nothing is said about Γ being measurable.
    assert warned(verdict("fail", "inconclusive"), "D1 fails and D2 is open")
    assert not warned(verdict("fail", "inconclusive"), "D1 alone")
    assert not warned(verdict("inconclusive", "fail"), "D2 alone")


def test_concentration_names_layer_and_share():
    # The published DFA: .42 at layer 0 of Σ|cos| = .449, a share of .935.
    result = judge(make_facts(cosines=(0.42, 0.006, -0.015, -0.004, -0.004)), T)
    (sentence,) = warned(result, "Mode 2: ")
    assert "layer 0 carries a share of 0.935 > 0.6" in sentence
    assert result.mode == "Mode 2: alignment concentrated in one layer"
    assert result.line == "VERDICT: trustworthy"


@pytest.mark.parametrize(
    ("cosines", "warns"),
    [
        ((0.007, -0.071, 0.008, 0.0, 0.0), False),  # Γ -0.011; .071 / 3 is below .05
        ((0.14, 0.01, 0.01, 0.01, 0.01), False),  # Γ .036, .047
        ((0.16, 0.01, 0.01, 0.01, 0.01), True),  # Γ .04, but .053: one aligned layer
        ((0.245, 0.01, 0.01, 0.01, -0.024), True),  # Γ .0502
    ],
)
def test_where_all_of_gamma_is_near_zero_no_layer_carries_it(cosines, warns):
    facts = make_facts(cosines=cosines)
    assert bool(warned(judge(facts, T), "Mode 2")) is warns
    assert (MODE_2 in judge(facts, T).mode) is warns
    for before in ("three-check/1.0", "four-diagnostic"):  # the share alone, of .82, .78, .8 and .82
        assert warned(judge(facts, T, before), "Mode 2")
        assert MODE_2 in judge(facts, T, before).mode


def test_concentration_in_an_exact_layer_says_so():
    result = judge(make_facts(cosines=(0.01, 0.02, 0.03, 0.05, 1.0), exact_layers=(4,)), T)
    assert "layer 4 (its credit is exact by construction)" in warned(result, "Mode 2: ")[0]


def test_concentration_exactly_at_its_threshold():
    facts = make_facts(cosines=(0.5, 0.25, 0.25, 0.0, 0.0))  # a share of exactly one half
    assert not warned(judge(facts, DiagnosticThresholds(concentration_share=0.5)), "Mode 2")
    assert warned(judge(facts, DiagnosticThresholds(concentration_share=0.499)), "Mode 2")
    negative = make_facts(cosines=(-0.7, 0.1, 0.1, 0.05, 0.05))
    assert warned(judge(negative, T), "Mode 2: layer 0")


def test_sign_flip_lists_every_aggregation():
    (sentence,) = warned(judge(make_facts(aggregate=make_aggregate(0.2, -0.05, sign_flips=True)), T), "the sign of Γ")
    assert "mean of layers +0.200" in sentence
    assert "clamped at 128 -0.050" in sentence


@pytest.mark.parametrize(
    ("headline", "clamped", "warns"), [(0.02, -0.02, False), (0.049, -0.049, False), (0.05, -0.02, True)]
)
def test_signs_of_aggregates_that_all_lie_near_zero_mean_nothing(headline, clamped, warns):
    """The rule of PF05: within .05 of 0 all of them say that credit and gradient are nearly orthogonal."""
    facts = make_facts(aggregate=make_aggregate(headline, clamped, sign_flips=True))
    assert bool(warned(judge(facts, T), "the sign of Γ")) is warns
    assert warned(judge(facts, T, "three-check/1.0"), "the sign of Γ")


@pytest.mark.parametrize(
    ("g", "words"),
    [
        (7.81e-7, "from batch size 1,000 on, "),
        (1.13e-8, "from batch size 15 on, "),
        (0.0, "at any batch size, "),
        (8.1e-7, None),
    ],
)
def test_clamp_batch_size(g, words):
    # ‖g‖ per sample = 128 g, so the clamp begins beyond B = 128 g / 1e-7 (14.5: from 15 on); papers quote up to B = 1,024.
    found = warned(judge(make_facts(g_128=g), T), "clamp: ")
    assert bool(found) is (words is not None)
    if words:
        assert f"clamp: {words}the eps (1e-8) of F.cosine_similarity may distort layer 0's cosine" in found[0]


def test_float16_warns_of_its_floor():
    (sentence,) = warned(judge(make_facts(dtype="float16"), T), "float16: ")
    assert "from 1e-07 to 5.96e-07" in sentence
    assert not warned(judge(make_facts(dtype="bfloat16"), T), "bfloat16")


def test_one_network_speaks_of_itself_only():
    one = margin(-3.9, interval=(-5.0, -2.8), kind="binomial, this network only", n=1)
    (sentence,) = warned(judge(make_facts(depth=Depth(margins=(one,))), T), "D3 speaks of this network only: n = 1")
    assert "binomial" in sentence
    (sentence,) = warned(judge(make_facts(depth=Depth(margins=(margin(9.0, n=1),))), T), "D3 speaks")
    assert "without an interval" in sentence
    assert warned(judge(make_facts(depth=Depth(margins=(margin(9.0, n=3),))), T), "D3 is a point comparison")
    assert not warned(judge(make_facts(depth=HEALTHY_DEPTH), T), "D3")


def test_the_kind_of_null_is_named():
    def found(*margins):
        return judge(make_facts(depth=Depth(margins=margins)), T)

    assert warned(found(margin(9.0, "kind unstated")), "D3 uses a null of unstated kind")
    assert warned(found(margin(9.0, "bp")), "D3 uses the bp null")
    assert warned(
        found(margin(9.0), margin(-1.0, "bp")),
        "the null decides D3: 9 pp > 2 pp over the matched null, -1 pp < 2 pp over the bp null",
    )
    assert not warned(found(margin(9.0), margin(2.0, "bp")), "the null decides")
    assert not warned(found(margin(2.0), margin(9.0, "bp")), "the null decides")


def with_estimate(pp: float, low: float, high: float, depth: Depth) -> Facts:
    """Facts with a depth profile that estimates this margin."""
    readout = Readout(accuracy=0.5, low=0.4, high=0.6, width=8, strength=1.0)
    profile = DepthProfile(
        curve=(readout,) * 5,
        twin=(readout,) * 5,
        margin=Paired(pp=pp, low_pp=low, high_pp=high),
        steps=(None,) * 4,
        first_loss=None,
        n_fit=100,
        n_test=100,
        fit_rows=100,
        test_rows=100,
        fit_samples="0123",
        test_samples="4567",
        seed=0,
        rest="keep",
    )
    return make_facts(depth=depth).model_copy(update={"profile": profile})


@pytest.mark.parametrize(
    ("low", "interval", "says"),
    [
        (
            0.41,
            (8.0, 12.0),
            "this network makes no use of its depth, and D3 shows only that trained blocks lose less than random ones",
        ),
        (0.41, (1.0, 5.0), "this network makes no use of its depth"),  # D3 inconclusive
        (0.41, (-3.0, 0.0), "this network makes no use of its depth"),  # D3 fails
        (
            0.39,
            (8.0, 12.0),
            "it is not shown that this network makes use of its depth",
        ),  # the interval of the readout reaches below the network's .40
    ],
)
def test_what_a_linear_readout_of_the_input_shows(low, interval, says):
    """.45 by the raw input, .40 by the network."""
    facts = with_estimate(10.0, 8.0, 12.0, Depth(margins=(margin(sum(interval) / 2, interval=interval),)))
    raw = Readout(accuracy=0.45, low=low, high=0.49, width=8, strength=1.0)
    facts = facts.model_copy(update={"profile": known(facts.profile).model_copy(update={"raw": raw}), "accuracy": 0.40})
    (told,) = warned(judge(facts, T), "a linear readout of the raw input has 0.45, the network 0.4: ")
    assert told.partition(": ")[2] == says


@pytest.mark.parametrize(
    ("headline", "null", "says"),
    [([0.4, 0.41, 0.42], [0.3, 0.31], "3 against 2 seeds"), ([0.4, 0.41], [0.3, 0.31], ""), ([0.4], [0.3, 0.31], "")],
)
def test_seeds_that_are_not_paired_are_told(headline, null, says):
    fact = depth_margin(headline, null, null_kind="matched", n_test=1000)
    told = warned(judge(make_facts(depth=Depth(margins=(fact,))), T), "D3 is not paired over seeds")
    assert [sentence.partition("wider: ")[2] for sentence in told] == [says] * bool(says)


@pytest.mark.parametrize(
    ("null", "says"), [([0.31, 0.31, 0.31], True), ([0.31, 0.31, 0.32], False), ([0.31], False), (0.31, False)]
)
def test_nulls_that_may_be_one_network_are_told(null, says):
    fact = depth_margin([0.4, 0.41, 0.42], null, null_kind="matched", n_test=1000)
    told = warned(judge(make_facts(depth=Depth(margins=(fact,))), T), "every matched null has the accuracy 0.31")
    assert bool(told) is says


@pytest.mark.parametrize(("stated", "says"), [([0.4] * 3, True), ([0.4, 0.4, 0.41], False), ([0.4], False)])
def test_stated_networks_that_may_be_one_are_told(stated, says):
    fact = depth_margin(stated, [0.3, 0.31, 0.32][: len(stated)], null_kind="matched", n_test=1000)
    told = warned(judge(make_facts(depth=Depth(margins=(fact,))), T), "every trained network has the accuracy 0.4: if")
    assert bool(told) is says


def test_a_margin_that_the_depth_profile_denies_is_flagged():
    def found(pp, low, high, *margins):
        return warned(
            judge(with_estimate(pp, low, high, Depth(margins=margins)), T), "D3 and the depth profile disagree"
        )

    badly_trained_null = margin(30.0, interval=(28.0, 32.0))
    (sentence,) = found(1.0, 0.2, 1.8, badly_trained_null)
    assert "+30.0 [+28.0, +32.0] pp over the trained null, but +1.0 [+0.2, +1.8] pp estimated" in sentence
    assert "Train the null to its end" in sentence
    assert (
        "or the head reads less of the state than the readout does (it pools): then the estimate does not" in sentence
    )
    assert sentence.endswith(
        ". In none of the 196 networks of the calibration was the trained margin this far above the estimate"
    )
    verdict = judge(with_estimate(1.0, 0.2, 1.8, Depth(margins=(badly_trained_null,))), T)
    assert verdict.status == "pass"
    assert verdict.line == "VERDICT: trustworthy (warning: the depth profile contradicts the null)"
    verdict = judge(with_estimate(9.0, 8.0, 10.0, Depth(margins=(badly_trained_null,))), T)
    assert verdict.line == "VERDICT: trustworthy"
    (sentence,) = found(6.0, 4.0, 8.0, margin(-3.0, interval=(-4.0, -2.0)))
    assert (
        ". In 2 of the 196 networks of the calibration was the trained margin this far below the estimate" in sentence
    )
    assert found(5.0, 4.0, 6.0, margin(-3.0))  # a point comparison outside of the interval of the estimate
    assert not found(1.0, 0.2, 1.8, margin(3.0, interval=(1.5, 4.5)))  # the intervals meet
    assert not found(9.0, 8.0, 10.0, badly_trained_null)  # both say that depth helps
    assert not found(-1.0, -2.0, 0.0, margin(-9.0, interval=(-10.0, -8.0)))  # both say that it does not


def test_credit_that_turns_out_to_be_the_gradient_is_named():
    result = judge(make_facts(cosines=(0.1, 0.3, 1.0, 1.0 - 1e-9, 1.0), exact_layers=(4,)), T)
    (sentence,) = warned(result, "layers 2, 3: the credit equals the BP gradient to round-off (cosine 1)")
    assert sentence.endswith("Γ without such layers is +0.200")
    assert not warned(judge(make_facts(cosines=(0.1, 0.2, 0.3, 0.999999, 1.0), exact_layers=(4,)), T), "layer")
    all_of_it = judge(make_facts(cosines=(1.0,) * 5), T)
    assert warned(all_of_it, "layers 0, 1, 2, 3, 4: ")[0].endswith("no other layer has a cosine")


def test_stability_warnings():
    assert warned(judge(make_facts(stability=0.5, cosines=(0.2,) * 5), T), "C: Γ may measure")
    assert not warned(judge(make_facts(stability=0.5), T), "C: Γ")  # Γ was not measured
    assert warned(judge(make_facts(groups=3), T), "C rests on 3 groups, 8 advised")


def test_samples_left_out_are_counted():
    facts = make_facts(cosines=(0.2,) * 5, measurable=(1024, 1024, 1024, 1020, 0))
    (sentence,) = warned(judge(facts, T), "samples without a measurable cosine")
    assert sentence.endswith("left out of 1,024: layer 3: 4, layer 4: 1,024")


# Registry


def test_registry():
    assert [(name, policy.version) for name, policy in POLICIES.items()] == [
        ("three-check", "three-check/1.1"),
        ("three-check/1.0", "three-check/1.0"),
        ("four-diagnostic", "four-diagnostic/1.0"),
    ]
    assert get_policy("three-check/1.1") is get_policy("three-check")
    assert get_policy("four-diagnostic/1.0") is get_policy("four-diagnostic") is POLICIES["four-diagnostic"]
    assert judge(make_facts(), T, POLICIES["four-diagnostic"]).policy == "four-diagnostic/1.0"


def test_unknown_policy_is_one_line():
    assert (
        refusal(lambda: judge(make_facts(), T, "five-check"))
        == "unknown protocol 'five-check': use one of three-check, three-check/1.0, four-diagnostic"
    )


def test_a_verdict_survives_json():
    for facts in (make_facts(), make_facts(growth=float("inf"))):
        result = judge(facts, T, "four-diagnostic")
        assert Verdict.model_validate_json(result.model_dump_json()) == result
