"""Each quantity, read from a record made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.refusals import refusal
from tests.studies.records import line, pool, record

from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.quantities import QUANTITIES, Quantity, get_quantity, register, standard
from creditscope.runs.groups import audit
from creditscope.runs.record import Record
from creditscope.studies.catalogue import get_study
from creditscope.studies.grid import DFA, FA, OUTPUT, make
from creditscope.tables import Cell

COSINE = (0.5, 0.3, -0.1, 0.2, 0.9)


def one(method=DFA, **change) -> Record:
    lines = [
        line(0, 0.1, loss=2.4),
        line(1, 0.2, ("D1",), h=20.0, loss=2.0, cosine=COSINE),
        line(2, 0.3, ("D1", "D2"), h=40.0, loss=1.5, cosine=COSINE),
    ]
    return record(make("paper", method, 42), 0.3, trajectory=lines, cosines=COSINE, growth=7.0, g_128=2e-5, **change)


@pytest.mark.parametrize(
    ("name", "epoch", "value"),
    [
        ("accuracy", None, 0.3),
        ("accuracy", 1, 0.2),
        ("growth", None, 7.0),
        ("growth", 1, 1.0),
        ("last_h", 1, 20.0),
        ("reference_norm", None, 128 * 2e-5),
        ("reference_norm_128", None, 2e-5),
        ("reference_norm_128", 1, 0.1 / 128),
        ("gamma", None, np.mean(COSINE[:4])),  # site input: a_4 trains nothing
        ("gamma", 1, np.mean(COSINE[:4])),
        ("gamma_all_layers", 1, np.mean(COSINE)),
        ("deep_cosine", 1, np.mean(COSINE[1:4])),
        ("deep_cosine_all_layers", 1, np.mean(COSINE[1:])),
        ("top_share", 1, 0.5 / 1.1),
        ("cosine[2]", 1, -0.1),
        ("h[4]", 2, 40.0),
        ("loss_change", None, -0.5),
        ("rho", None, 0.1),
        ("rho", 1, 0.9),
        ("nudging", None, -1e-4),
        ("rho_reference", None, 0.99),
        ("d1_epoch", None, 1),
        ("d2_epoch", None, 2),
        ("mode1_epoch", None, 2),
        ("epochs", None, 2),
    ],
)
def test_value(name, epoch, value):
    found = get_quantity(name).of(one(), epoch)
    assert found.value == pytest.approx(value)


def test_the_lowest_and_the_highest_aggregation_are_of_those_that_were_measured():
    found = one()
    values = found.facts.aggregate.measured.values() if found.facts.aggregate else ()
    assert len(values) > 1
    assert get_quantity("gamma_lowest").of(found).value == min(values)
    assert get_quantity("gamma_highest").of(found).value == max(values)


def test_exact_layers_are_left_out_at_the_end_and_at_an_epoch():
    exact = one(FA | OUTPUT, exact_layers=(4,))
    for epoch in (None, 1):
        assert get_quantity("deep_cosine").of(exact, epoch).value == pytest.approx(np.mean(COSINE[1:4]))


@pytest.mark.parametrize(
    ("name", "epoch", "why"),
    [
        ("accuracy", 9, "no epoch 9"),
        ("fresh_b", None, "not measured"),
        ("residual", None, "not measurable"),
        ("weight_growth", 1, "of the final network"),
        ("margin_bp", None, "of a group of seeds"),
        ("cosine[9]", None, "not measurable"),
    ],
)
def test_what_is_not_there_says_why(name, epoch, why):
    found = get_quantity(name).of(one(), epoch)
    assert not found.known
    assert why in found.note


def test_the_full_level_that_was_not_measured_is_a_reason_and_no_error():
    record = one()
    found = get_quantity("rho").of(Record(record.spec, record.trajectory, record.report))
    assert (found.value, found.note) == (None, "no facts of level full were given")


def test_over_seeds_orders_of_magnitude_have_a_geometric_mean():
    (group,) = audit([record(make("paper", DFA, s), 0.3, growth=g) for s, g in ((42, 10.0), (123, 1000.0))])
    found = get_quantity("growth").over(group)
    assert (found.value, found.n, found.values) == (pytest.approx(100.0), 2, (10.0, 1000.0))
    some = get_quantity("rho").mean([Cell(0.5), Cell(note="not measured")])
    assert (some.value, some.n, some.note) == (0.5, 1, "1 of 2 networks")
    assert get_quantity("rho").mean([Cell(note="why")]).note == "why"


def test_names_are_unique_and_known_and_thresholds_exist():
    assert "quantity 'gama' is unknown; did you mean 'gamma'" in refusal(lambda: get_quantity("gama"))
    assert "already exists" in refusal(lambda: register(QUANTITIES["gamma"]))
    assert all(q.convention for q in QUANTITIES.values())
    assert all(hasattr(DiagnosticThresholds(), q.threshold) for q in QUANTITIES.values() if q.threshold)


def test_a_standard_quantity_stands_in_every_table_of_audited_methods(monkeypatch):
    monkeypatch.setitem(
        QUANTITIES,
        "error",
        Quantity("error", "err", "error", "", "1 - accuracy", then=lambda r, x: 1 - x["accuracy"], standard=True),
    )
    assert "error" in standard()
    records = pool((DFA, 0.3, 0.35, {}))
    for name in ("audit", "cifar100", "depth", "credit-norm"):
        row = get_study(name).table(records).rows[0]
        assert row.value("error") == pytest.approx(1 - row.value("accuracy"))
