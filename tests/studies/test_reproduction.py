"""Claims held against runs made by hand, where the statement is known; the lessons; and the page that shows them."""

from __future__ import annotations

import pytest
from tests.studies.test_analyses import run

from creditscope.render.reproduction import audit_page
from creditscope.studies.grid import DFA, DFA_NONE, EP, FA, FA_RMS, make
from creditscope.studies.learned import lessons
from creditscope.studies.published_claims import claims
from creditscope.studies.reproduction import Outcome, held_against, outcomes, state
from creditscope.studies.result import Run


def outcome(what: str, runs: list[Run]) -> Outcome:
    claim = next(c for c in claims() if c.what == what)  # the first of that name: the primary audit
    ours = held_against(claim, runs)
    return Outcome(claim, tuple(ours), state(claim, ours))


def dfa(none: float, rms: float, seeds: tuple[int, ...] = (42,)) -> list[Run]:
    return [run(make("paper", m, s), acc) for s in seeds for m, acc in ((DFA_NONE, none), (DFA, rms))]


@pytest.mark.parametrize(
    ("none", "rms", "statement"),
    [
        (0.300, 0.310, "reproduced"),
        (0.400, 0.310, "reproduced only with credit_norm=rms"),
        (0.300, 0.200, "reproduced only with credit_norm=none"),
        (0.400, 0.200, "not reproduced"),
    ],
)
def test_an_accuracy_within_two_points_counts_and_the_norm_is_named(none, rms, statement):
    assert outcome("DFA: accuracy", dfa(none, rms)).statement == statement


def test_the_spread_over_seeds_widens_what_counts():
    """Published .306 ± .008; ours .34 with sample std .02: 2 sqrt(.008² + .02²) = .0431 > .034."""
    wide = [run(make("paper", DFA, s), a) for s, a in ((42, 0.32), (123, 0.34), (456, 0.36))]
    tight = [run(make("paper", DFA, s), a) for s, a in ((42, 0.339), (123, 0.34), (456, 0.341))]
    assert outcome("DFA: accuracy", wide).statement == "reproduced"
    assert outcome("DFA: accuracy", tight).statement == "not reproduced"


def test_orders_of_magnitude_need_a_factor_of_three_and_the_sign():
    near = [run(make("paper", DFA, 42), 0.3, growth=700.0)]
    far = [run(make("paper", DFA, 42), 0.3, growth=600.0)]  # 1856 / 600 = 3.09
    assert outcome("DFA: growth", near).statement == "reproduced"
    assert outcome("DFA: growth", far).statement == "not reproduced"
    good = [run(make("paper", FA, 42, penalty=1e-2, intervention=True), 0.3, nudge=-1e-4)]
    bad = [run(make("paper", FA, 42, penalty=1e-2, intervention=True), 0.3, nudge=+1e-4)]
    assert outcome("FA: nudging", good).statement == "reproduced"
    assert outcome("FA: nudging", bad).statement == "not reproduced"


def test_other_lengths_of_training_are_not_comparable_and_nothing_is_not_run():
    short = [run(make("reduced", EP, 42), 0.316)]
    assert outcome("EP: accuracy", short).statement == (
        "not comparable because ours trained 30 epochs, the published 100"
    )
    assert outcome("EP: accuracy", []).statement == "not run"


def test_a_check_that_never_fires_is_said():
    assert outcome("DFA: D2 first fires at epoch", dfa(0.3, 0.3)).statement == "not reproduced: the check does not fire"


def test_runs_of_another_kind_do_not_count():
    others = [
        run(make("paper", DFA, 42, penalty=1e-2), 0.306),
        run(make("paper", DFA, 42, width=512), 0.306),
        run(make("paper", DFA, 42, credit_site="output"), 0.306),
        run(make("paper", DFA, 42, train_last=1), 0.306),
        run(make("paper", DFA, 42, targets="random"), 0.306),
        run(make("paper", DFA, 42, terminal_norm=False), 0.306),
    ]
    assert outcome("DFA: accuracy", others).statement == "not run"


def test_the_lessons_follow_the_numbers():
    growth = {("fa", "none"): 10.0, ("fa", "rms"): 1000.0, ("dfa", "none"): 20.0, ("dfa", "rms"): 3000.0}
    runs = [
        run(make("paper", m, 42), 0.3, growth=growth[m["method"], m["credit_norm"]])
        for m in (FA, FA_RMS, DFA_NONE, DFA)
    ]
    told = dict(lessons(runs))
    assert (
        "by a factor 100 (FA) and 150 (DFA); from FA to DFA by 2 (none) and 3 (rms)"
        in told["Normalisation of the credit"]
    )
    assert told["Site of the credit"] == "The runs for this comparison are not there yet."
    with_nulls = [*runs, *(run(r.spec.null("matched"), 0.35 if r.spec.method == "fa" else 0.32) for r in runs)]
    assert "3.0 pp" in dict(lessons(with_nulls))["Two frozen-blocks nulls"]


def test_the_floor_moves_with_the_batch_size():
    runs = [run(make("paper", DFA, 42), 0.3, g_128=4e-7), run(make("paper", FA, 42), 0.3, g_128=1e-5)]
    told = dict(lessons(runs))["Batch size behind ‖g_L‖"]
    assert "dfa(rms) (4e-07 at 128, 5e-08 at 1024)" in told or "dfa(rms) (4.0e-07 at 128, 5.0e-08 at 1024)" in told
    assert "fa(none)" not in told


def test_seeds_that_were_chosen_are_counted_apart():
    runs = []
    for seed in range(1, 11):
        spec = make("paper", FA, seed, width=512, depth=2)
        failing = seed in (1, 2, 5, 7)
        runs += [run(spec, 0.30 if failing else 0.45), run(spec.null("matched"), 0.35)]
    told = dict(lessons(runs))["Selection of seeds"]
    assert "fa(none) fails D3 in 4 of 10 seeds" in told
    assert "3 of the 3 seeds that were published" in told


def test_the_page_shows_every_claim_with_its_numbers():
    runs = dfa(0.4004, 0.3104, (42, 123))
    page = audit_page(runs, [], ["depth: not run"], "results")
    assert (
        "| DFA: accuracy | 0.306 ± 0.008 | none: 0.400 ± 0 (n=2); rms: 0.310 ± 0 (n=2) | none: +0.094; rms: +0.004 | "
        "reproduced only with credit\\_norm=rms |"
    ) in page
    assert all(f"| {c.what.split(':')[0]}" in page for c in claims())
    tables = page.split("## Published tables")[1].split("## What we")[0]
    rows = sum(line.startswith("| ") for line in tables.splitlines())
    assert rows == len(outcomes(runs)) + len({c.table for c in claims()})  # a line each, and the headers
