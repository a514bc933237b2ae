"""`diff`: changes by hand, intervals that meet and intervals that do not, and what cannot be compared."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.cli.calls import one_line_error, out
from tests.refusals import refusal

from creditscope import DiagnosticReport, InterfaceStream, diagnose, diagnose_arrays, diff
from creditscope.credit.registry import make_rule
from creditscope.models import ResMLP
from creditscope.render.changes import changes_text
from creditscope.tables import Cell, Column, Row, Table

N, D, L = 512, 8, 2


def report(shift: float = 0.0, noise: float = 0.3, seed: int = 0, **options: Any) -> DiagnosticReport:
    """Layers of known length, credit at a known angle: a_l = g_l + noise + shift * g_l at right angles."""
    rng = np.random.default_rng(seed)
    h = [rng.standard_normal((N, D)) for _ in range(L + 1)]
    g = [rng.standard_normal((N, D)) for _ in range(L + 1)]
    a = [u + noise * rng.standard_normal(u.shape) + shift * np.roll(u, 1, 1) for u in g]
    return diagnose_arrays({"h": h, "g": g, "a": a}, reduction="sum", **options)


def test_nothing_changes_from_a_report_to_itself():
    table = diff(report(), report())
    assert {row.value("change") for row in table.rows} == {0.0}
    assert not any(row.value("outside") for row in table.rows)
    assert table.conclusion[0].fields["changed"] == 0


def test_changes_and_their_intervals_by_hand():
    a: Any = report(method_name="one")
    b: Any = report(shift=1.0, method_name="other")
    table = diff(a, b)
    for layer in range(L + 1):
        row = table.row(quantity="cosine", layer=layer)
        for side, aligned in (("a", a.facts.alignment), ("b", b.facts.alignment)):
            mean, std = aligned.mean[layer], aligned.std[layer]
            half = 1.9646 * std / math.sqrt(N)  # t with 511 degrees of freedom
            assert row[side].value == mean
            assert (row[side].low, row[side].high) == pytest.approx((mean - half, mean + half), rel=1e-4)
        assert row.value("change") == row.value("b") - row.value("a")
        assert row.value("outside") is True  # the angle turned by 45 degrees
    assert table.row(quantity="h", layer=1).value("change") == 0
    assert table.row(quantity="h", layer=1).value("outside") is None  # no interval there
    assert table.title == "one → other"


def test_the_deep_cosine_leaves_out_exact_layers():
    """FA's a_L is the gradient: the mean over layers 1..L - 1 is the one that tables have."""
    model, batches = ResMLP(D, 3, width=D, depth=3), [(torch.randn(N, D), torch.randint(0, 3, (N,)))]
    rule = make_rule("fa")
    rule.setup(InterfaceStream(model, batches[0][0][:3]), 3, torch.Generator().manual_seed(0))
    found: Any = diagnose(model, batches, credit=rule)
    (value,) = {row.value("a") for row in diff(found, found).rows if row.value("quantity") == "deep_cosine"}
    assert value == pytest.approx(np.mean(found.facts.alignment.mean[1:3]))


def test_c_decides_nothing_and_is_high_or_low():
    rng = np.random.default_rng(1)
    h, drift = [rng.standard_normal((N, D)) for _ in range(L + 1)], [np.ones((N, D)) for _ in range(L + 1)]
    same = diagnose_arrays({"h": h, "g": drift}, reduction="sum")  # every sample asks for the same: stability 1
    table = diff(report(), same)
    row = table.row(quantity="C")
    assert (row.value("a"), row.value("b"), row.value("change")) == ("pass", "fail", True)  # data hold the answer
    (printed,) = (line for line in changes_text(table).splitlines() if line.startswith("C "))
    assert printed.split()[:4] == ["C", "low", "high", "yes"]


def test_records_are_measured_and_compared(tmp_path):
    h, g = np.ones((3, N, D)), np.ones((3, N, D))
    header = json.dumps({"schema": "creditscope-arrays/1", "reduction": "sum"})
    for name, scale in (("a", 1), ("b", 3)):
        arrays = {f"h_{k}": scale**k * h[k] for k in range(3)} | {f"g_{k}": g[k] for k in range(3)}
        np.savez(tmp_path / f"{name}.npz", header=header, **arrays)
    table = diff(tmp_path / "a.npz", tmp_path / "b.npz")
    assert table.row(quantity="growth").value("change") == pytest.approx(2)
    (tmp_path / "a.npz").unlink()
    assert "a.npz does not exist" in refusal(lambda: diff(tmp_path / "a.npz", tmp_path / "b.npz"))


