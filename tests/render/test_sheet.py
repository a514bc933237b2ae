"""Tables in a terminal: at any width no word is broken, and nothing is left out."""

from __future__ import annotations

import re

import pytest
from rich.text import Text

from creditscope.protocol.report import make_report
from creditscope.render import tables
from creditscope.render.report import renderable
from creditscope.render.tables import table_text, texts
from creditscope.render.text import Cell, Sheet, to_text
from creditscope.runs.groups import reported
from creditscope.studies.audit import audit_table

from ..protocol.factory import make_facts

WIDTHS = [30, 40, 60, 80, 100, 118]


def broken(text: str, words: set[str]) -> set[str]:
    """Words that stand nowhere whole."""
    return words - set(re.split(r"[\s│─━]+", text))


@pytest.mark.parametrize("width", WIDTHS)
def test_every_word_of_a_table_stands_whole_at_any_width(width):
    header = ["method", "what the protocol finds", "accuracy"]
    rows: list[list[Cell]] = [["credit-bridge(rms)", "inconclusive D3 straddles", "0.306"]]
    rows += [["bp", Text("trustworthy"), "0.615 ± 0.003"]]
    text = to_text(Sheet(header, rows, padding=(0, 1)), width)
    assert max(map(len, text.splitlines())) <= width
    assert not broken(text, {word for row in rows for cell in row for word in str(cell).split()})


@pytest.mark.parametrize("width", WIDTHS)
def test_the_audit_table_and_the_checks_of_a_report_break_no_word(width, monkeypatch):
    monkeypatch.setattr(tables, "terminal_width", lambda: width)
    report = make_report(make_facts(), headline_acc=[0.5, 0.52], n_test=1000, method_name="feedback-alignment")
    table = audit_table(reported([("x.json", report)]), "title")
    assert not broken(table_text(table), {word for row in texts(table)[1] for cell in row for word in cell.split()})
    text = to_text(renderable(report, long=True), width)
    assert not broken(text, {word for check in report.verdict.checks for word in check.sentence.split()})
    wide = to_text(renderable(report), 200).splitlines()
    assert not broken(to_text(renderable(report), width), {w for line in wide for w in line.split() if w != "l"})


def test_columns_are_no_narrower_than_their_longest_word_and_take_the_room_there_is():
    sheet = Sheet(["a", "b"], [["word", "some longer text"]], padding=(0, 1), box=None, pad_edge=False)
    assert sheet._widths(100) == [4, 16]
    assert sum(sheet._widths(18) or []) < 18
    assert (sheet._widths(18) or [0, 0])[1] >= len("longer")
    assert sheet._widths(8) is None


@pytest.mark.parametrize(("rows", "width", "tables"), [(9, 60, 2), (9, 40, 3), (9, 18, 0), (3, 60, 0), (9, 200, 1)])
def test_a_long_table_that_is_too_wide_is_cut_between_columns(rows, width, tables):
    header = ["rule", *(f"quantity{k}" for k in range(6))]
    cells: list[list[Cell]] = [[f"r{n}", *(f"{n}.{k}" for k in range(6))] for n in range(rows)]
    text = to_text(Sheet(header, cells, show_lines=True, padding=(0, 1), title="what it shows"), width)
    lines = text.splitlines()
    assert sum(re.search(r"\brule\b", line) is not None for line in lines) == tables
    assert max(map(len, lines)) <= width
    for n, k in ((n, k) for n in range(rows) for k in range(6)):
        assert len(re.findall(rf"(?<!\d){n}\.{k}(?!\d)", text)) == 1
    assert text.count("what it shows") == 1
    if tables > 1:
        assert len(lines) < tables * (rows + 6)  # no line between rows of one line each


def test_rows_are_numbered_where_the_first_column_does_not_tell_them_apart():
    header = ["data", "rule", *(f"quantity{k}" for k in range(6))]
    cells: list[list[Cell]] = [["c10" if n % 2 else "c100", f"r{n}", *("0.5",) * 6] for n in range(8)]
    text = to_text(Sheet(header, cells, padding=(0, 1)), 60)
    assert text.count("#") == 2
    assert text.count("data") == 1
    assert [line.split("│")[1].strip() for line in text.splitlines() if line.count("0.5")] == [
        *map(str, range(1, 9))
    ] * 2


def test_a_part_of_few_columns_does_not_break_cells_that_have_room():
    long = "incomplete: D3 depth utility not measurable (no failure found so far)"
    rows = [[f"method {n}", *(f"{k} {'x' * 20}" for k in range(5)), long] for n in range(8)]
    text = to_text(Sheet(["method", *"abcde", "the protocol finds"], rows, widest=40), 118)
    assert text.count(long) == 8
