"""Published verdicts against networks made by hand, whose verdict is known."""

from __future__ import annotations

import pytest
from tests.studies.test_analyses import BROKEN, Item, pool, run

from creditscope.render.reproduction import audit_page
from creditscope.studies.audit import audit
from creditscope.studies.grid import BP, DFA, DFA_NONE, FA, FA_RMS, make
from creditscope.studies.rejudged import rejudged
from creditscope.studies.reproduction import NOT_COMPARABLE, NOT_ONE_RUN, NOT_RUN, ONE_NORM, ONE_RUN, REPRODUCED
from creditscope.studies.verdicts import INCONCLUSIVE, NOT_ONE_OPEN, ONE_OPEN, Judged, VerdictOutcome, verdict_outcomes

HEALTHY: Item = (FA, 0.401, 0.35, {})
UNUSED: Item = (FA_RMS, 0.351, 0.35, {})
"""As good as its null: D3 fails."""
DEGENERATE: Item = (DFA, 0.306, 0.35, BROKEN)


def found(what: str, *items: Item, **change: int) -> VerdictOutcome:
    return next(o for o in verdict_outcomes(pool(*items, **change)) if o.said.what == what)


def test_a_whole_verdict_is_that_of_three_check():
    exact = {"cosines": (1.0,) * 5}
    bp = found("BP", (BP, 0.615, 0.35, exact))
    assert (bp.kind, bp.ours[0].text) == (REPRODUCED, "passes (n=3)")
    fa = found("FA", HEALTHY, UNUSED)
    assert (fa.kind, fa.statement) == (
        ONE_NORM,
        "reproduced with credit_norm=none; not reproduced with credit_norm=rms",
    )
    dfa = found("DFA", DEGENERATE)
    assert (dfa.kind, dfa.statement) == (ONE_RUN, "reproduced with credit_norm=rms; the other was not run")
    assert found("DFA", (DFA_NONE, 0.5, 0.35, {})).statement == "not reproduced (only credit_norm=none was run)"


def test_a_check_is_held_against_that_check():
    grown: Item = (FA, 0.401, 0.35, {"growth": 2000.0})  # D1 without D2: three-check passes it
    assert found("FA", grown).ours[0].answers == ("pass",) * 3
    assert found("FA, ResMLP: D1", grown).ours[0].answers == ("fail",) * 3
    assert found("FA, ResMLP: D2", grown).ours[0].answers == ("pass",) * 3


def test_mode_1_is_both_checks():
    grown: Item = (DFA, 0.306, 0.35, {"growth": 2000.0})
    what = "DFA, ResMLP: D1 + D2"
    assert found(what, grown).ours[0].answers == ("pass",) * 3
    assert found(what, DEGENERATE).ours[0].answers == ("fail",) * 3


def test_a_failure_names_its_checks():
    assert found("DFA", DEGENERATE).ours[0].text == "fails (D1, D2, D3; n=3)"
    assert found("FA", UNUSED).ours[0].text == "fails (D3; n=3)"


def test_versions_that_contradict_each_other_are_not_held_against():
    grown: Item = (FA, 0.401, 0.35, {"growth": 2000.0})
    o = found("FA, ResMLP without terminal LayerNorm: D1", grown, terminal_norm=False)
    assert o.ours[0].answers == ("fail",) * 3
    assert o.statement.startswith("not comparable because another sentence has FA below 10")


def test_another_network_or_length_is_another_verdict():
    assert found("FA, CIFAR-100", HEALTHY).kind == NOT_RUN
    assert (
        found("FA, d = 512, L = 2", HEALTHY, width=512, depth=2).statement
        == "not reproduced (only credit_norm=none was run)"
    )
    assert found("FA", HEALTHY, width=512, depth=2).kind == NOT_RUN
    short = found("FA", HEALTHY, epochs=30)
    assert short.statement == "not comparable because ours trained 30 epochs, the published 100 (the same verdict)"


@pytest.mark.parametrize(
    ("answers", "agrees", "text"),
    [
        (("fail", "fail"), True, "fails (n=2)"),
        (("pass",), False, "passes (n=1)"),
        (("pass", "fail", "fail"), None, "passes in 1 of 3 seeds, fails in 2 of 3 seeds"),
        (("inconclusive",), None, "inconclusive (n=1)"),
        (("not measured",), None, "not measured (n=1)"),
    ],
)
def test_seeds_must_agree(answers, agrees, text):
    ours = Judged("rms", answers, ("a",), 100)
    assert ours.agrees(passes=False) is agrees
    assert ours.text == text