def test_a_change_within_the_intervals_is_not_outside():
    table = diff(report(seed=1), report(seed=2))
    row = table.row(quantity="growth", layer=None)
    assert row.value("change") != 0
    assert row.value("outside") is False
    assert "the evaluation samples differ" in table.notes[0]


def test_what_one_side_does_not_have_is_not_compared():
    without = diagnose_arrays({"h": [np.ones((4, 2))] * 2, "g": [np.ones((4, 2))] * 2}, reduction="sum")
    table = diff(without, report())
    row = table.row(quantity="cosine", layer=0)
    assert not row["a"].known
    assert row.value("change") is None
    assert row.value("outside") is None
    assert any("1 blocks and b has 2" in note for note in table.notes)


def test_verdicts_and_claims_are_compared():
    told: dict[str, Any] = {"headline_acc": 0.5, "headline_on": "other data", "n_test": 1000}
    a, b = report(frozen_baseline_acc=0.3, **told), report(frozen_baseline_acc=0.7, **told)
    table = diff(a, b)
    assert table.row(quantity="D3").value("change") is True
    assert table.row(quantity="status").value("a") == a.status
    margin = table.row(quantity="margin_unstated")
    assert margin.value("change") == pytest.approx(-40)
    assert margin.value("outside") is True
    assert "margin to null of unstated kind (pp)" in changes_text(table)


def test_intervals_are_printed_no_further_than_what_is_possible():
    columns = tuple(map(Column, ("quantity", "layer", "a", "b", "change", "outside")))
    names = {"margin_bp": (60.0, 47.0, 112.0), "accuracy": (0.9, 0.7, 1.1), "growth": (2.0, -1.0, 120.0)}
    rows = [
        Row({"quantity": Cell(k), "layer": Cell(None), "a": Cell(*v), "b": Cell(v[0] + 1), "change": Cell(1.0)})
        for k, v in names.items()
    ]
    said = " ".join(changes_text(Table("diff", "", columns, tuple(rows))).split())
    assert "[47, 100]" in said
    assert "[0.7, 1]" in said
    assert said.count("cut at the possible range") == 2
    assert "[-1, 120]" in said


def test_as_a_command(tmp_path, capsys):
    report().to_json(tmp_path / "a.json")
    report(shift=1.0).to_json(tmp_path / "b.json")
    text = out(capsys, "diff", tmp_path / "a.json", tmp_path / "b.json", "--json", tmp_path / "d.json")
    assert "cosine" in text
    assert "–: neither side has an interval to compare with" in text.splitlines()
    assert "yes" in text
    assert "growth" not in text  # it did not change
    assert json.loads((tmp_path / "d.json").read_text())["name"] == "diff"
    assert "growth" in out(capsys, "diff", tmp_path / "a.json", tmp_path / "a.json", "--all")
    assert "does not exist" in one_line_error(capsys, "diff", tmp_path / "a.json", tmp_path / "nothing")


def test_bundles_are_compared_by_their_reports(tmp_path):
    from creditscope import RunSpec, load_bundle, train

    spec = {"dataset": "quadratic", "width": 4, "depth": 1, "epochs": 1, "batch_size": 5000}
    paths = [tmp_path / name for name in ("bp", "dfa")]
    for path, more in zip(paths, ({"method": "bp"}, {"method": "dfa", "credit_norm": "rms"}), strict=True):
        train(RunSpec(**spec, **more), path)
    table = diff(load_bundle(paths[0]), paths[1])
    assert table.row(quantity="cosine", layer=0).value("a") == pytest.approx(1)
    assert table.to_dict() == diff(*paths).to_dict()


@pytest.mark.parametrize("wrong", [3, None, {"a": 1}])
def test_what_is_no_report_is_one_line(wrong):
    assert "give a report, a bundle, or the path of one" in refusal(lambda: diff(wrong, report()))
