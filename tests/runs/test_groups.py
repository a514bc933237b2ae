"""Runs grouped over seeds and judged with their nulls."""

from __future__ import annotations

from dataclasses import replace

from tests.studies.records import pool, record

from creditscope.protocol.chain import s1
from creditscope.render.words import finding_text
from creditscope.runs.groups import Outcome, audit, reported
from creditscope.studies.grid import BP, DFA, FA, make


def test_a_verdict_against_the_bp_null_says_so():
    """Frozen blocks trained by BP are the stronger null: failing against them is not failing against the matched one."""
    records = pool((BP, 0.615, 0.35, {"cosines": (1.0,) * 5}), (FA, 0.351, 0.35, {}))
    found = {g.label: g.found for g in audit(records)}
    assert {k: (v.outcome, v.null) for k, v in found.items()} == {
        "bp": (Outcome.PASS, ""),
        "fa(none)": (Outcome.FAIL, ""),
    }
    without = [r for r in records if not (r.spec.frozen and r.spec.method == "fa")]
    (fa,) = [g for g in audit(without) if g.label == "fa(none)"]
    assert fa.found.null == "bp"
    assert finding_text(fa.found) == "needs walk-back: D3 depth utility (D3 by the bp null)"
    assert not audit(pool((BP, 0.351, 0.35, {})))[0].found.null  # its matched null is the bp null: nothing to add


def test_a_margin_to_the_matched_null_is_never_that_to_another():
    spec = make("paper", DFA, 42)
    (group,) = audit([record(spec, 0.36), record(spec.null("bp"), 0.40)])
    assert group.margin("matched") is None
    bp = group.margin("bp")
    assert bp is not None
    assert round(bp.margin_pp, 6) == -4.0


def test_seeds_that_disagree_are_mixed_and_a_shorter_training_says_so():
    records = pool((DFA, 0.36, 0.30, {}))
    broken = record(make("paper", DFA, 42), 0.36, growth=2000.0, g_128=4e-9)
    (group,) = audit([broken, *(r for r in records if r.spec.hash != broken.spec.hash)])
    assert group.outcome is Outcome.MIXED
    assert group.found.statuses.count("fail") == 1
    short = record(make("paper", DFA, 42, intervention=True), 0.3)
    assert [g.label for g in audit([*records, short])] == ["dfa(rms)", "dfa(rms) [30 epochs]"]
    one = record(make("smoke", DFA, 42, epochs=1), 0.3)
    assert [g.label for g in audit([*records, one])] == ["dfa(rms)", "dfa(rms) [1 epoch]"]


def test_a_bundle_whose_accuracy_was_changed_is_inconsistent():
    """The second network shows .30 on its batches and states .60; the range over the seeds would hide it."""
    records = [record(make("paper", DFA, seed), acc, shown=0.30) for seed, acc in ((42, 0.30), (123, 0.60))]
    (group,) = audit(records)
    assert [r.status for r in group.reports] == ["incomplete", "inconsistent"]


def test_s1_of_a_group_and_of_its_reports_know_the_same_chance():
    """0.12 is above 1/10 and below the share of the largest class."""
    spec = make("paper", DFA, 42)
    (found,) = audit([record(spec, 0.12)])
    (report,) = found.reports
    assert report.facts.evaluation is not None
    seen = report.facts.evaluation.model_copy(update={"largest_class": 0.2})
    facts = report.facts.model_copy(update={"evaluation": seen})
    group = replace(found, reports=(report.model_copy(update={"facts": facts}),))
    assert (found.chance, found.s1, group.chance) == (0.1, "accept", 0.2)
    assert group.s1 == s1(group.reports[0].facts, group.accuracies, group.n_test) == "reject"


def test_reports_of_one_claim_are_one_row_in_one_file_or_in_several():
    spec = make("paper", DFA, 42)
    (group,) = audit([record(spec.changed(seed=seed), 0.3 + seed / 1e4) for seed in (1, 2, 3)])
    loose = [r.model_copy(update={"run": ""}) for r in group.reports]
    for names in (["a", "a", "a"], ["a", "b", "c"]):
        (row,) = reported(zip(names, loose, strict=True))
        assert (row.label, row.count, len(row.gammas)) == (group.label, 3, len(group.gammas))
