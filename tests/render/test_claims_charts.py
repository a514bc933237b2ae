"""The figures of published values and ours: every testable claim has its row, and its mark says what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from creditscope.render.claims_charts import PUBLISHED, claims_charts
from creditscope.studies.claims import Claim, Closeness, accuracy
from creditscope.studies.published import Published
from creditscope.studies.reproduction import NOT_COMPARABLE, NOT_RUN, Ours, Outcome, outcomes, state

ROOT = Path(__file__).parents[2]


def outcome(what: str, closeness: Closeness, said: float, *ours: Ours, because: str = "") -> Outcome:
    claim = Claim("table", what, Published(said), accuracy, closeness, because=because)
    return Outcome(claim, ours, *state(claim, ours))


def ours(norm: str, *values: float, trained: int = 100) -> Ours:
    seeds = (42, 123, 456)[: len(values)]
    return Ours(norm, values, seeds, tuple(f"{s}" for s in seeds), True, trained)


def test_a_row_per_norm_with_the_published_value_and_a_cross_where_it_is_not_reproduced():
    held = [
        outcome("BP: accuracy", "accuracy", 0.60, ours("", 0.61)),
        outcome("FA λ = 0.01: accuracy", "accuracy", 0.40, ours("none", 0.41, 0.42), ours("rms", 0.30)),
    ]
    (dots,) = claims_charts(held)["claims-accuracy"]
    assert [row.name for row in dots.rows] == ["BP", "FA λ = 0.01 (none)", "✗ FA λ = 0.01 (rms)"]
    assert dots.rows[1].marks == [("seed 42", 0.41), ("seed 123", 0.42)]
    assert [row.hollow for row in dots.rows] == [[(PUBLISHED, 0.60)], [(PUBLISHED, 0.40)], [(PUBLISHED, 0.40)]]


def test_orders_of_magnitude_are_ratios_to_the_published():
    held = [outcome("DFA: ‖g_L‖ (ours at B = 128)", "order", 1e-6, ours("none", 2e-6), ours("rms", 1e-8))]
    (dots,) = claims_charts(held)["claims-order"]
    assert [row.name for row in dots.rows] == ["DFA (none): ‖g_L‖", "✗ DFA (rms): ‖g_L‖"]
    assert [row.marks[0][1] for row in dots.rows] == [pytest.approx(2), pytest.approx(0.01)]
    assert dots.log
    assert [level.value for level in dots.levels] == [pytest.approx(1 / 3), 3]


def test_what_cannot_be_compared_or_was_not_run_has_no_row():
    held = [
        outcome("EP: accuracy", "accuracy", 0.3, ours("", 0.5, trained=30)),
        outcome("FA: accuracy", "accuracy", 0.3, ours("none", 0.5), because="another network"),
        outcome("SB: accuracy", "accuracy", 0.3),
    ]
    assert [o.kind for o in held] == [NOT_COMPARABLE, NOT_COMPARABLE, NOT_RUN]
    assert claims_charts(held) == {}


def test_every_testable_claim_of_the_kept_results_is_drawn():
    from creditscope.runs.archive import Archive

    held = outcomes(Archive(ROOT / "results").runs())
    made = claims_charts(held)
    for kind in ("accuracy", "cosine", "order"):
        wanted = sum(
            bool(o.values) and o.trained == h.claim.epochs
            for h in held
            if h.claim.closeness == kind and h.kind not in (NOT_COMPARABLE, NOT_RUN)
            for o in h.ours
        )
        assert wanted > 10
        assert len(made[f"claims-{kind}"][0].rows) == wanted
