"""Every analysis on numbers made by hand, where the answer is known."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.protocol.factory import make_facts

from creditscope.files import plain
from creditscope.measure.facts import Facts, FreshB, LayerMeans, Nudging, Perturbation
from creditscope.protocol import DiagnosticThresholds
from creditscope.protocol.report import make_report
from creditscope.studies import (
    ablation,
    architectures,
    audit,
    capacity,
    cifar100,
    credit_norm,
    depth,
    early,
    ep_relaxation,
    freshb,
    functional,
    ladder,
    penalty,
    published,
    random_target,
    recipe,
    rescue,
    seeds,
    temporal,
    thresholds,
    triangulation,
)
from creditscope.studies.catalogue import NAMES, get_study
from creditscope.studies.grid import BP, CB, CLIP, DFA, DFA_NONE, EP, FA, FA_RMS, OUTPUT, SB, make
from creditscope.studies.published import ARCHITECTURE_ACCURACY, AUDIT_ACCURACY
from creditscope.studies.result import Run, StudyResult, beside
from creditscope.training.spec import RunSpec, make_spec

Item = tuple[dict[str, Any], float, float, dict[str, Any]]
"""Method, accuracy, accuracy of the nulls, facts."""
COMMON: dict[str, Any] = {"n_samples": 256, "samples": "", "dtype": "float64", "resolution": ""}


def means(value: float) -> LayerMeans:
    return LayerMeans(
        mean=(value,) * 5,
        std=(0.1,) * 5,
        measurable=(256,) * 5,
        deep_mean=value,
        deep_mean_without_exact=None,
        deep_mean_all_layers=value,
    )


def full_facts(base: Facts, rho: float, nudge: float = -1e-4, fresh: FreshB | None = None) -> Facts:
    p = Perturbation(
        credit=means(rho), reference=means(0.99), random=means(0.01), directions=32, epsilon=1e-3, seed=0, **COMMON
    )
    n = Nudging(credit=means(nudge), step=0.01, **COMMON)
    return base.model_copy(update={"perturbation": p, "nudging": n, "fresh_b": fresh})


def run(spec: RunSpec, accuracy: float, *, trajectory: list[dict[str, Any]] | None = None, rho: float = 0.1, nudge: float = -1e-4,
        fresh: FreshB | None = None, loss: float = -0.5, shown: float | None = None, **facts: Any) -> Run:  # fmt: skip
    """`shown`: its accuracy on the evaluation batches."""
    found = make_facts(depth=None, accuracy=shown, **{"cosines": (0.4, 0.1, 0.1, 0.1, 0.1), **facts})
    report = plain(make_report(found, headline_acc=accuracy, n_test=10_000).to_dict())
    lines = trajectory or [line(0, 0.1, loss=2.5), line(1, 0.2, loss=2.0), line(2, accuracy, loss=2.0 + loss)]
    return Run(spec, lines, report, full=lambda epoch: full_facts(found, rho if epoch is None else 0.9, nudge, fresh))


def line(
    epoch: int, accuracy: float, fired: tuple[str, ...] = (), h: float = 16.0, loss: float = 1.0, cosine: Any = None
) -> dict[str, Any]:
    return {"epoch": epoch, "accuracy": accuracy, "train_loss": loss, "h": [16.0, h], "g_per_sample": [0.1, 0.1], "growth": 1.0,
            "cosine": cosine or [0.4, 0.1, 0.1, 0.1, 0.1], "fired": list(fired), "gamma": 0.2}  # fmt: skip


def with_nulls(spec: RunSpec, accuracy: float, null: float, **facts: Any) -> list[Run]:
    nulls = {s.hash: s for s in (spec.null("matched"), spec.null("bp"))}.values()
    return [run(spec, accuracy, **facts), *(run(s, null) for s in nulls)]


def pool(*items: Item, **change: Any) -> list[Run]:
    """Three seeds of each (method, accuracy, accuracy of the nulls, facts); nulls that are shared stand once."""
    found: dict[str, Run] = {}
    for k, seed in enumerate((42, 123, 456)):
        for method, accuracy, null, facts in items:
            for r in with_nulls(make("paper", method, seed, **change), accuracy + 0.001 * k, null + 0.001 * k, **facts):
                found.setdefault(r.spec.hash, r)
    return list(found.values())


FA_OUT = {**FA, "credit_site": "output"}
BROKEN: dict[str, Any] = {"growth": 2000.0, "g_128": 4e-9}
CLASSIC: tuple[Item, ...] = (
    (BP, 0.615, 0.35, {"cosines": (1.0,) * 5}),
    (FA, 0.401, 0.35, {}),
    (DFA, 0.306, 0.35, BROKEN),
)


def test_a_verdict_against_the_bp_null_says_so():
    """Frozen blocks trained by BP are the stronger null: failing against them is not failing against the matched one."""
    runs = pool((BP, 0.615, 0.35, {"cosines": (1.0,) * 5}), (FA, 0.351, 0.35, {}))
    found = {g.label: g.finding for g in audit.audit(runs)}
    assert found == {"bp": "trustworthy", "fa(none)": "needs walk-back: D3 depth utility"}
    without = [r for r in runs if not (r.spec.frozen and r.spec.method == "fa")]
    found = {g.label: g.finding for g in audit.audit(without)}
    assert found == {"bp": "trustworthy", "fa(none)": "needs walk-back: D3 depth utility (bp null)"}
    (four,) = [g for g in audit.audit(without, protocol="four-diagnostic") if g.label == "fa(none)"]
    assert four.finding == "needs walk-back: (d) depth (bp null)"
    low = pool((BP, 0.351, 0.35, {}))  # its matched null is the bp null: nothing to add
    assert "(bp null)" not in audit.audit(low)[0].finding


def test_audit_counts_failures_and_shows_published_values():
    result = audit.analyse(pool(*CLASSIC))
    assert result.conclusion.startswith(
        "1 of 3 methods fail the protocol (dfa(rms)); accuracy and Γ alone would have praised 1"
    )
    row = next(r for r in result.rows if r[0] == "dfa(rms)")
    assert row[2:4] == ["0.306 ± 0.008!", "+0.001"]
    assert "walk-back" in row[-1]
    assert row[7].startswith("-4.4")


def test_audit_conclusion_follows_the_numbers():
    healthy = audit.analyse(pool(CLASSIC[0], CLASSIC[1], (DFA, 0.5, 0.35, {})))
    assert healthy.conclusion.startswith("0 of 3 methods fail")


def test_ablation_finds_what_s1_accepts_and_s3_rejects():
    unused: Item = (DFA_NONE, 0.351, 0.35, {})
    result = ablation.analyse(pool(*CLASSIC, unused))
    assert "accepts 2 that the whole protocol (S3) rejects (dfa(rms) and dfa(none))" in result.conclusion
    assert "1 of them only by D3 (dfa(none)); all four strategies accept bp and fa(none)." in result.conclusion
    cells = dict(zip(result.header, next(r for r in result.rows if r[0] == "dfa(rms)"), strict=True))
    assert [cells[s] for s in ("S0", "S1", "S2", "S3", "+(c)")] == ["accept", "accept", "reject", "reject", "accept"]


def test_temporal_first_epoch_saving_and_false_stop():
    lines = [
        line(0, 0.1),
        line(1, 0.2, ("D2",)),
        line(2, 0.30, ("D1", "D2")),
        line(3, 0.3),
        line(4, 0.31, ("D1", "D2")),
    ]
    found = temporal.timing(run(make("paper", DFA, 42), 0.31, trajectory=lines))
    assert (found["D1"], found["D2"], found["both"], found["saved"], found["false_stop"]) == (2, 1, 2, 0.5, False)
    lines[-1] = line(4, 0.40, ("D1", "D2"))
    assert temporal.timing(run(make("paper", DFA, 42), 0.4, trajectory=lines))["false_stop"] is True
    later = [line(0, 0.1), line(1, 0.2), line(2, 0.3), line(3, 0.3, ("D1", "D2")), line(4, 0.3, ("D1", "D2"))]
    runs = [run(make("paper", DFA, 42), 0.4, trajectory=lines), run(make("paper", DFA, 123), 0.3, trajectory=later)]
    result = temporal.analyse([*runs, run(make("paper", BP, 42), 0.6)])
    assert (
        "fires in 2 of 3 runs, at epoch 2.5 in the median (dfa(rms) 2 to 3); stopping there saves 38 % of a run's epochs on "
        "average, with 1 false" in result.conclusion
    )


def test_early_counts_mode_2_before_mode_1():
    # a_4 trains nothing at site input: .4 of .43 without it, less than half with it
    mode2 = [0.4, 0.01, 0.01, 0.01, 0.6]
    lines = [line(0, 0.1), line(1, 0.2, cosine=mode2), line(2, 0.3, ("D1", "D2"), cosine=[0.4, 0.0, 0.0, 0.0, 0.0])]
    even = [line(0, 0.1), line(1, 0.2, cosine=[0.1, 0.1, 0.1, 0.1, 1.0])]
    result = early.analyse([run(make("paper", DFA, 42), 0.3, trajectory=lines), run(make("paper", FA, 42), 0.3,
                            trajectory=even)])  # fmt: skip
    assert "appears in 1 of 2 runs, and in 1 of them before Mode 1 or without it." in result.conclusion
    top = [line(0, 0.1), line(1, 0.2, cosine=[0.1, 0.01, 0.01, 0.01, 1.0])]
    result = early.analyse([run(make("paper", FA_OUT, 42), 0.3, trajectory=top, exact_layers=(4,))])
    assert result.conclusion.endswith("; in 1 of them the layer is one whose credit is exact by construction (FA: L).")


def test_triangulation_reads_the_checkpoint():
    runs = [
        run(make("paper", DFA, 42, checkpoint_epochs=(1,), intervention=True), 0.3, rho=0.002),
        run(make("paper", DFA, 42, penalty=1e-2, intervention=True), 0.36, rho=0.08),
    ]
    result = triangulation.analyse(runs)
    assert [r[0] for r in result.rows] == [
        "dfa(rms) early",
        "dfa(rms) converged",
        "dfa(rms) penalised",
        "control a = g",
        "control a = random",
    ]
    assert result.rows[2][4:] == ["+0.080", "0.080 ± 0.012", "+0.000"]
    assert "best in the early state" in result.conclusion


def intervention(*items: Item, lam: float) -> list[Run]:
    return pool(*items, penalty=lam, intervention=True)


def test_a_margin_beside_an_unmeasurable_d3_is_explained():
    """BP .40 over a null of .39 does not show depth utility; .61 does."""
    told = "D3 not measurable: there BP itself does not beat its null by the threshold"
    assert told in audit.analyse(pool((BP, 0.40, 0.39, {}), (DFA, 0.30, 0.35, {}))).convention
    assert told not in audit.analyse(pool((BP, 0.61, 0.39, {}), (DFA, 0.30, 0.35, {}))).convention


def test_penalty_gain_and_the_fragile_threshold():
    runs = {
        r.spec.hash: r
        for lam, acc in ((0.0, 0.301), (1e-2, 0.365))
        for r in intervention((DFA, acc, 0.35, {}), lam=lam)
    }
    result = penalty.analyse(list(runs.values()))
    assert "dfa(rms) +6.4 pp at λ=0.01" in result.conclusion
    assert "1 of 2 rows" in result.conclusion  # a margin of 1.5 pp
    assert [r[-2:] for r in result.rows] == [["fail", "fail"], ["pass", "fail"]]


def test_a_penalty_of_one_seed_is_not_held_against_means():
    """λ = 1e-3 has seed 42 alone, where the gain is largest; ‖h_L‖ over seeds is a geometric mean."""
    accs = {(42, 0.0): 0.30, (42, 1e-4): 0.35, (42, 1e-3): 0.39, (123, 0.0): 0.34, (123, 1e-4): 0.35}
    runs = []
    for (seed, lam), acc in accs.items():
        made = run(make("paper", DFA, seed, penalty=lam, intervention=True), acc)
        last = {**made.trajectory[-1], "h": [1.0, (1e4 if seed == 42 else 1e2) if lam == 0 else 10.0]}
        runs.append(dataclasses.replace(made, trajectory=[*made.trajectory[:-1], last]))
    result = penalty.analyse(runs)
    assert "dfa(rms) +3.0 pp at λ=0.0001 (n=2, ‖h_L‖ 1e+03 → 10)" in result.conclusion
    assert result.rows[0][result.header.index("‖h_L‖")] == "1000"


def test_capacity_compares_the_four_cells():
    runs: dict[str, Run] = {}
    for lam, bp, dfa in ((0.0, 0.585, 0.301), (1e-2, 0.532, 0.360)):
        runs |= {r.spec.hash: r for r in intervention((BP, bp, 0.35, {}), (DFA, dfa, 0.35, {}), lam=lam)}
    assert (
        "changes BP by -5.3 pp and dfa(rms) by +5.9 pp; the gap between them goes from +28.4 to +17.2"
        in capacity.analyse(list(runs.values())).conclusion
    )


def test_functional_rank_correlation_by_hand():
    cosines = {"sb": 0.3, "fa": 0.4, "cb": 0.6, "dfa": 0.1}
    accuracy = {"sb": 0.45, "fa": 0.37, "cb": 0.36, "dfa": 0.35}
    items = [
        (m, accuracy[m["method"]], 0.34, {"cosines": (0.5, *(cosines[m["method"]],) * 4), "rho": cosines[m["method"]]})
        for m in (SB, FA, CB, DFA)
    ]
    result = functional.analyse(intervention(*items, lam=1e-2))
    ranks = result.figure["rank_correlation"]
    # ranks of the cosine (sb 2, fa 3, cb 4, dfa 1), of accuracy (4, 3, 2, 1): 1 - 6·(4 + 0 + 4 + 0)/60
    assert ranks["accuracy"] == pytest.approx(0.2)
    assert ranks["ρ"] == pytest.approx(1.0)
    assert "cb(rms, λ=0.01) has the highest cosine, while sb(rms, λ=0.01) has the highest accuracy" in result.conclusion
    assert "dfa(rms, λ=0.01); means over 3 seeds) with" in result.conclusion
    orders = [abs(stats.spearmanr(range(4), order).statistic) for order in itertools.permutations(range(4))]
    assert functional.chance_of_perfect_order(4) == pytest.approx(np.mean(np.isclose(orders, 1.0)))
    assert "With 4 points, a rank correlation of +1 or -1 arises by chance with p = 0.083." in result.conclusion
    # published: cosine dfa < sb < fa < cb; nudging dfa < fa < cb < sb; loss dfa < cb < fa < sb; accuracy dfa = cb < fa < sb
    assert result.conclusion.endswith("published values: accuracy -0.11, nudging +0.40, loss decrease +0.20.")
    expected = stats.pearsonr([1, 2, 3, 4], [1.5, 4, 3, 1.5]).statistic
    assert functional.published_ranks()["accuracy"] == pytest.approx(expected)
    # FA exact at h_L: .05 without that layer (ranks fa 1, dfa 2, sb 3, cb 4), .2875 with it (dfa 1, fa 2, sb 3, cb 4)
    exact = {"cosines": (0.5, 0.05, 0.05, 0.05, 1.0), "exact_layers": (4,)}
    with_exact = functional.analyse(intervention(items[0], (FA, 0.37, 0.34, exact), *items[2:], lam=1e-2))
    assert with_exact.figure["rank_correlation"]["accuracy"] == pytest.approx(0.0)  # 1 - 6·(4 + 1 + 1 + 4)/60
    assert "as in the published values: accuracy +0.40," in with_exact.conclusion  # 1 - 6·(0 + 1 + 1 + 4)/60
    alone = functional.analyse([r for r in intervention(*items, lam=1e-2) if r.spec.seed == 42])
    assert "dfa(rms, λ=0.01); one seed each) with" in alone.conclusion
    two = functional.analyse(intervention(*items[:2], lam=1e-2))
    assert "over 2 methods" in two.conclusion
    assert two.conclusion.endswith("the highest accuracy."), "two points have no rank correlation"


def test_freshb_counts_runs_beyond_three_deviations():
    near, far = (FreshB(trained=0.16, mean=0.0, std=0.02, z=z, draws=(0.0,), layers=(1,), seed=0) for z in (1.0, 8.0))
    result = freshb.analyse(
        [run(make("paper", DFA, s, penalty=1e-2), 0.36, fresh=f) for s, f in ((42, far), (123, near))]
    )
    assert result.conclusion.startswith("in 1 of 2 runs (dfa(rms, λ=0.01) s42)")
    assert [r[3] for r in result.rows] == ["0.166", "–"]  # published of seed 42 alone


def test_depth_ladder_and_credit_norm():
    by_depth = {r.spec.hash: r for d, a in ((2, 0.35), (4, 0.42)) for r in pool((FA, a, 0.3, {}), depth=d, width=512)}
    result = depth.analyse(list(by_depth.values()))
    assert "fa +7.0 pp from L=2 to L=4" in result.conclusion
    rungs = [run(make("paper", BP, 42, train_last=k), a) for k, a in ((0, 0.39), (2, 0.55), (4, 0.61))]
    assert ladder.analyse(rungs).conclusion == "bp is best with 4 trained blocks (of 0, 2, 4; +22.0 pp over 0)."
    falling = [run(make("paper", DFA, 42, train_last=k), a) for k, a in ((0, 0.35), (4, 0.30))]
    assert ladder.analyse(falling).conclusion == "dfa(rms) is best with 0 trained blocks (of 0, 4)."
    grown = [(m, 0.3, 0.2, {"growth": g}) for m, g in ((FA, 2.0), (FA_RMS, 60.0), (DFA_NONE, 4.0), (DFA, 100.0))]
    assert (
        "by 30 (FA) and 25 (DFA); DFA instead of FA by 2 (none) and 1.7 (rms): the method's factor is 0.067 times the norm's "
        "(95 % interval 0.067 to 0.067, paired t of the logarithms): the norm's is larger."
    ) in credit_norm.analyse(pool(*grown)).conclusion
    one = credit_norm.analyse([r for r in pool(*grown) if r.spec.seed == 42])
    assert one.conclusion.endswith(
        "the method's factor is 0.067 times the norm's; one seed does not decide which is larger."
    )
    by_seed = {42: 0.93, 123: 3.03, 456: 4.38}  # of DFA none; FA rms is 1
    mixed = [
        run(make("paper", m, s), 0.3, growth=by_seed[s] if m is DFA_NONE else 1.0)
        for m in (FA, FA_RMS, DFA_NONE, DFA)
        for s in by_seed
    ]
    logs = np.log(list(by_seed.values()))
    ends = np.exp(stats.ttest_1samp(logs, 0).confidence_interval())
    assert f"interval {ends[0]:.2g} to {ends[1]:.2g}, " in credit_norm.analyse(mixed).conclusion
    assert credit_norm.analyse(mixed).conclusion.endswith("which is larger is not decided.")
    assert "1 of the 4 cells" in credit_norm.analyse(pool(grown[0])).conclusion


def test_random_target_names_what_grows():
    def grown(method: dict[str, Any], h: float) -> Run:
        lines = [line(0, 0.1), line(1, 0.1, h=h / 2), line(2, 0.1, h=h)]
        return run(make("paper", method, 42, targets="random"), 0.1, trajectory=lines)

    result = random_target.analyse([grown(DFA, 9768.0), grown(BP, 20.0)])
    assert "under 1 of 2 rules (dfa(rms, random targets))" in result.conclusion
    assert result.rows[2][2:5] == ["9768", "9768", "+0"]


def test_thresholds_gap_and_stability():
    assert thresholds.gap([1.0, 11.0], [694.0, 2000.0], True) == pytest.approx(694 / 11)
    assert thresholds.gap([1e-4, 1e-3], [4.2e-9], False) == pytest.approx(1e-4 / 4.2e-9)
    assert thresholds.gap([], [1.0], True) is None
    result = thresholds.analyse(pool(CLASSIC[0], CLASSIC[2]))
    assert result.conclusion.startswith("2 of 2 verdicts are the same at all 36 settings")


def test_seeds_share_with_clopper_pearson():
    assert seeds.share_interval(0, 10) == pytest.approx((0.0, 0.30850), abs=1e-4)
    assert seeds.share_interval(10, 10) == pytest.approx((0.69150, 1.0), abs=1e-4)
    result = seeds.analyse(pool((DFA, 0.3, 0.4, BROKEN)))
    assert "dfa(rms) fails in 3 of 3 seeds (95 % interval 0.29 to 1.00; 0 inconclusive)" in result.conclusion
    runs = [r for r in pool((FA, 0.3, 0.4, {})) if not (r.spec.frozen and r.spec.seed == 456)]
    result = seeds.analyse(runs)  # a seed without its null says nothing about D3
    assert (
        "fa(none) fails in 2 of 2 seeds (95 % interval 0.16 to 1.00; 0 inconclusive; 1 more without"
        in result.conclusion
    )


def test_seeds_counts_every_choice_of_three():
    rng = np.random.default_rng(0)
    trained = {"fa(none)": rng.normal(0.37, 0.01, 7), "dfa(rms)": rng.normal(0.34, 0.02, 7)}
    null = rng.normal(0.35, 0.004, 7)
    runs = [
        r
        for method, name in ((FA, "fa(none)"), (DFA, "dfa(rms)"))
        for k in range(7)
        for r in with_nulls(make("paper", method, k + 1), float(trained[name][k]), float(null[k]))
    ]
    found = seeds.selections(list({r.spec.hash: r for r in runs}.values()))
    margins = {name: 100 * (values - null) for name, values in trained.items()}
    needed = DiagnosticThresholds().frozen_acc_margin_pp
    triples = list(itertools.combinations(range(7), 3))
    below = {n: np.array([np.mean(m[list(t)]) < needed for t in triples]) for n, m in margins.items()}
    fail = {
        n: np.array([stats.ttest_1samp(m[list(t)], 0).confidence_interval().high < needed for t in triples])
        for n, m in margins.items()
    }
    assert (found["choices"], found["seeds"]) == (35, [1, 2, 3, 4, 5, 6, 7])
    assert 0 < below["fa(none)"].sum() < 35  # a choice of seeds decides
    assert found["below"] == {n: b.sum() for n, b in below.items()}
    assert found["fail"] == {n: f.sum() for n, f in fail.items()}
    assert found["every"] == {
        "below": (below["fa(none)"] & below["dfa(rms)"]).sum(),
        "fail": (fail["fa(none)"] & fail["dfa(rms)"]).sum(),
    }
    said = seeds.selection_text(found)
    assert said.startswith(
        "Of the 35 choices of 3 of the 7 seeds that have their nulls, the mean margin is below the threshold of D3: "
    )
    assert f"fa(none) in {below['fa(none)'].sum()}, " in said


def test_published_accuracies_of_architectures_belong_to_networks_that_have_runs():
    names = {architectures.network_name(s) for s in architectures.specs("paper")}
    assert {name for name, _ in ARCHITECTURE_ACCURACY} <= names


def test_seeds_chooses_nothing_where_there_is_no_choice():
    assert seeds.selection_text(seeds.selections(pool((DFA, 0.3, 0.4, BROKEN)))) == ""
    assert seeds.selections([])["choices"] == 0


def test_architectures_and_cifar100():
    groups = {r.spec.hash: r for shape in ({}, {"arch": "vit-mini"}) for r in pool(CLASSIC[2], **shape)}
    result = architectures.analyse(list(groups.values()))
    assert result.conclusion == (
        "2 of 2 pairs of architecture and method fail in every seed; failing by architecture: resmlp: dfa(rms); vit-mini: "
        "dfa(rms); with one seed: none; where D3 is not measured or not measurable: none."
    )
    alone = [r for r in groups.values() if r.spec.arch == "resmlp" or (r.spec.seed == 42 and not r.spec.frozen)]
    result = architectures.analyse(alone)
    assert result.conclusion.endswith("with one seed: vit-mini; where D3 is not measured or not measurable: vit-mini.")
    assert "resmlp d=256 L=4, 100 epochs, seeds 42, 123, 456; cifar10, vit-mini" in result.convention
    assert "100 epochs, seed 42; final checkpoint" in result.convention
    result = cifar100.analyse(pool(*CLASSIC, dataset="cifar100"))
    assert "1 of 3 methods fail on cifar100 (dfa(rms)); highest accuracy: bp." in result.conclusion


def course(g: tuple[float, float, float], accuracy: float) -> list[dict[str, Any]]:
    """A trajectory whose ‖g_L‖/128 after epochs 1 to 3 is `g`."""
    lines = [line(0, 0.1), *(line(k, accuracy) for k in (1, 2, 3))]
    return [x | {"g_per_sample": [0.1, 128 * v]} for x, v in zip(lines, (1.0, *g), strict=True)]


def test_recipe_measures_the_distance_to_published_values_by_hand():
    """Published ‖g_L‖/128 of DFA after epochs 1 to 3: 1.1e-5, 2.4e-6, 1.0e-6. One recipe has ten times that, one a tenth
    at the last alone."""
    far, near = (1.1e-4, 2.4e-5, 1.0e-5), (1.1e-5, 2.4e-6, 1.0e-7)
    runs = [
        run(make("paper", DFA | clip, seed), acc, trajectory=course(g, acc))
        for clip, g, acc in (({}, far, 0.290), (CLIP, near, 0.306))
        for seed in (42, 123)
    ]
    found = {c.name: c for c in recipe.candidates(runs)}
    assert set(found) == {"rms", "rms, clip 1 per module"}
    assert found["rms"].chosen.orders == pytest.approx((1, 1, 1))
    assert found["rms, clip 1 per module"].chosen.orders == pytest.approx((0, 0, -1))
    assert found["rms"].chosen.text[0] == "1 (n=3)"
    assert found["rms, clip 1 per module"].chosen.text[0] == "0.58 (n=3)"  # 1 / sqrt 3
    result = recipe.analyse(runs)
    assert "dfa(rms, clip 1 per module) of 2 recipes" in result.conclusion
    assert "they fit, no more" in result.conclusion
    accuracy = next(c for c in recipe.primary_claims() if c.what == "DFA: accuracy")
    z = recipe.distance([accuracy], [r for r in runs if not r.spec.grad_clip])
    assert z.z == pytest.approx(((0.290 - 0.306) / 0.008,))
    assert not z.other_length
    short = [run(make("paper", DFA, 42, intervention=True), 0.29)]
    assert recipe.distance([accuracy], short).other_length


def test_recipe_holds_back_what_did_not_choose():
    held = recipe.primary_claims()
    dfa = [c for c in held if c.runs.get("method") == "dfa" and recipe.chooses(c, True)]
    assert [c.what for c in dfa] == [f"DFA: ‖g_L‖ after epoch {k}" for k in (1, 2, 3)]
    fa = [c for c in held if c.runs.get("method") == "fa" and recipe.chooses(c, False)]
    assert [c.what for c in fa] == ["FA: accuracy"]


def test_rescue_ranks_what_passes_before_what_fails_and_counts_both():
    items: tuple[Item, ...] = (
        (FA, 0.45, 0.35, {}),
        (FA | OUTPUT, 0.50, 0.35, {}),
        (DFA, 0.60, 0.35, BROKEN),
        (DFA_NONE, 0.351, 0.35, {}),
    )
    runs = pool(*items, dataset="quadratic", augment=False)
    ranked = [g.spec for g in rescue.best(runs)]
    assert [(s.method, s.credit_norm, s.credit_site) for s in ranked] == [
        ("fa", "none", "output"), ("fa", "none", "input"), ("dfa", "none", "input"), ("dfa", "rms", "input"),
    ]  # fmt: skip
    result = rescue.analyse(runs)
    assert result.conclusion == "on quadratic 2 of 4 recipes pass all three checks (2 of FA and 0 of DFA)."
    assert [r[1:4] for r in result.rows] == [
        ["fa", "none", "output"],
        ["fa", "none", "input"],
        ["dfa", "none", "input"],
        ["dfa", "rms", "input"],
    ]


def test_rescue_takes_a_recipe_to_cifar_with_the_same_multiples_of_the_usual_rates():
    for found in rescue.search():
        here, there = make_spec(found), rescue.on_cifar(found, "paper", 42)
        assert (there.dataset, there.epochs) == ("cifar10", 30)
        assert there.lr == pytest.approx((here.lr or 0) / 2e-3 * 1e-3)
        assert (there.head_lr or there.lr) == pytest.approx((here.head_lr or here.lr or 0) / 2e-3 * 1e-3)
        same = ("method", "credit_norm", "credit_site", "grad_clip", "clip_over", "penalty")
        assert all(getattr(here, k) == getattr(there, k) for k in same)
    assert len({make_spec(r).hash for r in rescue.search()}) == 96


def test_ep_relaxation_says_where_it_stops_being_backpropagation():
    def relaxed(steps: int, cosine: float, left: float) -> Run:
        spec = make("paper", EP | {"options": {"steps": steps, "step_size": 0.1}}, 42, intervention=True)
        last = line(1, 0.5) | {"rule": {"residual": left}}
        return run(spec, 0.5, trajectory=[line(0, 0.1), last], cosines=(cosine,) * 5)

    bp = run(make("paper", BP, 42, intervention=True), 0.585, cosines=(1.0,) * 5)
    runs = [relaxed(50, 0.995, 0.02), relaxed(20, 0.991, 0.1), relaxed(12, 0.8, 0.3), relaxed(4, 0.1, 0.9), bp]
    result = ep_relaxation.analyse(runs)
    assert result.conclusion == (
        "Γ ≥ 0.99 in 2 of 4 relaxations; all of them within 0.1 of the fixed point; the nearest that is another credit ends at "
        "0.3 (Γ 0.8), the farthest at 0.9 (Γ 0.1)."
    )
    assert [r[1] for r in result.rows] == ["4", "12", "20", "50", "–"]
    assert result.rows[0][-1] == "0.9"


@pytest.mark.parametrize("name", NAMES)
def test_every_grid_has_unique_runs_and_smoke_needs_no_file(name):
    for preset in ("smoke", "quick", "paper"):
        specs = get_study(name).specs(preset)
        assert len({s.hash for s in specs}) == len(specs) > 0
        assert preset != "smoke" or {s.dataset for s in specs} == {"quadratic"}


@pytest.mark.parametrize("name", NAMES)
def test_every_analysis_survives_an_empty_grid(name):
    result = get_study(name).analyse([])
    assert isinstance(result, StudyResult)
    assert result.name == name


def test_beside():
    assert beside(AUDIT_ACCURACY["fa"], 0.411) == ["0.401 ± 0.009", "+0.010"]
    assert beside(None, 0.4) == ["–", "–"]
    assert beside(AUDIT_ACCURACY["bp"], None) == ["0.615 ± 0.004!", "–"]


def test_published_values_stand_only_next_to_the_networks_that_they_are_about():
    said = published.audit_accuracy
    assert said(make("paper", DFA, 42)) == AUDIT_ACCURACY["dfa"]
    assert said(make("paper", DFA, 42, train_last=0)) == AUDIT_ACCURACY["frozen"]
    assert said(make("paper", FA, 42, train_last=0)) is None
    for k in (0, 1, 2, 3):
        assert said(make("paper", DFA, 42, train_last=k, intervention=True)) is None
    assert said(make("paper", DFA, 42, intervention=True)) == published.PENALTY_ACCURACY["dfa", 0.0]
    sb = said(make("reduced", SB, 42))
    assert sb is not None
    assert sb.text == "0.205 ± 0.039 (at 100 epochs)"
    assert said(make("paper", DFA, 42, width=512)) is None


def test_a_margin_to_the_matched_null_is_never_that_to_another():
    spec = make("paper", DFA, 42)
    (group,) = audit.audit([run(spec, 0.36), run(spec.null("bp"), 0.40)])
    assert audit.margin_pp(group) is None
    assert audit.margin_interval(group) is None
    assert audit.margin_text(group, "matched") == "–"
    assert audit.margin_text(group, "bp").startswith("-4.0")
