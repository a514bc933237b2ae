"""The page of tables (`audit --html`) in a real browser, from file://, with the network blocked."""

from __future__ import annotations

from pathlib import Path

import pytest

from creditscope.render.tables import tables_page
from creditscope.tables import Cell, Column, Row, Table

from .browsing import MARKS, violations

pytestmark = MARKS


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("tables") / "lines.html"
    table = Table("t", "a title", (Column("a"), Column("b")), (Row({"a": Cell("one"), "b": Cell(-1.5)}),))
    path.write_text(tables_page([table], "a paper"), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_light_and_dark_colours(opened, width, scheme):
    page = opened(width, scheme)
    dark = "getComputedStyle(document.querySelector('th')).color == 'rgb(255, 255, 255)'"
    assert page.evaluate(dark) is (scheme == "dark")
    assert page.evaluate("innerWidth") == width
    assert "color-contrast" not in dict(violations(page))
