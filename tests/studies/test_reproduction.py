"""Claims held against runs made by hand, where the statement is known; the lessons; and the page that shows them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.studies.test_analyses import line, run

from creditscope.render.reproduction import audit_page
from creditscope.studies.audit import audit
from creditscope.studies.catalogue import NAMES, get_study
from creditscope.studies.claims import dfa_null
from creditscope.studies.grid import BP, DFA, DFA_NONE, EP, FA, FA_RMS, SB, make
from creditscope.studies.learned import lessons
from creditscope.studies.published_claims import claims
from creditscope.studies.reproduction import (
    NOT_ONE_RUN,
    ONE_RUN,
    Outcome,
    difference_text,
    held_against,
    ours_text,
    outcomes,
    published_text,
    state,
)
from creditscope.studies.result import NotMeasured, Run

MARGIN = "{} minus frozen blocks, pp (ours: frozen(dfa, rms))"

NULLS = "The two kinds of frozen-blocks null, matched and bp"


def outcome(what: str, runs: list[Run]) -> Outcome:
    claim = next(c for c in claims() if c.what == what)  # the first of that name: the primary audit
    ours = held_against(claim, runs)
    return Outcome(claim, tuple(ours), *state(claim, ours))


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


def test_a_penalised_margin_is_to_the_null_after_100_epochs():
    """Published +18.3: .532 after 30 epochs minus .349 after 100; the null after 30 epochs is another network."""
    trained = make("paper", BP, 42, penalty=1e-2, intervention=True)
    short, long = dfa_null(trained), dfa_null(make("paper", BP, 42))
    assert (short.epochs, long.epochs) == (30, 100)
    what = MARGIN.format("BP λ = 0.01")
    found = outcome(what, [run(trained, 0.532), run(short, 0.45), run(long, 0.349)])
    assert (ours_text(found), found.statement) == ("+18.3 (n=1)", "reproduced")
    assert found.ours[0].hashes == (trained.hash, long.hash)
    assert not outcome(what, [run(trained, 0.532), run(short, 0.35)]).ours[0].values


def test_the_spread_over_seeds_widens_what_counts():
    """Published .306 ± .008; ours .34 with sample std .02: 2 sqrt(.008² + .02²) = .0431 > .034."""
    wide = [run(make("paper", DFA, s), a) for s, a in ((42, 0.32), (123, 0.34), (456, 0.36))]
    tight = [run(make("paper", DFA, s), a) for s, a in ((42, 0.339), (123, 0.34), (456, 0.341))]
    assert outcome("DFA: accuracy", wide).kind == ONE_RUN
    assert outcome("DFA: accuracy", tight).kind == NOT_ONE_RUN


def test_orders_of_magnitude_need_a_factor_of_three_and_the_sign():
    near = [run(make("paper", DFA, 42), 0.3, growth=700.0)]
    far = [run(make("paper", DFA, 42), 0.3, growth=570.0)]  # (2043 · 979 · 2545)^(1/3) / 570 = 3.02
    assert outcome("DFA: growth", near).statement == "reproduced with credit_norm=rms; the other was not run"
    assert outcome("DFA: growth", far).statement == "not reproduced (only credit_norm=rms was run)"
    good = [run(make("paper", FA, 42, penalty=1e-2, intervention=True), 0.3, nudge=-1e-4)]
    bad = [run(make("paper", FA, 42, penalty=1e-2, intervention=True), 0.3, nudge=+1e-4)]
    assert outcome("FA: nudging (all layers)", good).kind == ONE_RUN
    assert outcome("FA: nudging (all layers)", bad).kind == NOT_ONE_RUN


def test_other_lengths_of_training_are_not_comparable_and_nothing_is_not_run():
    short = [run(make("reduced", EP, 42), 0.316)]
    assert outcome("EP: accuracy", short).statement == (
        "not comparable because ours trained 30 epochs, the published 100, and the text gives the settings of EP in part "
        "(within the tolerance all the same)"
    )
    far = outcome("EP: accuracy", [run(make("reduced", EP, 42), 0.57)]).statement
    assert far.endswith("the settings of EP in part (outside the tolerance all the same)")
    assert outcome("EP: accuracy", []).statement == "not run"


def falling(seed: int, at: int | None) -> Run:
    """A DFA run whose ‖g_L‖ comes under 1e-7 at B = 1024 after this epoch."""
    lines = [{**line(e, 0.3), "g_per_sample": [1.0, 5e-5 if at is not None and e >= at else 1.0]} for e in range(101)]
    return run(make("paper", DFA, seed), 0.3, trajectory=lines)


def test_an_event_must_happen_in_every_seed():
    what = "DFA: ‖g_L‖ first under 1e-7 at B = 1024, epoch"
    assert outcome(what, [falling(42, 4), falling(123, 5), falling(456, 3)]).kind == ONE_RUN
    assert outcome(what, [falling(42, 6), falling(123, 1), falling(456, 1)]).kind == ONE_RUN  # 3 to 4, and 2 more
    assert outcome(what, [falling(42, 4), falling(123, 9), falling(456, 3)]).kind == NOT_ONE_RUN
    assert outcome(what, [falling(42, 4), falling(123, None), falling(456, 3)]).kind == NOT_ONE_RUN
    assert outcome(what, [falling(42, None)]).statement == "not reproduced: it does not happen in our runs"


def test_bounds_are_bounds():
    def grown(growth: float) -> list[Run]:
        return [run(make("paper", EP, 42), 0.3, growth=growth)]

    assert outcome("EP: growth", grown(1.1)).kind == "reproduced"
    assert outcome("EP: growth", grown(30.0)).kind == "not reproduced"


def test_a_run_counts_once_however_many_checkpoints_it_kept():
    twice = [run(make("paper", DFA, 42, checkpoint_epochs=c, intervention=True), 0.301) for c in ((), (1,))]
    (ours,) = outcome("DFA λ = 0: accuracy", twice).ours
    assert ours.values == (0.301,)
    assert len(audit([*twice])) == 1


def test_norms_that_trained_for_another_time_are_not_judged():
    runs = [run(make("paper", DFA_NONE, 42), 0.300), run(make("paper", DFA, 42, intervention=True), 0.401)]
    assert outcome("DFA: accuracy", runs).statement == "reproduced with credit_norm=none; the other was not run"


def test_what_is_exact_by_construction_is_not_comparable():
    assert outcome("FA: cosine at the deepest layer", [run(make("paper", FA, 42), 0.4)]).kind == "not comparable"


def test_a_run_without_level_full_leaves_its_claims_unmeasured():
    def nothing(epoch: int | None) -> Any:
        raise NotMeasured("not there")

    bare = dataclasses.replace(run(make("paper", FA, 42, penalty=1e-2, intervention=True), 0.37), full=nothing)
    assert outcome("FA: nudging (all layers)", [bare]).kind == "not comparable"
    assert outcome("FA λ = 0.01: accuracy", [bare]).kind == ONE_RUN


def test_a_range_counts_from_its_nearer_end():
    """Published .297 to .308 after epoch 5: .327 is within 2 pp of the upper end, .329 is not."""

    def after_five(accuracy: float) -> list[Run]:
        lines = [line(e, accuracy) for e in range(101)]
        return [run(make("paper", DFA, 42), accuracy, trajectory=lines)]

    assert outcome("DFA: accuracy after epoch 5", after_five(0.327)).kind == ONE_RUN
    assert outcome("DFA: accuracy after epoch 5", after_five(0.329)).kind == NOT_ONE_RUN
    assert published_text(outcome("DFA: accuracy after epoch 5", []).claim) == "0.297 to 0.308"


def test_orders_of_magnitude_are_averaged_by_their_exponents():
    """Published 1720: seeds 300, 3000, 90000 have the geometric mean 4327 (reproduced) and the mean 31100 (it would not be)."""
    runs = [run(make("paper", DFA, s), 0.3, growth=g) for s, g in ((42, 300.0), (123, 3000.0), (456, 90000.0))]
    found = outcome("DFA: growth", runs)
    assert found.kind == ONE_RUN
    assert ours_text(found) == "rms: 4327 (300 to 9.0e+04) (n=3)"
    assert outcome("DFA: growth", runs[2:]).kind == NOT_ONE_RUN


def test_runs_of_another_kind_do_not_count():
    others = [
        run(make("paper", DFA, 42, penalty=1e-2), 0.306),
        run(make("paper", DFA, 42, width=512), 0.306),
        run(make("paper", DFA, 42, credit_site="output"), 0.306),
        run(make("paper", DFA, 42, train_last=1), 0.306),
        run(make("paper", DFA, 42, targets="random"), 0.306),
        run(make("paper", DFA, 42, terminal_norm=False), 0.306),
        run(make("paper", DFA, 42, precision="bf16"), 0.306),
        run(make("paper", DFA, 42, lr=0.1), 0.306),
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
    assert "3.0 pp" in dict(lessons(with_nulls))[NULLS]


def test_lessons_compare_over_the_seeds_that_all_have():
    growth = {("fa", "none"): 10.0, ("fa", "rms"): 1000.0, ("dfa", "none"): 20.0, ("dfa", "rms"): 3000.0}
    runs = [
        run(make("paper", m, 42), 0.3, growth=growth[m["method"], m["credit_norm"]])
        for m in (FA, FA_RMS, DFA_NONE, DFA)
    ]
    more = [*runs, run(make("paper", FA, 123), 0.3, growth=5000.0)]
    told = dict(lessons(more))["Normalisation of the credit"]
    assert "(n=2)" in told
    assert "Over the seed that all have (42), from none to rms the growth changes by a factor 100 (FA)" in told
    null = [run(make("paper", m, 42).null("matched"), a) for m, a in ((FA, 0.35), (DFA, 0.32))]
    told = dict(lessons([*null, run(make("paper", FA, 123).null("matched"), 0.95)]))[NULLS]
    assert "over the seed that all have (42): 3.0 pp" in told
    apart = [
        *runs[:3],
        run(make("paper", DFA, 456), 0.3, growth=1.0),
        null[0],
        run(null[1].spec.model_copy(update={"seed": 7}), 0.3),
    ]
    everything = dict(lessons(apart))
    assert "No seed has all four" in everything["Normalisation of the credit"]
    assert "No seed has all of them" in everything[NULLS]


def test_the_floor_moves_with_the_batch_size():
    runs = [run(make("paper", DFA, 42), 0.3, g_128=4e-7), run(make("paper", FA, 42), 0.3, g_128=1e-5)]
    runs.append(run(make("paper", DFA, 123), 0.3, g_128=1e-9))  # under it at both: one seed does not speak for another
    runs.append(run(make("paper", SB, 42, epochs=30), 0.3, g_128=8e-7))  # shorter than the others
    told = dict(lessons(runs))["Batch size behind ‖g_L‖"]
    assert told.endswith(
        "Of the 4 networks of the primary audit (1 of them trained 30 epochs), above the floor 1e-07 at 128 and under it at "
        "1024: dfa(rms) seed 42 (4.0e-07 and 5.0e-08)."
    )


def test_the_contrast_of_methods_is_stated_for_both_sites():
    """Growth made by hand: at the output the method counts for less and the norm for more."""
    growth = {
        ("fa", "none"): {"input": 10.0, "output": 10.0},
        ("fa", "rms"): {"input": 30.0, "output": 500.0},
        ("dfa", "none"): {"input": 400.0, "output": 20.0},
        ("dfa", "rms"): {"input": 2400.0, "output": 1500.0},
    }
    runs = [
        run(
            make("paper", m, 42, intervention=True, credit_site=site),
            0.3,
            growth=growth[m["method"], m["credit_norm"]][site],
        )
        for m in (FA, FA_RMS, DFA_NONE, DFA)
        for site in ("input", "output")
    ]
    assert dict(lessons(runs))["Site of the credit"].endswith(
        " From FA to DFA the growth changes by a factor at the input 40 (none) and 80 (rms), against 3 (FA) and 6 (DFA) from "
        "none to rms; at the output 2 (none) and 3 (rms), against 50 (FA) and 75 (DFA) from none to rms (the seed that all have "
        "(42))."
    )
    assert "From FA to DFA" not in dict(lessons(runs[:-1]))["Site of the credit"]


def test_partly_trained_networks_are_no_part_of_the_comparison_of_sites():
    runs = [
        run(make("paper", FA, 42, intervention=True, **change), acc)
        for acc, change in (
            (0.40, {}),
            (0.39, {"credit_site": "output"}),
            (0.30, {"train_last": 3}),
            (0.2, {"train_last": 0}),
        )
    ]
    runs.append(run(make("paper", FA, 123, intervention=True), 0.5))  # a seed that the other site lacks
    assert "FA none: accuracy 0.400 (input) and 0.390 (output)" in dict(lessons(runs))["Site of the credit"]


def test_every_seed_counts():
    runs = [run(make("paper", FA, 42, width=512, depth=2), 0.1)]  # another study's seed
    runs.append(run(make("paper", DFA, 1, width=512, depth=2, intervention=True), 0.3))  # its null is not there yet
    for seed in range(1, 11):
        spec = make("paper", FA, seed, width=512, depth=2, intervention=True)
        failing = seed in (1, 2, 5, 7)
        runs += [run(spec, 0.30 if failing else 0.45), run(spec.null("matched"), 0.35)]
    told = dict(lessons(runs))["Selection of seeds"]
    assert "fa(none) fails D3 in 4 of 10 seeds" in told
    assert "dfa" not in told
    assert told.endswith("Published, after 100 epochs: both methods fail D3 in the three seeds that are shown.")


def test_the_page_shows_every_claim_with_its_numbers():
    runs = dfa(0.4004, 0.3104, (42, 123))
    page = audit_page(runs, [], ["depth: not run"], "results")
    assert (
        "| DFA: accuracy | 0.306 ± 0.008 (v1: .308) | none: 0.400 ± 0 (n=2); rms: 0.310 ± 0 (n=2) | "
        "none: +0.094; rms: +0.004 | reproduced only with credit\\_norm=rms | "
    ) in page
    assert all(f"| {c.what.split(':')[0]}" in page for c in claims())
    tables = page.split("## Published tables")[1].split("### Published verdicts")[0]
    rows = sum(line.startswith("| ") for line in tables.splitlines())
    assert rows == len(outcomes(runs)) + len({c.table for c in claims()})  # a line each, and the headers


@pytest.mark.parametrize("preset", ["paper", "reduced"])
def test_every_claim_is_about_some_run_of_the_plan(preset):
    """Otherwise it would say "not run" for ever; of what no study plans, the page says so by that."""
    planned = [Run(spec, [], {}) for name in NAMES for spec in get_study(name).specs(preset)]
    outside = {c.what.split(":")[0] for c in claims() if not any(map(c.about, planned))}
    assert outside == {f"small-cnn, {m}" for m in ("SB", "EP", "CB")}


def test_margins_are_to_the_null_of_the_same_seed():
    """.620 - .350 and .610 - .360: 27 and 25 pp, mean 26, sample standard deviation sqrt(2)."""
    trained = {42: 0.620, 123: 0.610, 456: 0.900}
    nulls = {42: 0.350, 123: 0.360}
    runs = [run(make("paper", BP, seed), acc) for seed, acc in trained.items()]
    runs += [run(dfa_null(make("paper", BP, seed)), acc) for seed, acc in nulls.items()]
    found = outcome(MARGIN.format("BP"), runs)
    assert ours_text(found) == "+26.0 ± 1.4 (n=2)"  # a seed without its null has no margin
    assert difference_text(found) == "-0.6"
    assert found.statement == "reproduced"
    assert len(found.ours[0].hashes) == 4  # those of the two margins, no others
    assert outcome(MARGIN.format("FA"), [run(make("paper", FA, 42), 0.4), *runs]).statement == (
        "reproduced with credit_norm=none; the other was not run"
    )
    worse = [run(make("paper", FA_RMS, 42), 0.36), *runs]
    assert outcome(MARGIN.format("FA"), worse).statement == ("not reproduced (only credit_norm=rms was run)")


def test_the_published_null_is_that_of_dfa_with_rms():
    null = dfa_null(make("paper", FA, 7, penalty=1e-2))
    assert null == make("paper", DFA, 7).null("matched")


def test_nudging_is_held_against_what_a_step_can_change():
    """SB: published 1.93e-3 / (.01 · 128 · 1.8e-4) = 8.4; ours 2e-4 / (.01 · 128 · 1e-4) = 1.56."""
    made = run(make("paper", SB, 42, penalty=1e-2, intervention=True), 0.45, nudge=-2e-4, g_128=1e-4)
    told = dict(lessons([made]))["The length of the nudging step"]
    assert "SB published 8.4, ours 1.6 (rms, n=1)." in told
    made = run(make("paper", DFA, 42, penalty=1e-2, intervention=True), 0.36, nudge=-5e-5, g_128=1e-5)
    told = dict(lessons([made]))["The length of the nudging step"]
    assert "DFA published 5.4, its ‖g_L‖ read at B ≈ 1024, ours 3.9 (rms, n=1)." in told  # not divided by 8 once more


def test_the_norm_that_the_published_values_fit():
    """DFA's accuracy .306 is ours with rms alone."""
    runs = [run(make("paper", m, 42), accuracy) for m, accuracy in ((DFA, 0.31), (DFA_NONE, 0.40))]
    told, ours = dict(lessons(runs)), [o.statement for o in outcomes(runs) if len(o.ours) == 2]
    rms, none = (sum(s == f"reproduced only with credit_norm={n}" for s in ours) for n in ("rms", "none"))
    assert rms >= 1
    assert (
        f"DFA: {rms} only with rms, {none} only with none, " in told["The normalisation that the published values fit"]
    )
    one = dict(lessons([run(make("paper", DFA, 42), 0.31)]))
    assert one["The normalisation that the published values fit"] == "The runs for this comparison are not there yet."
