"""Tables as data."""

from __future__ import annotations

import json
import math
import statistics
import sys
from enum import Enum

import pytest
from tests.refusals import refusal

from creditscope.tables import Cell, Column, Row, Table, geometric_mean, mean, sample_std, span, state


class Colour(Enum):
    RED = "red"


TABLE = Table(
    "t",
    "which?",
    (Column("k"), Column("x"), Column("outcome")),
    (
        Row(
            {"k": Cell("a"), "x": Cell(1.5, 1.0, 2.0, 3, values=(1.0, 2.0, 1.5)), "outcome": Cell(Colour.RED)},
            ("hash",),
        ),
        Row({"k": Cell("b"), "x": Cell(note="no null"), "outcome": Cell(Colour.RED)}),
        Row({"k": Cell("b"), "x": Cell(math.nan), "outcome": Cell((Colour.RED, "blue"))}),
    ),
    conclusion=(state("{n} rows", n=3),),
)


def test_columns_rows_and_conditions():
    assert TABLE.values("k") == ("a", "b", "b")
    assert TABLE.where(k="b").values("x")[0] is None
    assert [row.value("k") for row in TABLE.where(lambda row: row["x"].known).rows] == ["a", "b"]
    assert TABLE.row(k="a").runs == ("hash",)
    assert TABLE.column("x")[1].note == "no null"
    assert [cell.number for cell in TABLE.column("x")] == [1.5, None, None]
    assert "column 'y' is unknown" in refusal(lambda: TABLE.column("y"))
    assert "2 rows of table t" in refusal(lambda: TABLE.row(k="b"))


def test_json_holds_numbers_and_no_prints():
    data = json.loads(json.dumps(TABLE.to_dict(), allow_nan=False))
    first, second, third = data["rows"]
    assert first["x"] == {"value": 1.5, "low": 1.0, "high": 2.0, "n": 3, "values": [1.0, 2.0, 1.5]}
    assert first["outcome"] == {"value": "red"}
    assert second["x"] == {"value": None, "note": "no null"}
    assert (third["x"], third["outcome"]) == ({"value": "NaN"}, {"value": ["red", "blue"]})
    assert data["conclusion"] == [{"name": "{n} rows", "n": 3}]


def test_a_data_frame_has_a_column_per_number():
    first, second, third = TABLE.records()
    assert list(first) == list(second) == ["k", "x", "x.low", "x.high", "x.std", "x.n", "outcome"]
    assert first["x.std"] == pytest.approx(statistics.stdev([1.0, 2.0, 1.5]))
    assert (second["x"], third["outcome"]) == (None, "red blue")
    pandas = pytest.importorskip("pandas")
    assert isinstance(TABLE.to_frame(), pandas.DataFrame)


def test_without_pandas_and_polars_the_command_is_said(monkeypatch):
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "pip install pandas" in refusal(TABLE.to_frame)


def test_arithmetic():
    values = [0.2, 0.5, 0.9]
    assert mean(values) == pytest.approx(statistics.fmean(values))
    assert geometric_mean(values) == pytest.approx(statistics.geometric_mean(values))
    assert sample_std(values) == pytest.approx(statistics.stdev(values))
    assert (sample_std([1.0]), span([]), span([3, 1])) == (None, None, (1, 3))
    assert geometric_mean([0.0, 1.0]) == 0
    assert math.isinf(geometric_mean([1.0, math.inf]))
    assert math.isnan(geometric_mean([1.0, math.nan]))
