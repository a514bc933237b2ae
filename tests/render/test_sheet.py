"""Tables in a terminal: at any width no word is broken, and nothing is left out."""

from __future__ import annotations

import re

import pytest
from rich.text import Text

from creditscope.protocol.report import make_report
from creditscope.render import tables
from creditscope.render.report import renderable
from creditscope.render.sheet import Cell, Sheet
from creditscope.render.tables import table_text, texts
from creditscope.render.text import to_text
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
