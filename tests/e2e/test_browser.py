"""The HTML report in a real browser, from file://, with the network blocked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from creditscope.protocol.report import make_report
from creditscope.render.html import Network, html_page, networks
from creditscope.render.numbers import num
from creditscope.runs.groups import audit, reported

from ..protocol.factory import make_facts
from ..render.pages import HOSTILE, renamed, trained, unpacked
from ..render.synthetic import made_up_study, spoilt
from .browsing import MARKS, violations

STUDIES = ("audit", "ablation", "temporal", "early", "triangulation", "penalty", "functional", "freshb", "seeds")

pytestmark = MARKS


def told(page: Any) -> tuple[float, str]:
    """What the tooltip says: a number, and the rest."""
    said = page.locator("#tip").inner_text().partition(" = ")[2]
    return float(re.split(r"[ ,\n]", said)[0]), said


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    bundles = trained(tmp_path_factory.mktemp("runs"))
    groups = audit(bundles)
    hostile = renamed(groups[0], method_name=HOSTILE[1], notes=HOSTILE[7], run="f" * 64)
    shown = [*networks(groups, bundles), *networks([hostile])]
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    studies = [("smoke", made_up_study(name)) for name in STUDIES]
    studies.append(("paper", spoilt(made_up_study("ablation", "quick"))))
    made = html_page(groups, shown, studies=studies, begun=["depth (smoke): 1 of 18 networks are trained"])
    path.write_text(made, encoding="utf-8")
    return path


def data_of(page: Any) -> list[dict[str, Any]]:
    networks: list[dict[str, Any]] = unpacked(page.text_content("#data"))["networks"]
    return networks


def column(page: Any, k: int) -> list[str]:
    found: list[str] = page.eval_on_selector_all(
        "#networks tbody tr:not([hidden])", f"rows => rows.map(r => r.cells[{k}].textContent.trim())"
    )
    return found


def test_the_table_sorts_and_filters(opened):
    page = opened()
    header = page.locator("#networks thead button")
    names = [name.strip() for name in header.all_text_contents()]
    assert len(column(page, 0)) == 3
    k = names.index("accuracy")
    for direction in ("ascending", "descending"):
        header.nth(k).click()
        assert page.locator("#networks th").nth(k).get_attribute("aria-sort") == direction
        values = [float(v.partition(" chance ")[0]) for v in column(page, k)]
        assert values == sorted(values, reverse=direction == "descending")
    page.check("#nulls")
    assert len(column(page, 0)) == 5
    page.select_option("#method", "bp")
    assert set(column(page, 0)) == {"bp", "frozen(bp)"}
    page.fill("#search", "frozen")
    assert column(page, 0) == ["frozen(bp)"]
    assert page.text_content("#count") == "1 of 5 shown"


def test_filters_survive_a_reload_and_a_visit_to_a_network(opened):
    page = opened()
    page.check("#nulls")
    page.select_option("#method", "bp")
    page.reload()
    assert set(column(page, 0)) == {"bp", "frozen(bp)"}
    page.locator("#networks a", has_text="frozen(bp)").click()
    page.wait_for_selector("article h2")
    page.locator(".back a").click()
    page.wait_for_selector("article", state="detached")
    assert set(column(page, 0)) == {"bp", "frozen(bp)"}
    assert page.is_checked("#nulls")


def test_a_row_opens_its_network_and_the_way_back_leads_to_it(opened):
    page = opened()
    assert page.locator("article").count() == 0
    page.locator("#networks tbody tr", has_text="dfa(rms)").first.locator("td").nth(3).click()
    page.wait_for_selector("article")
    assert page.locator("article:visible").count() == 1
    assert not page.is_visible("#overview")
    assert page.locator("article .banner").inner_text().strip()
    assert page.locator("article .chain li").count() == 4
    page.locator("article .back a").click()
    page.wait_for_selector("article", state="detached")
    assert page.is_visible("#overview")
    page.locator("#networks a", has_text="bp").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("article")
    assert page.locator("article h2").inner_text().startswith("bp")


def open_network(page: Any, network: dict[str, Any]) -> Any:
    page.goto(page.url.split("#")[0] + f"#{network['key']}")
    page.wait_for_selector(f"#{network['key']} h2")
    return page.locator(f"#{network['key']}")


def test_hovering_and_arrow_keys_show_the_value_of_the_json(opened):
    page = opened()
    network = data_of(page)[0]
    chart = open_network(page, network).locator("svg.drawing").first
    scale, reference = (
        network["report"]["facts"][k][v] for k, v in (("scale", "mean"), ("reference", "batch_mean_128"))
    )
    mark = chart.locator(".m").nth(len(scale) + 1)  # the second mark of the second panel
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    value, rest = told(page)
    assert value == pytest.approx(reference[1], rel=6e-3)
    for part in ("layer 1", "dfa(rms)", "seed 42"):
        assert part in rest
    page.mouse.move(0, 0)
    assert not page.is_visible("#tip")
    chart.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert told(page)[0] == pytest.approx(scale[2], rel=6e-3)


def test_a_study_is_reached_from_the_contents_and_its_marks_tell_their_values(opened, tmp_path):
    page = opened()
    open_network(page, data_of(page)[0])
    page.goto(page.url.split("#")[0] + "#study-freshb-smoke")
    page.wait_for_selector("article", state="detached")
    assert page.is_visible("#overview")
    page.locator("nav.contents a", has_text="freshb").click()
    section = page.locator("section.study", has=page.locator("#study-freshb-smoke"))
    assert -50 < section.bounding_box()["y"] < 200
    table = made_up_study("freshb")
    section.locator("svg.drawing").first.focus()
    page.keyboard.press("ArrowRight")
    value, rest = told(page)
    numbers = [c.number for row in table.rows for c in row.cells.values() if c.number is not None]
    assert any(value == pytest.approx(n, rel=6e-3) for n in numbers)
    assert "study freshb" in rest
    with page.expect_download() as saved:
        section.locator("button.download-study").click()
    saved.value.save_as(tmp_path / "study.json")
    assert json.loads((tmp_path / "study.json").read_text())["rows"] == table.to_dict()["rows"]


def test_words_in_a_figure_do_not_overlap(opened):
    page = opened()
    overlapping = """chart => {
      const boxes = [...chart.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
      const found = [];
      boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
        if (p.right - 1 > q.left && q.right - 1 > p.left && p.bottom - 3 > q.top && q.bottom - 3 > p.top) found.push([a, b]);
      }));
      return found;
    }"""
    for chart in page.locator(".study svg.drawing").all():
        assert chart.evaluate(overlapping) == [], chart.get_attribute("data-key")


def test_figures_and_numbers_can_be_saved(opened, tmp_path):
    page = opened()
    network = data_of(page)[0]
    section = open_network(page, network)
    with page.expect_download() as saved:
        section.locator("button.save").first.click()
    saved.value.save_as(tmp_path / "figure.svg")
    svg = (tmp_path / "figure.svg").read_text()
    assert svg.startswith("<svg")
    assert 'xmlns="http://www.w3.org/2000/svg"' in svg
    assert "var(--" not in svg
    assert 'fill="#fff"' in svg  # a file of its own: colours for white paper, whatever the page shows
    with page.expect_download() as saved:
        section.locator("button.download").click()
    saved.value.save_as(tmp_path / "network.json")
    assert json.loads((tmp_path / "network.json").read_text()) == network


def test_light_and_dark_follow_the_system_and_the_button(opened):
    backgrounds = {}
    for scheme in ("light", "dark"):
        page = opened(scheme=scheme)
        background = "getComputedStyle(document.body).backgroundColor"
        backgrounds[scheme] = page.evaluate(background)
        page.click("#theme")
        assert page.evaluate(background) != backgrounds[scheme]
    assert backgrounds["light"] == "rgb(255, 255, 255)"
    assert backgrounds["dark"] != backgrounds["light"]


def unfolded(page: Any, networks: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The overview, then the networks, each opened with all its details."""
    for anchor in ["", *(f"#{n['key']}" for n in networks)]:
        page.goto(page.url.split("#")[0] + anchor)
        page.wait_for_selector("article h2" if anchor else "#overview")
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        yield anchor


