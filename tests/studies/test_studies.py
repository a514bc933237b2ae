"""Every study on records made by hand, where the numbers of its table are known."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.studies.records import COSINES, Item, line, pool, record, with_nulls

from creditscope.credit.registry import all_rules
from creditscope.measure.facts import FreshB
from creditscope.protocol import DiagnosticThresholds
from creditscope.render.words import paragraph
from creditscope.runs.groups import NULL_KINDS, Outcome
from creditscope.runs.record import Record
from creditscope.studies import credit_norm, field, functional, learning_rates, rescue, seeds, temporal, thresholds
from creditscope.studies.catalogue import NAMES, RUNS, get_study, question
from creditscope.studies.grid import BP, CB, CLIP, DFA, DFA_NONE, EP, FA, FA_RMS, OUTPUT, PRESETS, SB, make
from creditscope.tables import Table
from creditscope.training.spec import RunSpec, make_spec

BROKEN: dict[str, Any] = {"growth": 2000.0, "g_128": 4e-9}
CLASSIC: tuple[Item, ...] = (
    (BP, 0.615, 0.35, {"cosines": (1.0,) * 5}),
    (FA, 0.401, 0.35, {}),
    (DFA, 0.306, 0.35, BROKEN),
)


def table(name: str, records: list[Record]) -> Table:
    return get_study(name).table(records)


def conclusion(found: Table) -> str:
    return paragraph(found.conclusion)


def unique(*pools: list[Record]) -> list[Record]:
    return list({r.spec.hash: r for records in pools for r in records}.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_grid_has_unique_runs_and_smoke_needs_no_file(name):
    for preset, runs in zip(PRESETS, RUNS[name], strict=True):
        specs = get_study(name).specs(preset)
        assert len({s.hash for s in specs}) == len(specs) == runs > 0
        assert preset != "smoke" or {s.dataset for s in specs} == {"quadratic"}


@pytest.mark.parametrize("name", NAMES)
def test_every_study_takes_no_runs_at_all_and_says_what_each_column_holds(name):
    found = table(name, [])
    assert (found.name, found.title, found.rows) == (name, question(name), ())
    assert paragraph((*found.conclusion, *found.convention))
    assert all(column.holds for column in found.columns)


def test_audit_shows_every_number_of_a_group_and_counts_failures():
    found = table("audit", pool(*CLASSIC))
    row = found.row(method="dfa(rms)")
    accuracies = 0.306 + 0.001 * np.arange(3)
    assert row["accuracy"].values == pytest.approx(accuracies)
    assert (row["accuracy"].value, row["accuracy"].std) == pytest.approx((accuracies.mean(), accuracies.std(ddof=1)))
    assert row.value("margin_matched") == pytest.approx(-4.4)
    assert row.value("gamma") == pytest.approx(np.mean(COSINES[:4]))  # a_4 trains nothing at site input
    assert row.value("gamma_all_layers") == pytest.approx(np.mean(COSINES))
    assert row.value("reference_norm_128") == pytest.approx(4e-9)
    assert row.value("finding").outcome is Outcome.FAIL
    assert len(row.runs) == row.value("seeds") == 3
    assert conclusion(found).startswith(
        "1 of 3 methods fail the protocol (dfa(rms)). S1, which looks at accuracy and Γ alone, accepts 1"
    )
    assert conclusion(table("audit", pool(*CLASSIC[:2], (DFA, 0.5, 0.35, {})))).startswith("0 of 3 methods fail")


def test_a_margin_beside_an_unmeasurable_d3_is_explained():
    """BP .40 over a null of .39 does not show depth utility; .61 does."""
    sentence = "D3 is not measurable where BP itself does not beat its null by the threshold"
    assert sentence in paragraph(table("audit", pool((BP, 0.40, 0.39, {}), (DFA, 0.30, 0.35, {}))).convention)
    assert sentence not in paragraph(table("audit", pool((BP, 0.61, 0.39, {}), (DFA, 0.30, 0.35, {}))).convention)


def test_ablation_finds_what_s1_accepts_and_s3_rejects():
    found = table("ablation", pool(*CLASSIC, (DFA_NONE, 0.351, 0.35, {})))
    row, accept, reject = found.row(method="dfa(rms)"), "accept", "reject"
    assert [row.value(s) for s in ("S0", "S1", "S2", "S3", "+(c)")] == [accept, accept, reject, reject, accept]
    assert "accepts 2 that the whole protocol (S3) rejects (dfa(rms) and dfa(none))" in conclusion(found)
    assert "1 of them only by D3 (dfa(none)). All four strategies accept bp and fa(none)." in conclusion(found)


def test_temporal_first_epoch_saving_and_false_stop():
    both = ("D1", "D2")
    lines = [line(0, 0.1), line(1, 0.2, ("D2",)), line(2, 0.30, both), line(3, 0.3), line(4, 0.31, both)]
    row = temporal.timing(record(make("paper", DFA, 42), 0.31, trajectory=lines))
    names = ("d1_epoch", "d2_epoch", "mode1_epoch", "accuracy_then", "saved", "false_stop")
    assert [row.value(n) for n in names] == [2, 1, 2, 0.30, 0.5, False]
    lines[-1] = line(4, 0.40, both)  # it rose by 10 pp after the stop
    late = [line(0, 0.1), line(1, 0.2), line(2, 0.3), line(3, 0.3, both), line(4, 0.3, both)]
    records = [record(make("paper", DFA, s), 0.4, trajectory=x) for s, x in ((42, lines), (123, late))]
    found = table("temporal", [*records, record(make("paper", BP, 42), 0.6)])
    assert found.values("false_stop") == (True, False, None)
    assert (
        "fires in 2 of 3 runs, at a median epoch of 2.5 (dfa(rms) 2 to 3). Stopping there would save 38 %"
        in conclusion(found)
    )
    drawn = found.plots[0].table
    assert drawn is not None
    assert drawn.row(method="dfa(rms)", epoch=4)["accuracy"].values == (0.40, 0.3)


def test_early_counts_mode_2_before_mode_1():
    # a_4 trains nothing at site input: .4 of .43 without it, less than half with it
    mode2 = (0.4, 0.01, 0.01, 0.01, 0.6)
    lines = [line(0, 0.1), line(1, 0.2, cosine=mode2), line(2, 0.3, ("D1", "D2"), cosine=(0.4, 0.0, 0.0, 0.0, 0.0))]
    even = [line(0, 0.1), line(1, 0.2, cosine=(0.1, 0.1, 0.1, 0.1, 1.0))]
    dfa, fa = (record(make("paper", m, 42), 0.3, trajectory=x) for m, x in ((DFA, lines), (FA, even)))
    found = table("early", [dfa, fa])
    first = found.row(method="dfa(rms)", epoch=1)
    assert first.value("top_share") == pytest.approx(0.4 / 0.43)
    assert first.value("deep_cosine") == pytest.approx(0.01)
    assert "appears in 1 of 2 runs, in 1 of them before Mode 1 or without it." in conclusion(found)
    top = [line(0, 0.1), line(1, 0.2, cosine=(0.1, 0.01, 0.01, 0.01, 1.0))]
    exact = record(make("paper", FA | OUTPUT, 42), 0.3, trajectory=top, exact_layers=(4,))
    assert conclusion(table("early", [exact])).endswith(
        "; in 1 of them the layer is one whose credit is exact by construction (FA: L)."
    )


def test_triangulation_reads_the_checkpoint():
    records = [
        record(make("paper", DFA, 42, checkpoint_epochs=(1,), intervention=True), 0.3, rho=0.002),
        record(make("paper", DFA, 42, penalty=1e-2, intervention=True), 0.36, rho=0.08),
    ]
    found = table("triangulation", records)
    assert found.values("state") == ("early", "converged", "penalised", "control a = g", "control a = random")
    assert found.values("rho") == (0.9, 0.002, 0.08, pytest.approx(0.99), pytest.approx(0.01))
    assert "best in the early state" in conclusion(found)


def test_penalty_gain_and_the_fragile_threshold():
    change: dict[str, Any] = {"intervention": True}
    records = unique(*(pool((DFA, acc, 0.35, {}), penalty=lam, **change) for lam, acc in ((0.0, 0.301), (1e-2, 0.365))))
    found = table("penalty", records)
    assert "dfa(rms) +6.4 pp at λ=0.01" in conclusion(found)
    assert "1 of 2 rows" in conclusion(found)  # a margin of 1.5 pp
    assert list(zip(found.values("point_1"), found.values("point_2"), strict=True)) == [
        ("fail", "fail"),
        ("pass", "fail"),
    ]


def test_a_penalty_of_one_seed_is_not_held_against_means():
    """λ = 1e-3 has seed 42 alone, where the gain is largest; ‖h_L‖ over seeds is a geometric mean."""
    accs = {(42, 0.0): 0.30, (42, 1e-4): 0.35, (42, 1e-3): 0.39, (123, 0.0): 0.34, (123, 1e-4): 0.35}
    records = []
    for (seed, lam), acc in accs.items():
        made = record(make("paper", DFA, seed, penalty=lam, intervention=True), acc)
        last = {**made.trajectory[-1], "h": [1.0] * 4 + [(1e4 if seed == 42 else 1e2) if lam == 0 else 10.0]}
        records.append(dataclasses.replace(made, trajectory=[*made.trajectory[:-1], last]))
    found = table("penalty", records)
    assert "dfa(rms) +3.0 pp at λ=0.0001 (n=2, ‖h_L‖ 1000 → 10)" in conclusion(found)
    assert found.rows[0].value("last_h") == pytest.approx(1000)


def test_capacity_compares_the_four_cells():
    cells = ((0.0, 0.585, 0.301), (1e-2, 0.532, 0.360))
    pools = (pool((BP, b, 0.35, {}), (DFA, d, 0.35, {}), penalty=lam, intervention=True) for lam, b, d in cells)
    sentence = "changes BP by -5.3 pp and dfa(rms) by +5.9 pp. The gap between them goes from +28.4 to +17.2"
    assert sentence in conclusion(table("capacity", unique(*pools)))


def test_functional_rank_correlation_by_hand():
    cosines = {"sb": 0.3, "fa": 0.4, "cb": 0.6, "dfa": 0.1}
    accuracy = {"sb": 0.45, "fa": 0.37, "cb": 0.36, "dfa": 0.35}
    items: list[Item] = [
        (m, accuracy[m["method"]], 0.34, {"cosines": (0.5, *(cosines[m["method"]],) * 4), "rho": cosines[m["method"]]})
        for m in (SB, FA, CB, DFA)
    ]
    change: dict[str, Any] = {"penalty": 1e-2, "intervention": True}
    found = table("functional", pool(*items, **change))
    ranks = functional.rank_correlations(found)
    # ranks of the cosine (sb 2, fa 3, cb 4, dfa 1), of accuracy (4, 3, 2, 1): 1 - 6·(4 + 0 + 4 + 0)/60
    assert ranks["accuracy"] == pytest.approx(0.2)
    assert ranks["rho"] == pytest.approx(1.0)
    assert "cb(rms, λ=0.01) has the highest cosine, while sb(rms, λ=0.01) has the highest accuracy" in conclusion(found)
    assert "dfa(rms, λ=0.01); means over 3 seeds) with" in conclusion(found)
    orders = [abs(stats.spearmanr(range(4), order).statistic) for order in itertools.permutations(range(4))]
    assert functional.chance_of_perfect_order(4) == pytest.approx(np.mean(np.isclose(orders, 1.0)))
    assert "With 4 points, a rank correlation of +1 or -1 arises by chance with p = 0.083." in conclusion(found)
    # FA exact at h_L: .05 without that layer (ranks fa 1, dfa 2, sb 3, cb 4), .2875 with it (dfa 1, fa 2, sb 3, cb 4)
    exact = {"cosines": (0.5, 0.05, 0.05, 0.05, 1.0), "exact_layers": (4,)}
    with_exact = table("functional", pool(items[0], (FA, 0.37, 0.34, exact), *items[2:], **change))
    assert functional.rank_correlations(with_exact)["accuracy"] == pytest.approx(0.0)  # 1 - 6·(4 + 1 + 1 + 4)/60
    every = functional.rank_correlations(with_exact, "deep_cosine_all_layers")
    assert every["accuracy"] == pytest.approx(0.4)  # 1 - 6·(0 + 1 + 1 + 4)/60
    alone = table("functional", pool(*items, seeds=(42,), **change))
    assert "dfa(rms, λ=0.01); one seed each) with" in conclusion(alone)
    two = conclusion(table("functional", pool(*items[:2], **change)))
    assert two.endswith("the highest accuracy."), "two points have no rank correlation"


def test_freshb_counts_runs_beyond_three_deviations():
    rng = np.random.default_rng(0)
    draws = tuple(rng.normal(0, 0.02, 20))
    shared: dict[str, Any] = {"trained": 0.16, "mean": np.mean(draws), "std": np.std(draws, ddof=1), "draws": draws}
    near, far = (FreshB(z=z, layers=(1,), seed=0, n_samples=256, **shared) for z in (1.0, 8.0))
    chosen = ((42, far), (123, near), (456, None))
    found = table("freshb", [record(make("paper", DFA, s, penalty=1e-2), 0.36, fresh=f) for s, f in chosen])
    assert conclusion(found).startswith("In 1 of 2 runs the trained matrices")
    assert "(dfa(rms, λ=0.01) s42)" in conclusion(found)
    redrawn = found.rows[0]["fresh_b_mean"]
    assert (redrawn.value, redrawn.std) == pytest.approx((np.mean(draws), np.std(draws, ddof=1)))
    assert found.rows[2]["fresh_b"].note == "not measured"
    assert "the same 256 samples" in paragraph(found.convention)
    assert any("not there in 1 of 3 rows" in note for note in found.notes)


def test_depth_compares_the_deepest_with_the_shallowest():
    pools = (pool((FA, a, 0.3, {}), depth=d, width=512) for d, a in ((4, 0.42), (2, 0.35)))
    found = table("depth", unique(*pools))
    assert found.values("L") == (2, 4)
    assert "fa +7.0 pp from L=2 to L=4" in conclusion(found)


def test_ladder_gains_are_paired():
    rungs = [record(make("paper", BP, 42, train_last=k), a) for k, a in ((0, 0.39), (2, 0.55), (4, 0.61))]
    found = table("ladder", rungs)
    assert found.values("gain") == (None, pytest.approx(16.0), pytest.approx(6.0))
    assert conclusion(found) == "bp is best with 4 trained blocks (of 0, 2, 4 tried; +22.0 pp over 0)."
    falling = [record(make("paper", DFA, 42, train_last=k), a) for k, a in ((0, 0.35), (4, 0.30))]
    assert conclusion(table("ladder", falling)) == "dfa(rms) is best with 0 trained blocks (of 0, 4 tried)."
    accs = {(0, 42): 0.39, (0, 123): 0.40, (4, 42): 0.60, (4, 123): 0.64}
    both = table("ladder", [record(make("paper", BP, s, train_last=k), a) for (k, s), a in accs.items()])
    ends = stats.ttest_1samp([21.0, 24.0], 0).confidence_interval()
    gain = both.rows[1]["gain"]
    assert (gain.value, gain.low, gain.high) == pytest.approx((22.5, *ends))


def test_credit_norm_weighs_the_method_against_the_norm():
    grown: list[Item] = [
        (m, 0.3, 0.2, {"growth": g}) for m, g in ((FA, 2.0), (FA_RMS, 60.0), (DFA_NONE, 4.0), (DFA, 100.0))
    ]
    assert (
        "by 30 (FA) and 25 (DFA). DFA instead of FA multiplies it by 2 (none) and 1.7 (rms). "
        "The method's factor is 0.067 times the norm's (95 % interval 0.067 to 0.067, paired t of the "
        "logarithms): the norm's is larger."
    ) in conclusion(table("credit-norm", pool(*grown)))
    one = conclusion(table("credit-norm", pool(*grown, seeds=(42,))))
    assert one.endswith("The method's factor is 0.067 times the norm's; one seed does not decide which is larger.")
    by_seed = {42: 0.93, 123: 3.03, 456: 4.38}  # of DFA none; FA rms is 1
    mixed = [
        record(make("paper", m, s), 0.3, growth=by_seed[s] if m is DFA_NONE else 1.0)
        for m in (FA, FA_RMS, DFA_NONE, DFA)
        for s in by_seed
    ]
    (statement,) = table("credit-norm", mixed).conclusion
    ends = np.exp(stats.ttest_1samp(np.log(list(by_seed.values())), 0).confidence_interval())
    weighed = statement.fields["weighed"]
    assert (weighed.fields["low"], weighed.fields["high"]) == pytest.approx(tuple(ends))
    assert weighed.name == "weighed: open"
    assert "1 of the 4 cells" in conclusion(table("credit-norm", pool(grown[0])))
    assert credit_norm.contrasts({("fa", "none"): 1, ("fa", "rms"): 2, ("dfa", "none"): 3, ("dfa", "rms"): 12}) == (
        [2, 4],
        [3, 6],
    )


def test_random_target_names_what_grows():
    def grown(method: dict[str, Any], h: float, seed: int = 42) -> Record:
        lines = [line(0, 0.1), line(1, 0.1, h=h / 2), line(2, 0.1, h=h)]
        return record(make("paper", method, seed, targets="random"), 0.1, trajectory=lines)

    found = table("random-target", [grown(DFA, 9768.0), grown(DFA, 2442.0, 123), grown(BP, 20.0)])
    assert "under 1 of 2 rules (dfa(rms, random targets))" in conclusion(found)
    assert found.values("last_h")[:3] == pytest.approx((16.0, 4884.0 / 2, 4884.0))  # geometric mean


def test_thresholds_gap_and_stability():
    assert thresholds.gap([1.0, 11.0], [694.0, 2000.0], True) == pytest.approx(694 / 11)
    assert thresholds.gap([1e-4, 1e-3], [4.2e-9], False) == pytest.approx(1e-4 / 4.2e-9)
    assert thresholds.gap([], [1.0], True) is None
    found = table("thresholds", pool(CLASSIC[0], CLASSIC[2]))
    assert conclusion(found).startswith("2 of 2 verdicts are the same at all 36 settings")
    assert "a factor of 1538 in growth" in conclusion(found)  # 2000 / 1.3
    assert found.values("agree") == (36, 36)


def test_seeds_share_with_clopper_pearson():
    assert (seeds.share(0, 10).low, seeds.share(0, 10).high) == pytest.approx((0.0, 0.30850), abs=1e-4)
    assert (seeds.share(10, 10).low, seeds.share(10, 10).high) == pytest.approx((0.69150, 1.0), abs=1e-4)
    found = table("seeds", pool((DFA, 0.3, 0.4, BROKEN)))
    assert "dfa(rms) fails in 3 of 3 seeds (95 % interval 0.29 to 1.00; 0 inconclusive)" in conclusion(found)
    assert found.values("status") == (Outcome.FAIL,) * 3
    records = [r for r in pool((FA, 0.3, 0.4, {})) if not (r.spec.frozen and r.spec.seed == 456)]
    sentence = conclusion(table("seeds", records))  # a seed without its null says nothing about D3
    assert "fa(none) fails in 2 of 2 seeds (95 % interval 0.16 to 1.00; 0 inconclusive; 1 more without" in sentence


def test_seeds_counts_every_choice_of_three():
    rng = np.random.default_rng(0)
    trained = {"fa(none)": rng.normal(0.37, 0.01, 7), "dfa(rms)": rng.normal(0.34, 0.02, 7)}
    null = rng.normal(0.35, 0.004, 7)
    records = unique(
        *(
            with_nulls(make("paper", method, k + 1), float(trained[name][k]), float(null[k]))
            for method, name in ((FA, "fa(none)"), (DFA, "dfa(rms)"))
            for k in range(7)
        )
    )
    found = seeds.selections(records)
    assert found is not None
    margins = {name: 100 * (values - null) for name, values in trained.items()}
    needed = DiagnosticThresholds().frozen_acc_margin_pp
    triples = list(itertools.combinations(range(7), 3))
    expected = {
        "below": {n: np.array([np.mean(m[list(t)]) < needed for t in triples]) for n, m in margins.items()},
        "fail": {
            n: np.array([stats.ttest_1samp(m[list(t)], 0).confidence_interval().high < needed for t in triples])
            for n, m in margins.items()
        },
    }
    assert (found.fields["choices"], found.fields["seeds"]) == (35, 7)
    assert 0 < expected["below"]["fa(none)"].sum() < 35  # a choice of seeds decides
    for reading, by_method in expected.items():
        assert {s.fields["label"]: s.fields["k"] for s in found.fields[reading]} == {
            n: b.sum() for n, b in by_method.items()
        }
        assert found.fields[f"every_{reading}"][0].fields["k"] == np.logical_and(*by_method.values()).sum()
    assert seeds.selections(pool((DFA, 0.3, 0.4, BROKEN))) is None  # three seeds: nothing to choose
    assert seeds.selections([]) is None


def test_architectures_and_cifar100():
    shapes: tuple[dict[str, Any], ...] = ({}, {"arch": "vit-mini"})
    records = unique(*(pool(CLASSIC[2], **shape) for shape in shapes))
    assert conclusion(table("architectures", records)) == (
        "2 of 2 pairs of architecture and method fail in every seed. Failing, by architecture: resmlp: dfa(rms); vit-mini: "
        "dfa(rms). With one seed: none. D3 not measured or not measurable: none."
    )
    alone = [r for r in records if r.spec.arch == "resmlp" or (r.spec.seed == 42 and not r.spec.frozen)]
    found = table("architectures", alone)
    assert conclusion(found).endswith("With one seed: vit-mini. D3 not measured or not measurable: vit-mini.")
    assert "resmlp d=256 L=4, 100 epochs, seeds 42, 123, 456; cifar10, vit-mini" in paragraph(found.convention)
    assert "100 epochs, seed 42; final checkpoint" in paragraph(found.convention)
    found = table("cifar100", pool(*CLASSIC, dataset="cifar100"))
    assert "1 of 3 methods fail on cifar100 (dfa(rms)). Highest accuracy: bp." in conclusion(found)


def test_recipe_has_a_row_per_setting():
    found = table("recipe", pool((DFA, 0.3, 0.35, BROKEN), (DFA | CLIP, 0.4, 0.35, {}), (FA, 0.4, 0.35, {})))
    rows = list(zip(found.values("method"), found.values("recipe"), strict=True))
    assert rows == [("fa", "none"), ("dfa", "rms, clip 1 per module"), ("dfa", "rms")]
    assert "1 of 2 recipes of dfa fail (dfa(rms))" in conclusion(found)


def test_rescue_ranks_what_passes_before_what_fails_and_counts_both():
    items: tuple[Item, ...] = (
        (FA, 0.45, 0.35, {}),
        (FA | OUTPUT, 0.50, 0.35, {}),
        (DFA, 0.60, 0.35, BROKEN),
        (DFA_NONE, 0.351, 0.35, {}),
    )
    records = pool(*items, dataset="quadratic", augment=False)
    best = [("fa", "none", "output"), ("fa", "none", "input"), ("dfa", "none", "input"), ("dfa", "rms", "input")]
    ranked = [g.spec for g in rescue.tried(records)]
    assert [(s.method, s.credit_norm, s.credit_site) for s in ranked] == best
    found = table("rescue", records)
    assert conclusion(found) == (
        "On quadratic (100 epochs), 2 of 4 recipes pass all three checks (2 of 2 with FA and 0 of 2 with DFA)."
    )
    assert list(zip(*(found.values(n) for n in ("method", "norm", "site")), strict=True)) == best
    assert found.values("d3") == ("pass", "pass", "fail", "pass")


def test_rescue_takes_a_recipe_to_cifar_with_the_same_multiples_of_the_usual_rates():
    for here in map(make_spec, rescue.search()):
        there = rescue.on_cifar(here, "paper", 42)
        assert (there.dataset, there.epochs) == ("cifar10", 30)
        assert there.lr == pytest.approx((here.lr or 0) / 2e-3 * 1e-3)
        assert (there.head_lr or there.lr) == pytest.approx((here.head_lr or here.lr or 0) / 2e-3 * 1e-3)
        same = ("method", "credit_norm", "credit_site", "grad_clip", "clip_over", "penalty")
        assert all(getattr(here, k) == getattr(there, k) for k in same)
    assert len({make_spec(r).hash for r in rescue.search()}) == 96


def test_rescue_goes_on_in_stages_each_chosen_from_the_one_before():
    """The six best of a whole search go to CIFAR-10, what passes there gets the other seeds, and the table shows it all."""

    def results(specs: list[RunSpec]) -> list[Record]:
        return [record(s, 0.35 if s.frozen else 0.4 + 0.01 * (s.credit_site == "output")) for s in specs]

    search = results(rescue.specs("paper"))
    assert rescue.then("paper", search[1:]) == rescue.then("paper", []) == []  # a choice from a part is none
    second = rescue.then("paper", search)
    trained = [s for s in second if not s.frozen]
    assert [(s.dataset, s.epochs, s.seed, s.credit_site) for s in trained] == [("cifar10", 30, 42, "output")] * 6
    assert {s.hash for s in second} == {s.hash for s in (*trained, *(s.null(k) for s in trained for k in NULL_KINDS))}
    on_cifar = [
        record(s, 0.35 if s.frozen else 0.4 if s.hash == trained[3].hash else 0.3) for s in second
    ]  # one of them passes
    assert rescue.then("paper", [*search, *on_cifar[1:]]) == second
    third = rescue.then("paper", [*search, *on_cifar])[len(second) :]
    assert [s for s in third if not s.frozen] == [trained[3].changed(seed=seed) for seed in (123, 456)]
    found = table("rescue", [*search, *on_cifar, *results(third)])
    rows = [row for row in found.rows if row.value("dataset") == "cifar10 (30 epochs)"]
    assert (len(found.rows), [row.value("seeds") for row in rows]) == (96 + 6, [3, 1, 1, 1, 1, 1])
    assert "On cifar10 (30 epochs), 1 of 6 recipes pass" in conclusion(found)


def test_ep_relaxation_says_where_it_stops_being_backpropagation():
    def relaxed(steps: int, cosine: float, left: float) -> Record:
        spec = make("paper", EP | {"options": {"steps": steps, "step_size": 0.1}}, 42, intervention=True)
        last = line(1, 0.5) | {"rule": {"residual": left}}
        return record(spec, 0.5, trajectory=[line(0, 0.1), last], cosines=(cosine,) * 5)

    bp = record(make("paper", BP, 42, intervention=True), 0.585, cosines=(1.0,) * 5)
    ways = [relaxed(50, 0.995, 0.02), relaxed(20, 0.991, 0.1), relaxed(12, 0.8, 0.3), relaxed(4, 0.1, 0.9)]
    found = table("ep-relaxation", [*ways, bp])
    assert conclusion(found) == (
        "Γ ≥ 0.99 in 2 of 4 relaxations. All of these end within 0.1 of the fixed point. Of the others, the nearest ends at "
        "0.3 (Γ 0.8), the farthest at 0.9 (Γ 0.1)."
    )
    assert found.values("steps") == (4, 12, 20, 50, None)
    assert found.values("minus_bp") == pytest.approx((-0.085,) * 4 + (0.0,))


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
    said = conclusion(table("field", pool((BP, 0.615, 0.35, {}), *CLASSIC[1:])))
    assert said.startswith("1 of 2 settings of rules pass the protocol (fa(none)). Failing: 1 (dfa(rms)).")
    assert "0 of 2 reach the accuracy of BP:" in said
    better = table("field", pool((BP, 0.615, 0.35, {}), (FA, 0.7, 0.35, {})))
    assert "1 of 1 reach the accuracy of BP (fa(none)):" in conclusion(better)


def test_all_three_rates_are_shown_and_the_best_is_named():
    specs = [s for s in learning_rates.specs("paper") if s.method == "kp"]
    assert [s.lr for s in specs] == [2e-3, 5e-4, 8e-3]
    found = table("learning-rates", [record(s, 0.3 + 0.1 * k) for k, s in enumerate(specs)])
    assert [(row.value("lr"), round(row.value("accuracy"), 3)) for row in found.rows] == [
        (5e-4, 0.4), (2e-3, 0.3), (8e-3, 0.5),
    ]  # fmt: skip
    assert conclusion(found).startswith("Best learning rate of those tried: 0.008 for kp.")
