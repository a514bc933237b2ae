"""Tables drawn: lines, rows of marks and matrices, with the numbers, intervals and thresholds of the table."""

from __future__ import annotations

import pytest
from tests.refusals import refusal

from creditscope.quantities import get_quantity
from creditscope.render.charts import Chart, Dots, Matrix
from creditscope.render.draw import draw, panel, table_panels
from creditscope.tables import Cell, Column, Plot, Row, Table


def made() -> Table:
    measured = (get_quantity(n).column() for n in ("growth", "accuracy", "margin_matched", "finding"))
    columns = (Column("method"), Column("epoch"), Column("penalty", "λ"), *measured)
    rows = [
        Row(
            {
                "method": Cell(method), "epoch": Cell(epoch), "penalty": Cell(epoch / 100), "growth": Cell(10.0**epoch),
                "accuracy": Cell(0.1 * epoch, values=(0.1 * epoch - 0.01, 0.1 * epoch + 0.01)),
                "margin_matched": Cell(epoch - 2.0, epoch - 3.0, epoch - 1.5),
                "finding": Cell("pass" if method == "bp" else "fail"),
            }
        )
        for method in ("bp", "dfa")
        for epoch in (2, 0, 1)
    ]  # fmt: skip
    plots = (Plot("epoch", "growth", "method"), Plot("method", "finding", "epoch"))
    return Table("t", "q", columns, tuple(rows), plots=plots)


def test_numbers_over_numbers_are_lines_in_order_with_threshold_and_scale():
    found = panel(made(), "epoch", "growth", "method")
    assert isinstance(found, Chart)
    assert [s.name for s in found.series] == ["bp", "dfa"]
    assert found.points(found.series[0]) == [(0.0, 1.0), (1.0, 10.0), (2.0, 100.0)]
    assert found.log
    assert [(level.value, level.label) for level in found.levels] == [(50.0, "D1 50")]


def test_intervals_are_the_cells_own_and_else_the_spread_over_networks():
    margins = panel(made(), "epoch", "margin_matched", "method")
    assert isinstance(margins, Chart)
    assert margins.series[0].interval(0) == (-3.0, -1.5)
    accuracies = panel(made(), "epoch", "accuracy", "method")
    assert isinstance(accuracies, Chart)
    low, high = accuracies.series[0].interval(2) or (0, 0)
    assert (high - low) / 2 == pytest.approx(0.02 / 2**0.5)  # sample standard deviation of two values .02 apart


def test_settings_that_are_no_whole_numbers_stand_side_by_side():
    found = panel(made(), "penalty", "accuracy", "method")
    assert isinstance(found, Chart)
    assert found.places == ["0", "0.01", "0.02"]
    assert found.points(found.series[0]) == [(0.0, 0.0), (1.0, 0.1), (2.0, 0.2)]


def test_a_measured_quantity_along_x_makes_marks_without_a_line():
    found = panel(made(), "accuracy", "margin_matched", "method")
    assert isinstance(found, Chart)
    assert not any(s.line for s in found.series)


def test_numbers_over_names_are_rows_with_one_mark_per_network():
    found = panel(made(), "method", "accuracy", "epoch")
    assert isinstance(found, Dots)
    assert found.rows[0].name == "bp 2"
    assert [v for _, v in found.rows[0].marks] == pytest.approx([0.19, 0.21])
    margins = panel(made(), "method", "margin_matched", "epoch")
    assert isinstance(margins, Dots)
    assert margins.rows[1].interval == (-3.0, -1.5)


def test_outcomes_are_a_matrix_whose_words_say_what_the_colour_says():
    found = panel(made(), "method", "finding", "epoch")
    assert isinstance(found, Matrix)
    assert [(name, [c.words for c in cells]) for name, cells in found.rows] == [
        ("bp", ["✓ pass"] * 3),
        ("dfa", ["✗ fail"] * 3),
    ]
    assert [cells[0].kind for _, cells in found.rows] == ["good", "bad"]


def test_the_plots_of_a_table_are_drawn_and_what_has_no_numbers_is_not():
    assert [type(p) for p in table_panels(made())] == [Chart, Matrix]
    empty = Table("t", "q", made().columns, (), plots=made().plots)
    assert table_panels(empty) == []
    assert "growth" in draw(made(), "epoch", "growth", "method", title="growth of two methods").alternative
    assert "column" in refusal(lambda: draw(made(), "epoch", "nothing"))
