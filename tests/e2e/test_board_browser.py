"""The page of a board in a real browser, from file://, with the network blocked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.trust.board_size import build, write_entries

from .browsing import MARKS, violations

pytestmark = MARKS
ENTRIES = 60


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    root: Path = tmp_path_factory.mktemp("board")
    write_entries(ENTRIES, root / "entries")
    build(root / "entries", root / "site")
    return root / "site" / "index.html"


def names(page: Any) -> list[str]:
    found: list[str] = page.eval_on_selector_all(
        "#networks tbody tr:not([hidden]) th a", "links => links.map(a => a.textContent)"
    )
    return found


def test_search_filter_and_sort(opened):
    page = opened()
    assert len(names(page)) == ENTRIES
    page.select_option("#status", "fail")
    shown = len(names(page))
    assert 0 < shown < ENTRIES
    assert page.text_content("#count") == f"{shown} of {ENTRIES} shown"
    page.fill("#search", "DFA")
    assert all("dfa" in name.lower() for name in names(page))
    page.fill("#search", "")
    page.select_option("#status", "")
    head = page.locator("#networks thead button", has_text="claimed")
    for direction in ("ascending", "descending"):
        head.click()
        values = page.eval_on_selector_all(
            "#networks tbody td:nth-child(3)", "cells => cells.map(c => Number(c.dataset.sort))"
        )
        assert values == sorted(values, reverse=direction == "descending")


def test_an_entry_opens_by_keyboard_and_the_way_back_leads_to_it(opened):
    page = opened()
    link = page.locator("#networks tbody th a").nth(2)
    name = link.inner_text()
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("article h2")
    assert page.locator("article h2").inner_text().startswith(name)
    assert page.evaluate("document.activeElement.tagName") == "H2"
    assert not page.is_visible("#overview")
    for part in ("Claimed", "Audited", "Checks", "Layers", "History"):
        assert page.locator("article", has_text=part).count() == 1
    page.go_back()
    page.wait_for_selector("article", state="detached")
    assert page.is_visible("#overview")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violation_of_axe_and_nothing_wider_than_the_page(opened, width, scheme):
    page = opened(width, scheme)
    for place in ("index", "entry"):
        if place == "entry":
            page.locator("#networks tbody th a").first.click()
            page.wait_for_selector("article h2")
        assert violations(page) == [], place
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_prints_the_table_and_no_controls(opened):
    page = opened()
    page.emulate_media(media="print")
    assert not page.is_visible("#filters")
    assert page.is_visible("#networks")


@pytest.mark.slow
def test_a_thousand_entries_are_usable(opened, browser, tmp_path):
    write_entries(1000, tmp_path / "entries")
    n, _, _, cpu = build(tmp_path / "entries", tmp_path / "site")
    assert n == 1000
    assert cpu < 30
    page = browser.new_page()
    page.goto((tmp_path / "site" / "index.html").as_uri())
    page.fill("#search", "fabricpc")
    assert 0 < len(names(page)) < 1000
    page.locator("#networks tbody tr:not([hidden]) th a").first.click()
    page.wait_for_selector("article h2")
    page.close()
