"""The studies on the page: conclusion, figure and table of each, and nothing from outside is markup."""

from __future__ import annotations

import dataclasses
import re

import pytest

from creditscope.protocol.report import make_report
from creditscope.render.draw import table_panels
from creditscope.render.html import Network, html_page
from creditscope.render.words import paragraph, words
from creditscope.studies.catalogue import NAMES

from ..protocol.factory import make_facts
from .pages import HOSTILE
from .synthetic import made_up_study, spoilt
from .test_html import Page


@pytest.fixture(scope="module")
def tables():
    return [made_up_study(name) for name in NAMES]


def network() -> Network:
    return Network(make_report(make_facts(cosines=(0.4, 0.1, 0.1, 0.1, 0.1)), headline_acc=[0.5], method_name="mine"))


def test_every_study_has_its_section_with_conclusion_figure_and_table(tables):
    page = Page(html_page([], [network()], studies=[("smoke", t) for t in tables], begun=["depth (paper): 1 of 30"]))
    text = " ".join(page.text)
    for table in tables:
        assert paragraph(table.conclusion)[:400] in text
        assert any(a.get("id") == f"study-{table.name}-smoke" for a in page.of("h3"))
        assert table_panels(table, words), table.name
    assert "depth (paper): 1 of 30" in text
    assert [s["text"]["conclusion"] for s in page.studies] == [paragraph(t.conclusion) for t in tables]


def test_hostile_text_in_a_study_is_inert_everywhere(tables):
    tables = tables[:3]  # a page is drawn for each of the three forms
    plain = Page(html_page([], [network()], studies=[("smoke", t) for t in tables]))
    bad = [spoilt(t) for t in tables]
    clean = [dataclasses.replace(t, notes=HOSTILE) for t in tables]
    made = html_page([], [network()], studies=[("smoke", t) for t in bad])
    page = Page(made)
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain.elements} | {"ul", "li"}
    same = Page(html_page([], [network()], studies=[("smoke", t) for t in clean]))
    for tag in ("script", "img", "style", "a", "button", "h3", "table"):
        assert len(page.of(tag)) == len(same.of(tag)), tag
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search("[\x00\x1b\u2028\u202e]", made)