def test_a_strategy_decides_as_the_ablation_does():
    blind = found("DFA: S1", DEGENERATE)  # accuracy above chance, Γ > 0
    assert (blind.said.passes, blind.ours[0].answers, blind.kind) == (True, ("pass",) * 3, ONE_RUN)
    scale = found("DFA: +(a)", DEGENERATE)
    assert (scale.said.passes, scale.ours[0].answers, scale.kind) == (False, ("fail",) * 3, ONE_RUN)
    assert found("DFA: +(a)", (DFA, 0.306, 0.35, {})).kind == NOT_ONE_RUN
    assert found("DFA: S0", (DFA, 0.098, 0.35, BROKEN)).ours[0].answers == ("fail",) * 3  # at chance
    assert found("FA, d = 512, L = 2: S1", UNUSED, width=512, depth=2).ours[0].answers == ("pass",) * 3


def test_an_interval_over_its_threshold_is_inconclusive():
    edge: Item = (FA, 0.3705, 0.35, {})
    runs = [r for r in pool(edge) if r.spec.seed == 42]  # one network: the interval is binomial, +-1.3 pp
    o = next(o for o in verdict_outcomes(runs) if o.said.what == "FA")
    assert (o.kind, o.statement) == (INCONCLUSIVE, "inconclusive (only credit_norm=none was run)")
    cases: list[tuple[Item, str]] = [((FA_RMS, 0.351, 0.35, {}), NOT_ONE_OPEN), ((FA_RMS, 0.451, 0.35, {}), ONE_OPEN)]
    for other, kind in cases:
        both = [*runs, *(r for r in pool(other) if r.spec.seed == 42)]
        assert (
            next(o.kind for o in verdict_outcomes(list({r.spec.hash: r for r in both}.values())) if o.said.what == "FA")
            == kind
        )


def test_the_page_shows_them_and_counts_what_was_tested():
    page = audit_page(pool(HEALTHY, UNUSED), [], [], "results")
    assert "| DFA | fails (D1, D2, D3) | – | not run | – |" in page
    tested = [o for o in verdict_outcomes(pool(HEALTHY, UNUSED)) if o.ours and o.kind != NOT_COMPARABLE]
    assert f"Of {len(tested)} published verdicts that our runs can test: " in page
    page = audit_page(pool(DEGENERATE), [], [], "results")
    assert (
        "Of 6 published decisions of reporting strategies that our runs can test: 6 reproduced with the one norm"
        in page
    )
    assert "| DFA: +(c) | passes (early version) | rms: passes (n=3) | reproduced with credit\\_norm=rms" in page


def test_the_verdicts_are_shown_with_and_without_depth():
    page = audit_page(pool((FA, 0.351, 0.35, {}), DEGENERATE), [], [], "results")
    table = page.partition("## Verdicts by both policies")[2].partition("## What we learned")[0]
    rows = {r.split(" | ")[0]: r.split(" | ")[-2:] for r in table.splitlines() if r.startswith("| ")}
    assert rows["| fa(none)"] == ["trustworthy", "needs walk-back: (d) depth |"]  # only (d) fails it
    assert rows["| dfa(rms)"][0] == "needs walk-back: (a) scale, (b) reference"
    assert rows["| dfa(rms)"][1] == "needs walk-back: (a) scale, (b) reference, (d) depth |"


def test_a_bundle_whose_accuracy_was_changed_is_inconsistent():
    """The second network shows .30 on its batches and states .60; the range over the seeds would hide it."""
    runs = [run(make("paper", DFA, seed), acc, shown=0.30) for seed, acc in ((42, 0.30), (123, 0.60))]
    (group,) = audit(runs)
    assert [r.status for r in group.reports] == ["incomplete", "inconsistent"]


def test_what_1_1_changes_is_told_with_its_reason():
    runs = [
        run(make("paper", DFA, 42), 0.30, shown=0.30),
        run(make("paper", BP, 42), 0.60, shown=0.30),
        run(make("paper", FA, 42), 0.40, **BROKEN),
    ]
    found = rejudged(runs)
    assert found.judged == 3
    assert dict(found.statuses) == {"incomplete": 1, "inconsistent": 1, "fail": 1}
    old = "trustworthy (D3 not measured)"
    assert {row[0]: (row[3], row[5]) for row in found.changes} == {
        "bp": (old, "the accuracy is not confirmed by the evaluation batches"),
        "dfa(rms)": (old, "the word only: D3 is not measured"),
    }
    assert any("share of the largest class" in row[0] and row[1] == "3 of 3" for row in found.gaps)
