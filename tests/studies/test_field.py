"""Field and learning rates on records made by hand."""

from __future__ import annotations

from tests.studies.records import pool, record

from creditscope.credit.registry import all_rules
from creditscope.render.words import paragraph
from creditscope.studies import field, learning_rates
from creditscope.studies.catalogue import get_study
from creditscope.studies.grid import BP, DFA, FA


def test_every_built_in_rule_is_in_the_field_with_its_nulls():
    built_in = {name for name, rule in all_rules().items() if rule.__module__.startswith("creditscope.")}
    assert {m["method"] for m in field.RULES} == built_in
    specs = field.specs("paper")
    assert {s.epochs for s in specs} == {30}
    hashes = {s.hash for s in specs}
    assert all({s.null("matched").hash, s.null("bp").hash} <= hashes for s in specs if not s.frozen)
    seeds = {m: {s.seed for s in specs if s.method == m and not s.frozen} for m in built_in}
    assert all(seeds[m] == ({42} if m in field.COSTLY else {42, 123, 456}) for m in built_in)


def test_the_rate_that_was_found_is_the_rate_of_all_runs_of_a_rule(monkeypatch):
    monkeypatch.setattr(field, "FACTORS", {"dfa(rms)": 4.0})
    rates = {(s.method, s.credit_norm): s.lr for s in field.specs("paper") if not s.frozen}
    assert (rates["dfa", "rms"], rates["dfa", "none"], rates["bp", None]) == (4e-3, 1e-3, 1e-3)


def test_the_field_counts_what_passes_and_what_reaches_bp():
    broken = {"growth": 2000.0, "g_128": 4e-9}
    records = pool((BP, 0.615, 0.35, {}), (FA, 0.401, 0.35, {}), (DFA, 0.306, 0.35, broken))
    conclusion = paragraph(get_study("field").table(records).conclusion)
    assert conclusion.startswith("1 of 2 settings of rules pass the protocol (fa(none)). Failing: 1 (dfa(rms)).")
    assert "0 of 2 reach the accuracy of BP:" in conclusion
    better = pool((BP, 0.615, 0.35, {}), (FA, 0.7, 0.35, {}))
    assert "1 of 1 reach the accuracy of BP (fa(none)):" in paragraph(get_study("field").table(better).conclusion)


def test_all_three_rates_are_shown_and_the_best_is_named():
    specs = [s for s in learning_rates.specs("paper") if s.method == "kp"]
    assert [s.lr for s in specs] == [2e-3, 5e-4, 8e-3]
    found = get_study("learning-rates").table([record(s, 0.3 + 0.1 * k) for k, s in enumerate(specs)])
    assert [(row.value("lr"), round(row.value("accuracy"), 3)) for row in found.rows] == [
        (5e-4, 0.4), (2e-3, 0.3), (8e-3, 0.5),
    ]  # fmt: skip
    assert paragraph(found.conclusion).startswith("Best learning rate of those tried: 0.008 for kp.")