@pytest.mark.parametrize("width", [390, 1600])
def test_nothing_needs_sideways_scrolling(opened, width):
    page = opened(width=width)
    for place in unfolded(page, data_of(page)):
        assert page.evaluate("document.documentElement.scrollWidth") <= width, place


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(opened, scheme):
    page = opened(scheme=scheme)
    for place in unfolded(page, data_of(page)[:2]):
        assert violations(page) == [], place


def test_numbers_have_three_digits_and_all_of_them_on_demand(opened):
    page = opened()
    network = data_of(page)[0]
    facts = network["report"]["facts"]
    names = [name.strip() for name in page.locator("#networks thead button").all_text_contents()]
    k = names.index("growth")
    short = column(page, k)
    page.check("#full")
    whole = column(page, k)
    assert f"{facts['scale']['growth']!r}" in whole
    assert [num(float(value)) for value in whole] == short
    page.reload()
    assert page.is_checked("#full")  # it stands in the address, as the filters do
    cells = open_network(page, network).locator("table.numbers tbody tr").nth(1).locator("td")
    assert float(cells.nth(1).inner_text()) == facts["scale"]["mean"][1]
    page.uncheck("#full")
    assert cells.nth(1).inner_text() == num(facts["scale"]["mean"][1])


def test_24_networks_are_small_and_few_pages_on_paper(browser, tmp_path):
    """Under 400 KB and 6 pages."""
    reports = [
        make_report(
            make_facts(cosines=(0.4, 0.1 + 0.001 * k, 0.1, 0.1, 0.1), growth=1.1 + k / 7, accuracy=0.5),
            headline_acc=[0.5 + k / 1000],
            method_name=f"method {k}",
            notes=f"network {k}",
        )
        for k in range(24)
    ]
    page_file = tmp_path / "many.html"
    made = html_page(reported((r.method_name, r) for r in reports), [Network(r) for r in reports])
    page_file.write_text(made, encoding="utf-8")
    assert page_file.stat().st_size < 400_000
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(page_file.as_uri())
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    context.close()
    assert len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "page.pdf").read_bytes())) < 6


