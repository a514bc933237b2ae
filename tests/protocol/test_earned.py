"""three-check/1.1 from a user's side: `trustworthy` is earned, and what is typed is held against what is measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from scipy import stats
from tests.known import known
from tests.refusals import refusal
from torch import Tensor, nn

from creditscope import CreditscopeError, DiagnosticReport, DiagnosticThresholds, diagnose, diagnose_arrays
from creditscope.measure.facts import Facts
from creditscope.models import ResMLP
from creditscope.protocol.report import make_report

CLASSES, SAMPLES = 10, 1024
NO_NULL = "VERDICT: incomplete: D3 depth utility not measured (no failure found so far)"
WARNED = NO_NULL.replace("failure found", "failure that decides")


def answering(right: int, growth: float = 1.0, classes: int = CLASSES) -> tuple[Any, list[tuple[Tensor, Tensor]]]:
    """A residual network that answers exactly `right` of 1,024 samples rightly; every block multiplies the stream."""
    net: Any = ResMLP(classes, classes, width=classes, depth=3, terminal_norm=False)
    with torch.no_grad():
        for linear in (net.embed.linear, net.out_head):
            linear.weight.copy_(torch.eye(classes))
            linear.bias.zero_()
        for block in net.blocks:
            block.norm, block.linear1, block.act = nn.Identity(), nn.Identity(), nn.Identity()
            block.linear2.weight.copy_((growth - 1) * torch.eye(classes))
            block.linear2.bias.zero_()
    answer = torch.arange(SAMPLES) % classes
    label = answer.clone()
    label[right:] = (label[right:] + 1) % classes
    x = torch.eye(classes)[answer] * (1 + 1e-4 * torch.arange(SAMPLES)).unsqueeze(1)  # no two samples are equal
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(0))
    return net, list(zip(x[order].split(128), label[order].split(128), strict=True))


def last_line(report: DiagnosticReport) -> str:
    return str(report).splitlines()[-1]


def untrained() -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    torch.manual_seed(3)
    net = ResMLP(20, CLASSES, width=32, depth=3)
    return net, [(torch.randn(128, 20), torch.randint(0, CLASSES, (128,))) for _ in range(8)]


# ---- the word ---------------------------------------------------------------------------------------------------------


def test_a_network_that_grows_7366_times_per_block_is_not_trustworthy_without_a_null():
    net, batches = answering(128, growth=7366.0)
    report = diagnose(net, batches, headline_acc=0.125)
    assert report.checks["D1"].value == pytest.approx(7366)
    assert (report.status, last_line(report)) == ("incomplete", f"{WARNED} (warning: D1 scale stability)")


def test_a_typed_accuracy_is_not_believed():
    net, batches = untrained()
    report = diagnose(net, batches, headline_acc=0.95, frozen_baseline_acc=0.30)
    with torch.no_grad():
        right = sum(int((net(x).argmax(1) == y).sum()) for x, y in batches)
    low, high = (float(stats.beta.ppf(q, right + k, SAMPLES - right + 1 - k)) for q, k in ((0.0005, 0), (0.9995, 1)))
    assert report.status == "inconsistent"
    assert last_line(report) == (
        "VERDICT: inconsistent: accuracy 0.95 is stated (one number, 5 pp of slack), but the network has "
        f"{right / SAMPLES:.4g} on the 1,024 evaluation samples (99.9 % interval [{low:.3g}, {high:.3g}])"
    )
    d3 = report.checks["D3"]
    assert (d3.answer, d3.value, d3.reason) == ("not measurable", None, "not judged: the accuracies are inconsistent")


def test_one_seed_against_one_null_without_a_test_set():
    net, batches = answering(369)
    near = diagnose(net, batches, headline_acc=0.36, frozen_baseline_acc=0.30)
    assert (near.status, last_line(near)) == ("inconclusive", "VERDICT: inconclusive: D3 depth utility")
    assert "from the 1,024 evaluation samples" in near.checks["D3"].sentence
    net, batches = answering(630)
    far = diagnose(net, batches, headline_acc=0.615, frozen_baseline_acc=0.349)
    assert (far.status, last_line(far)) == ("pass", "VERDICT: trustworthy")


def test_scale_alone_stands_behind_the_word():
    net, batches = answering(630, growth=60.0)
    report = diagnose(net, batches, headline_acc=0.615, frozen_baseline_acc=0.349)
    assert (report.status, last_line(report)) == ("pass", "VERDICT: trustworthy (warning: D1 scale stability)")


def test_the_old_words_are_kept_by_name():
    facts = diagnose(*untrained()).facts
    for protocol in ("three-check/1.0", "four-diagnostic"):
        assert make_report(facts, protocol=protocol).verdict.line == "VERDICT: trustworthy (D3 not measured)"
        claimed = make_report(facts, headline_acc=0.95, frozen_baseline_acc=0.30, protocol=protocol)
        assert claimed.verdict.line == "VERDICT: trustworthy"
        assert claimed.checks["D3"].interval is None  # a point comparison, as then


def test_a_failure_is_said_before_an_inconsistency():
    net, batches = answering(128, growth=1e4)
    with torch.no_grad():  # the larger the margin of an answer, the smaller its gradient
        net.embed.linear.weight *= 40
    seen = diagnose(net, batches, headline_acc=0.95, frozen_baseline_acc=0.30)
    assert seen.checks["D1"].answer == "fail"
    forced = seen.facts.model_copy(
        update={
            "reference": seen.facts.reference.model_copy(
                update={"batch_mean_128": (1e-12,) * 4, "deepest_by_group": (1e-10,) * 8}
            )
        }
    )
    report = make_report(forced, headline_acc=0.95, frozen_baseline_acc=0.30)
    assert report.status == "fail"
    assert "Mode 1" in report.verdict.line


# ---- consistency ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def facts() -> Facts:
    """410 of 1,024 right: .4004, 99.9 % interval .350 to .452."""
    net, batches = answering(410)
    return diagnose(net, batches).facts


def test_accuracy_of_the_evaluation_batches_has_its_interval(facts: Facts):
    assert facts.evaluation is not None
    tails = stats.binomtest(410, SAMPLES).proportion_ci(0.999, method="exact")
    assert (facts.evaluation.low, facts.evaluation.high) == pytest.approx((tails.low, tails.high))
    assert (facts.evaluation.accuracy, facts.evaluation.n) == (410 / SAMPLES, SAMPLES)


@pytest.mark.parametrize(
    ("stated", "inconsistent"),
    [
        ({"headline_acc": 0.49}, False),  # one number that may be a mean: 5 pp of slack
        ({"headline_acc": 0.51}, True),
        ({"headline_acc": 0.31}, False),
        ({"headline_acc": 0.29}, True),
        ({"headline_acc": 0.49, "network_acc": 0.49}, True),  # its own accuracy: no slack
        ({"headline_acc": 0.45, "network_acc": 0.41}, False),
        ({"headline_acc": [0.45, 0.90], "network_acc": 0.41}, False),
        ({"headline_acc": [0.44, 0.90]}, False),  # a list over seeds: its range
        ({"headline_acc": [0.30, 0.50]}, False),
        ({"headline_acc": [0.46, 0.50]}, True),
        ({"headline_acc": [0.30, 0.34]}, True),
        ({"network_acc": 0.9}, True),
        ({"headline_acc": 0.90, "headline_on": "other data"}, False),
    ],
)
def test_stated_accuracy_against_the_batches(facts: Facts, stated: dict[str, Any], inconsistent: bool):
    null: dict[str, Any] = {"frozen_baseline_acc": 0.30} if "headline_acc" in stated else {}
    report = make_report(facts, **stated, **null)
    assert (report.status == "inconsistent") is inconsistent
    assert (report.status == "pass") <= (not inconsistent)


def test_other_data_are_repeated_in_the_report(facts: Facts):
    report = make_report(facts, headline_acc=0.9, headline_on="other data", frozen_baseline_acc=0.3)
    assert report.status == "pass"
    assert any("of other data than the evaluation batches (accuracy 0.4 there)" in w for w in report.verdict.warnings)
    again = DiagnosticReport.from_dict(report.to_dict())
    assert (again.headline_on, again == report) == ("other data", True)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"headline_on": "test"}, "headline_on is 'test'"),
        ({"network_acc": [0.4, 0.4]}, "network_acc is the accuracy of the one network"),
        ({"network_acc": 40.0}, "network_acc must be in [0, 1]"),
        ({"headline_acc": {0.4, 0.41}}, "headline_acc must be a number in [0, 1] or one per seed, got {0.4"),
        ({"headline_acc": [0.47, 0.9], "network_acc": 0.4}, "headline_acc is 0.47 to 0.9, but network_acc"),
        (
            {"network_acc": 0.46},
            "headline_acc is 0.4, but network_acc, the accuracy of the network that is measured, is 0.46",
        ),
    ],
)
def test_what_is_stated_wrongly_is_one_line(facts: Facts, wrong: dict[str, Any], says: str):
    assert says in refusal(lambda: make_report(facts, **{"headline_acc": 0.4, **wrong}))


# ---- chance -----------------------------------------------------------------------------------------------------------


def test_an_accuracy_that_reaches_chance_decides_nothing_about_depth():
    net, batches = answering(128)
    for null in (0.02, 0.5):  # however far below or above the null is
        report = diagnose(net, batches, headline_acc=0.112, frozen_baseline_acc=null)
        assert (report.status, report.checks["D3"].answer) == ("inconclusive", "inconclusive")
        assert "reaches chance 0.1" in report.checks["D3"].sentence
        assert "; interval of the accuracy reaches chance" in " ".join(str(report).split())
    net, batches = answering(205)
    above = diagnose(net, batches, headline_acc=0.2, frozen_baseline_acc=0.02)
    assert above.status == "pass"


@pytest.mark.parametrize(
    ("right", "stated", "n_test", "says"),
    [
        # chance is the largest class, c = 103 / 1,024 = .1006: 1.96² · c (1 - c) / (.112 - c)² = 2,668
        (115, 0.112, None, "to tell it from chance, give one accuracy per seed, or test on about 2,700 samples"),
        (102, 0.1, None, "more seeds will not help: train the network until it beats chance"),
        # spread 3 pp, distance 2 pp: t(m - 1) · 3 / sqrt(m) is below 2 from m = 12 on (11: 2.015, 12: 1.906)
        (123, [0.09, 0.12, 0.15], None, "9 more seeds of this spread would tell it from chance"),
        # stated on a large test set, evaluated on few: 3.29² · c (1 - c) / (.125 - c)² = 1,644
        (128, 0.15, 10**9, "to tell it from chance, evaluate on about 1,700 samples"),
        (102, 0.12, 10**9, "audit a network that has the stated accuracy"),
    ],
)
def test_an_accuracy_that_reaches_chance_says_what_would_help(right, stated, n_test, says):
    net, batches = answering(right)
    report = diagnose(net, batches, headline_acc=stated, n_test=n_test, frozen_baseline_acc=0.02)
    assert report.checks["D3"].answer == "inconclusive"
    assert report.checks["D3"].sentence.endswith(f"; {says}")
    assert f"D3: {says}" in str(report).splitlines()


@pytest.mark.parametrize(
    ("stated", "null", "says"),
    [
        (0.5, 0.48, "to decide, train more seeds and give one accuracy for each"),
        ([0.48, 0.5, 0.52], 0.48, "to decide, give network and null the same seeds"),
        # differences 0, 5, 4: mean 3, spread sqrt(7), distance 1: t(m - 1) · 2.646 / sqrt(m) is below 1 from m = 30 on
        ([0.48, 0.5, 0.52], [0.48, 0.45, 0.48], "27 more seeds of this spread would decide"),
        ([0.48, 0.5, 0.52], [0.46, 0.47, 0.51], "it would take more than 1,000 seeds of this spread to decide"),
    ],
)
def test_an_inconclusive_margin_says_what_would_decide(stated, null, says):
    net, batches = answering(512)
    report = diagnose(net, batches, headline_acc=stated, frozen_baseline_acc=null)
    assert report.checks["D3"].answer == "inconclusive"
    assert report.checks["D3"].sentence.endswith(f"; {says}")
    assert f"D3: {says}" in str(report).splitlines()


def test_a_pass_needs_evaluation_samples_that_lie_above_chance():
    net, batches = answering(128)  # 0.125 of 1,024: 99.9 % interval 0.094 to 0.164, chance is 0.1
    for n_test in (None, 10**9):
        report = diagnose(net, batches, frozen_baseline_acc=0.02, headline_acc=0.15, n_test=n_test)
        assert (report.status, report.checks["D3"].answer) == ("inconclusive", "inconclusive")
        assert "this network has 0.125 on the 1,024 evaluation samples" in report.checks["D3"].sentence
    few = [(x[:16], y[:16]) for x, y in batches[:1]]
    assert diagnose(net, few, headline_acc=0.3, frozen_baseline_acc=0.1, n_test=10**9).status != "pass"
    failing = diagnose(net, batches, headline_acc=0.15, n_test=10**9, frozen_baseline_acc=0.3)
    assert failing.status == "fail"  # a failure needs no such proof


def test_a_network_at_chance_carries_no_other_networks_accuracy():
    net, batches = answering(128)  # 128 of 1,024 are right, chance is 0.1
    for stated in ({"headline_acc": 0.17, "network_acc": 0.125}, {"headline_acc": [0.95] * 9 + [0.125]}):
        report = diagnose(net, batches, frozen_baseline_acc=0.3, **stated)
        assert (report.status, report.checks["D3"].answer) == ("inconclusive", "inconclusive")
        assert "this network has 0.125 on the 1,024 evaluation samples" in report.checks["D3"].sentence


def test_chance_is_the_largest_class_where_that_is_more():
    net, batches = answering(410)
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    y = torch.where(torch.arange(SAMPLES) < 400, 3, y)  # 400 and a tenth of the rest: about 45 %
    with torch.no_grad():
        right = int((net(x).argmax(1) == y).sum())
    largest = int(torch.bincount(y).max()) / SAMPLES
    report = diagnose(net, [(x, y)], headline_acc=right / SAMPLES, frozen_baseline_acc=0.05)
    assert known(report.facts.evaluation).chance == pytest.approx(largest)
    assert right / SAMPLES < largest
    assert report.status == "inconclusive"


# ---- layers that count --------------------------------------------------------------------------------------------------


def test_a_layer_for_which_a_callable_has_no_credit_does_not_count():
    net, batches = untrained()

    def credit(hiddens: list[Tensor], logits: Tensor, y: Tensor) -> list[Tensor | None]:
        return [h.clone() for h in hiddens[:-1]] + [None]

    report = diagnose(net, batches, credit=credit)
    aligned = report.facts.alignment
    assert aligned is not None
    assert aligned.counting == (0, 1, 2)
    assert (aligned.mean[3], aligned.measurable[3]) == (None, 0)
    means = [c for c in aligned.mean[:3] if c is not None]
    assert known(report.facts.aggregate).headline == pytest.approx(sum(means) / 3)
    assert "credit is a callable: every layer for which it returns a tensor counts" in str(report)
    assert "without a measurable cosine" not in str(report)


def test_old_report_files_are_read_and_keep_their_values(tmp_path):
    net, batches = untrained()
    data = diagnose(net, batches, credit=lambda h, z, y: [x.clone() for x in h]).to_dict()
    gamma = data["facts"]["aggregate"]["headline"]
    old = {**data, "schema_version": 1}
    for new in ("network_acc", "headline_on"):
        del old[new]
    for fact, names in {
        "aggregate": ["gamma_all_layers"],
        "concentration": ["deep_mean_all_layers"],
        "alignment": ["counting", "counting_note"],
    }.items():
        for name in names:
            del old["facts"][fact][name]
    del old["facts"]["evaluation"], old["facts"]["claim"]
    again = DiagnosticReport.from_dict(old)
    assert again.facts.aggregate is not None
    assert again.facts.aggregate.gamma_all_layers == again.facts.aggregate.headline == gamma
    judged = make_report(again.facts, headline_acc=0.95, frozen_baseline_acc=0.3)
    assert judged.status == "inconsistent"  # accuracy and number of samples are in an old report, too


@pytest.mark.parametrize("counting", [[0, 9], [-1]])
def test_a_report_that_counts_a_layer_that_is_not_there_is_refused(counting: list[int]):
    net, batches = untrained()
    data = diagnose(net, batches, credit=lambda h, z, y: [x.clone() for x in h]).to_dict()
    data["facts"]["alignment"]["counting"] = counting
    assert "names a layer that is not there" in refusal(lambda: DiagnosticReport.from_dict(data))


def test_an_accuracy_that_cannot_be_compared_earns_nothing_and_one_of_other_data_says_so(facts: Facts):
    seeds: dict[str, Any] = {"headline_acc": [0.40, 0.41, 0.40], "frozen_baseline_acc": [0.30, 0.31, 0.30]}
    own_loss = facts.convention.model_copy(update={"loss": "squared_error"})
    no_classes = facts.model_copy(update={"accuracy": None, "evaluation": None, "convention": own_loss})
    assert make_report(no_classes, **seeds).verdict.line == (
        "VERDICT: incomplete: stated accuracy not compared with the evaluation batches (their labels are no classes) "
        "(no failure found so far)"
    )
    assert make_report(facts, headline_on="other data", **seeds).verdict.line == (
        "VERDICT: trustworthy (warning: the stated accuracy is of other data)"
    )
    scored = facts.convention.model_copy(update={"loss": "cross-entropy"})
    no_labels = no_classes.model_copy(update={"convention": scored})  # arrays without logits, tokens without a label
    assert make_report(no_labels, **seeds).verdict.line == (
        "VERDICT: incomplete: stated accuracy not compared with the evaluation batches (no label of theirs is scored) "
        "(no failure found so far)"
    )


# ---- cheap ways to the word ---------------------------------------------------------------------------------------------


def test_other_data_do_not_lift_a_network_from_chance():
    report = diagnose(*untrained(), headline_acc=0.95, frozen_baseline_acc=0.30, headline_on="other data")
    assert (report.status, last_line(report)) == ("inconclusive", "VERDICT: inconclusive: D3 depth utility")
    assert "which reaches chance 0." in report.checks["D3"].sentence


def test_arrays_without_answers_earn_nothing():
    rng = torch.Generator().manual_seed(0)
    batch = {name: [torch.randn(256, 8, generator=rng) for _ in range(4)] for name in "hg"}
    report = diagnose_arrays(batch, reduction="sum", headline_acc=0.95, frozen_baseline_acc=0.30)
    assert (report.status, last_line(report)) == (
        "incomplete",
        "VERDICT: incomplete: stated accuracy not compared with the evaluation batches (no label of theirs is scored) "
        "(no failure found so far)",
    )


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"h_norm_explosion_ratio": 1e9}, "h_norm_explosion_ratio 1e+09 (50)"),
        ({"g_norm_floor": 1e-30}, "g_norm_floor 1e-30 (1e-07)"),
        ({"frozen_acc_margin_pp": 1e-9}, "frozen_acc_margin_pp 1e-09 (2)"),
    ],
)
def test_thresholds_of_ones_own_stand_behind_the_word(own: dict[str, float], named: str):
    net, batches = answering(630, growth=60.0)
    claims: dict[str, Any] = {"headline_acc": 0.615, "frozen_baseline_acc": 0.349}
    report = diagnose(net, batches, thresholds=DiagnosticThresholds(**own), **claims)
    first = "" if "h_norm_explosion_ratio" in own else "D1 scale stability, "
    assert (report.status, last_line(report)) == ("pass", f"VERDICT: trustworthy (warning: {first}own thresholds)")
    assert f"thresholds that are not the protocol's (its own in brackets): {named}" in report.verdict.warnings
    drawn = diagnose(net, batches, thresholds=DiagnosticThresholds(concentration_share=0.9), **claims)
    assert last_line(drawn) == "VERDICT: trustworthy (warning: D1 scale stability)"  # no verdict rests on that one


def test_a_null_at_chance_is_said_to_be_there():
    net, batches = answering(369)
    for null, said in ((0.10, True), (0.0, True), (0.115, True), (0.16, False)):
        report = diagnose(net, batches, headline_acc=0.36, frozen_baseline_acc=null)
        assert report.status == "pass"
        assert any("make sure that it was trained" in warning for warning in report.verdict.warnings) is said
        assert last_line(report) == "VERDICT: trustworthy" + (" (warning: the null is at chance)" if said else "")


def test_a_batch_counts_once():
    net, batches = untrained()
    x, y = batches[0]
    for size in (16, 128):
        with pytest.raises(CreditscopeError) as caught:
            diagnose(net, [(x[:size], y[:size])] * 64, headline_acc=1.0, frozen_baseline_acc=0.3)
        assert str(caught.value) == (
            "batch 1 holds the samples of batch 0 again; give disjoint batches (next(iter(loader)) begins anew each time; "
            "a loader that fills one tensor again and again needs clone())"
        )
    with pytest.raises(CreditscopeError, match="batch 2 holds the samples of batch 0 again"):
        diagnose(net, [batches[0], batches[1], (x.clone(), y.clone())])
    assert diagnose(net, [(x, y), (x, y.flip(0))]).facts.convention.n_samples == 256  # the same inputs, other labels
    same = torch.ones(16, 20)
    assert (
        diagnose(net, [(same, y[:16])] * 2).facts.convention.n_samples == 32
    )  # inputs of few values may be equal by chance


def test_a_loader_that_fills_one_tensor_again_is_told():
    net, batches = untrained()
    held = torch.empty(128, 20), torch.empty(128, dtype=torch.int64)

    def loader() -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in batches:
            held[0].copy_(x)
            held[1].copy_(y)
            yield held

    assert "a loader that fills one tensor again and again needs clone" in refusal(lambda: diagnose(net, loader()))


def test_samples_that_come_again_in_another_order_are_counted():
    """32 samples, 32 times: the interval is that of 1,024 samples."""
    net, batches = answering(900)
    x, y = (torch.cat(each)[:32] for each in zip(*batches, strict=True))
    right = float((net(x).argmax(1) == y).float().mean())
    again = torch.cat([torch.randperm(32, generator=torch.Generator().manual_seed(k)) for k in range(32)])
    claims: dict[str, Any] = {"headline_acc": right, "frozen_baseline_acc": right - 0.1}
    honest = diagnose(net, [(x, y)], **claims)
    assert honest.status == "inconclusive"
    for size in (32, 256, 1024):
        report = diagnose(net, list(zip(x[again].split(size), y[again].split(size), strict=True)), **claims)
        assert report.facts.convention.repeated == 992
        assert last_line(report) == "VERDICT: trustworthy (warning: repeated samples)"
        assert any(w.startswith("992 of 1,024 evaluation samples are equal") for w in report.verdict.warnings)
    states = {"h": [x[again]] * 2, "g": [x[again]] * 2, "logits": net(x[again]).detach(), "labels": y[again]}
    assert diagnose_arrays(states, reduction="sum").facts.convention.repeated == 992
    whole = diagnose(net, batches, headline_acc=900 / 1024, frozen_baseline_acc=0.7)
    assert (whole.facts.convention.repeated, last_line(whole)) == (0, "VERDICT: trustworthy")


def test_a_larger_loss_does_not_lift_the_reference_over_the_floor():
    net, batches = answering(900, growth=60.0)
    with torch.no_grad():
        net.out_head.weight.mul_(1e-6)

    def larger(logits: Tensor, y: Tensor) -> Tensor:
        return 1e4 * nn.functional.cross_entropy(logits, y, reduction="none")

    claims: dict[str, Any] = {"headline_acc": 900 / 1024, "frozen_baseline_acc": 0.5}
    assert "(Mode 1)" in last_line(diagnose(net, batches, **claims))
    report = diagnose(net, batches, loss_fn=larger, **claims)
    e = torch.cat([net(x).detach().softmax(1) - nn.functional.one_hot(y, CLASSES) for x, y in batches])
    assert report.facts.reference.loss_scale == pytest.approx(1e4 * float((e.norm(dim=1) / 2**0.5).mean()))
    assert last_line(report) == "VERDICT: trustworthy (warning: D1 scale stability, the scale of the loss)"
    assert any(w.startswith("the scale of the loss decides D2") for w in report.verdict.warnings)
    healthy, batches = answering(900)
    report = diagnose(healthy, batches, loss_fn=larger, **claims)
    assert last_line(report) == "VERDICT: trustworthy"
    assert diagnose(healthy, batches, **claims).facts.reference.loss_scale is None
