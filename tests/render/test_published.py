"""The section of the page with published values: the same statements as in Markdown, each with its runs."""

from __future__ import annotations

from creditscope.render.html import html_page, networks
from creditscope.render.html.published import BADGES, published_section
from creditscope.render.reproduction import BOTH, audit_page, how_to_read
from creditscope.studies.audit import audit
from creditscope.studies.coverage import AS_PLANNED, FEWER, OTHER_LENGTH, coverage
from creditscope.studies.grid import BP, DFA, FA
from creditscope.studies.reproduction import KINDS, outcomes
from creditscope.studies.verdicts import INCONCLUSIVE, NOT_ONE_OPEN, ONE_OPEN, verdict_outcomes

from ..studies.test_analyses import BROKEN, pool
from .test_html import Page

RUNS = pool((BP, 0.615, 0.35, {"cosines": (1.0,) * 5}), (FA, 0.401, 0.35, {}), (DFA, 0.306, 0.35, BROKEN))


def test_every_kind_of_statement_has_a_mark():
    assert set(BADGES) == {*KINDS, ONE_OPEN, NOT_ONE_OPEN, INCONCLUSIVE, AS_PLANNED, FEWER, OTHER_LENGTH}


def test_runs_that_no_published_value_is_about_get_no_section():
    assert published_section([]) is None
    assert published_section(pool((FA, 0.4, 0.35, {}), dataset="quadratic")) is None


def test_the_page_says_what_the_markdown_says():
    groups = audit(RUNS)
    section = published_section(RUNS)
    assert section is not None
    page = Page(html_page(groups, networks(groups, RUNS), published=section))
    text = " ".join(page.text)
    markdown = audit_page(RUNS, [], [], "results").replace("\\", "")
    assert how_to_read() in text  # whole, though it is long
    for line in section["lines"]:
        assert line in text
        assert line.split(" claims")[0].split(" published")[0] in markdown
    rows = [row for t in section["tables"] for row in t["rows"]]
    cells = coverage(r.spec for r in RUNS)
    assert len(rows) == len(outcomes(RUNS)) + len(verdict_outcomes(RUNS)) + len(groups) + len(cells)
    for row in rows:
        assert f"| {' | '.join([*row['cells'], row['statement']])} |" in markdown
    for title, lesson in section["lessons"]:
        assert title in text
        assert lesson.unescape() in text


def test_the_mark_of_a_policy_stands_beside_its_words():
    section = published_section(pool((FA, 0.351, 0.35, {})))  # fails by (d) alone
    assert section is not None
    (table,) = [t for t in section["tables"] if t["name"] == BOTH]
    (row,) = table["rows"]
    assert (row["status"], row["mark"], row["statement"]) == ("fail", "✗", "needs walk-back: (d) depth")


def test_the_runs_of_a_statement_are_links_to_their_networks():
    groups = audit(RUNS)
    page = Page(html_page(groups, networks(groups, RUNS), published=published_section(RUNS)))
    places = {a["id"] for tag in ("section", "article", "h2", "div") for a in page.of(tag) if a.get("id")}
    targets = {a["href"] for a in page.of("a") if str(a.get("href", "")).startswith("#run-")}
    assert targets
    assert {str(t).removeprefix("#") for t in targets} <= places