def test_hostile_text_runs_nothing(opened):
    page = opened()
    for network in data_of(page):
        open_network(page, network)
    assert page.evaluate("window.hit") is None


def test_without_scripts_and_on_paper_the_summary_is_there(browser, page_file, tmp_path):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(page_file.as_uri())
    assert page.locator("#networks tbody tr:visible").count() == 5
    assert page.locator("svg.drawing:visible").count() == 1 + len(STUDIES) + 1
    assert "Scripts are off" in page.locator("noscript").inner_text()
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").stat().st_size > 10_000
    context.close()


def test_200_networks_open_in_under_a_second(browser, tmp_path):
    """Twice over, and the faster counts: the machine may be busy."""
    report = make_report(make_facts(cosines=(0.4, 0.1, 0.1, 0.1, 0.1)), headline_acc=[0.5], method_name="mine")
    first = Network(report)
    made = html_page([], [first])
    pack = re.findall(r'<script type="application/gzip" data-networks="[^"]*">[^<]*</script>', made)[0]
    row = re.findall(r"<tr data-method.*?</tr>", made, re.DOTALL)[0]
    page_file = tmp_path / "many.html"
    page_file.write_text(made.replace(pack, pack * 200).replace(row, row * 200), encoding="utf-8")
    took = []
    for _ in range(2):
        context = browser.new_context(offline=True)
        page = context.new_page()
        page.goto(page_file.as_uri())
        took.append(page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"))
        assert page.locator("#networks tbody tr").count() == 200
        context.close()
    assert min(took) < 1000
