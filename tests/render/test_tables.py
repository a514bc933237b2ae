"""Tables in every form: the same numbers, computed words, nothing from outside is markup."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from tests.refusals import refusal

from creditscope.quantities import get_quantity
from creditscope.render.tables import (
    FORMS,
    cell_text,
    render_table,
    table_latex,
    table_markdown,
    table_text,
    texts,
    three_digits,
)
from creditscope.render.words import SENTENCES, names, paragraph, sentence, words
from creditscope.runs.groups import Finding, Outcome
from creditscope.studies.catalogue import NAMES
from creditscope.tables import Cell, Column, Row, Spread, Statement, Table, state

from .synthetic import made_up_study, spoilt
from .test_latex import assert_inert, compiled, needs_latex


@pytest.fixture(scope="module")
def tables():
    return [made_up_study(name) for name in NAMES]


@pytest.mark.parametrize(
    ("name", "cell", "text"),
    [
        ("accuracy", Cell(0.3061, values=(0.3, 0.3122)), "0.306 ± 0.009"),
        ("accuracy", Cell(0.3061, values=(0.3061,)), "0.306"),
        ("accuracy", Cell(0.5, note="2 of 3 networks", values=(0.5, 0.5)), "0.500 ± 0.000 (2 of 3 networks)"),
        ("accuracy", Cell(note="why not"), "–"),
        ("growth", Cell(100.0, values=(10.0, 1000.0)), "10 to 1000"),
        ("growth", Cell(float("inf"), values=(float("inf"),)), "inf"),
        ("reference_norm_128", Cell(4.2e-9, values=(4.2e-9,)), "4.2e-09"),
        ("deep_cosine", Cell(0.1234), "+0.123"),
        ("margin_bp", Cell(-4.44, -6.0, 1.25), "-4.4 [-6.0, +1.2]"),
        ("margin_bp", Cell(-4.44), "-4.4"),
        ("finding", Cell(Finding(Outcome.FAIL, ("fail",), ("needs walk-back: D3",))), "needs walk-back: D3"),
        (
            "finding",
            Cell(Finding(Outcome.MIXED, ("fail", "pass", "fail"), ("a", "b", "a"))),
            "2 of 3 seeds fail; 1 of 3 seeds pass",
        ),
        ("seeds", Cell(3), "3"),
    ],
)
def test_how_a_value_is_printed(name, cell, text):
    assert cell_text(cell, get_quantity(name).column()) == text


def test_values_that_are_no_quantity():
    told = [words(v) for v in (None, True, False, 1e-2, 3, "x", Outcome.PASS, ("D1", "C"), ())]
    assert told == ["–", "yes", "no", "0.01", "3", "x", "pass", "D1 C", "none"]
    assert [names(x) for x in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["none", "a", "a and b", "a, b and c"]


def test_a_statement_is_printed_by_its_template_or_as_its_own():
    assert sentence(state("in some", label="fa", k=1, n=3)) == "fa in 1 of 3"
    assert sentence(state("best at d={width}", width=8)) == "best at d=8"
    nested = state("{parts} and {x:num2}, {s:seeds}", parts=(state("a {k}", k=1), state("b")), x=0.1234, s=[1, 2])
    assert sentence(nested) == "a 1; b and 0.12, seeds 1, 2"
    assert paragraph((state("one."), state("two"), state("three"))) == "one. two; three."
    assert paragraph(()) == ""
    with pytest.raises(KeyError):
        sentence(state("in some", label="fa"))


def test_every_statement_of_every_study_has_its_words(tables):
    """A name without a template would be printed as it is."""

    def every(found):
        for s in found:
            yield s
            for value in s.fields.values():
                inner = value if isinstance(value, tuple | list) else [value]
                yield from every([v for v in inner if isinstance(v, Statement)])

    assert {s.name for t in tables for s in every([*t.conclusion, *t.convention])} <= SENTENCES.keys()


def test_every_form_has_every_row_and_the_same_numbers(tables):
    for table in tables:
        header, rows = texts(table)
        assert len(rows) == len(table.rows) > 0
        assert table_markdown(table).count("\n| ") == len(rows) + 1
        assert table_latex(table).count(r" \\") == len(rows) + 1
        assert render_table(table, "html").count("<tr>") == len(rows) + 1
        found = list(csv.DictReader(io.StringIO(render_table(table, "csv"))))
        assert len(found) == len(rows)
        data = json.loads(render_table(table, "json"))
        assert data["text"]["conclusion"] == paragraph(table.conclusion)
        for column in table.columns:
            numbers = [cell.number for cell in table.column(column.name)]
            told = [float(row[column.name]) for row, n in zip(found, numbers, strict=True) if n is not None]
            assert told == [n for n in numbers if n is not None]
        assert all(word in table_text(table) for word in (*header[-1].split(), *rows[0][0].split()))
    assert set(FORMS) == {"text", "markdown", "latex", "html", "csv", "json"}
    assert "format 'xml' is unknown" in refusal(lambda: render_table(tables[0], "xml"))


def test_a_spreadsheet_takes_no_text_for_a_formula():
    table = Table("t", "q", (Column("a"), Column("b")), (Row({"a": Cell("=1+1"), "b": Cell(-1.5)}),))
    assert render_table(table, "csv") == "a,b\n'=1+1,-1.5\n"


def test_the_spread_of_a_column_is_its_own():
    column = get_quantity("growth").column(spread=Spread.NONE)
    assert cell_text(Cell(100.0, values=(10.0, 1000.0)), column) == "100"


def test_hostile_text_is_inert_in_every_form(tables):
    for table in map(spoilt, tables[:3]):
        told, latex, html = table_markdown(table), table_latex(table), render_table(table, "html")
        assert not re.search("<script|<img|<svg", told + html)
        assert "\u202e" not in told + table_text(table) + latex + html
        assert_inert(latex)


@needs_latex
@pytest.mark.parametrize("hostile", [False, True])
def test_it_compiles(tables, tmp_path, hostile):
    table = spoilt(tables[0]) if hostile else tables[0]
    (tmp_path / "table.tex").write_text(table_latex(table, standalone=True))
    assert "root:" not in compiled(tmp_path / "table.tex")


def test_the_page_prints_three_digits_where_a_table_prints_two():
    column = get_quantity("growth").column()
    table = Table("t", "t", (column,), (Row({"growth": Cell(1.23456, values=(1.23456, 7.65432))}),))
    assert texts(table)[1] == [["1.2 to 7.7"]]
    assert texts(three_digits(table))[1] == [["1.23 to 7.65"]]
