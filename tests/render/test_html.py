"""The HTML page without a browser: everything is in it, nothing from outside is markup, it stays small."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import numpy as np
import pytest

from creditscope.cli import main
from creditscope.measure.facts import Training
from creditscope.protocol import DiagnosticThresholds
from creditscope.protocol.report import make_report
from creditscope.render.audit import audit_markdown, caption, cells
from creditscope.render.axes import linear_axis, log_axis, whole_ticks
from creditscope.render.charts import Chart, Level, Series, missing
from creditscope.render.figures import names
from creditscope.render.html import Network, html_page, networks
from creditscope.render.html.overview import told_apart
from creditscope.render.html.section import section
from creditscope.render.html.studies import _kind
from creditscope.render.numbers import signed
from creditscope.render.svg import chart_svg
from creditscope.runs.groups import Group, audit
from creditscope.studies.grid import FA
from creditscope.runs.record import Record

from ..protocol.factory import make_facts
from ..studies.test_analyses import pool
from .pages import HOSTILE, renamed, trained, unpacked
from .test_report import report

VOID = {"meta", "link", "input", "br", "circle", "rect", "line", "polyline", "polygon"}


class Page(HTMLParser):
    """Elements, attributes and text; checks that elements close in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.data = ""
        self.feed(source)
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1:] == ["script"] and self.elements[-1][1].get("id") == "data"
        if inside:
            self.data += data
        else:
            self.text.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def groups(bundles):
    return audit(bundles)


@pytest.fixture(scope="module")
def page(groups, bundles):
    return Page(html_page(groups, networks(groups, bundles)))


def hand_made(**facts: Any) -> Network:
    made = make_report(make_facts(depth=None, **facts), headline_acc=[0.5], method_name="mine", notes="by hand")
    return Network(made)


def test_every_network_has_a_section_and_its_whole_report_as_json(page, groups, bundles):
    data = unpacked(page.data)["networks"]
    assert [n["key"] for n in data] == [a["id"] for a in page.of("article")]
    assert len(data) == len(bundles) == 4
    assert [n["null"] for n in data] == [False, False, True, True]
    assert data[0]["report"] == groups[0].reports[0].to_dict()
    assert data[0]["spec"] == json.loads(groups[0].spec.model_dump_json())
    text = " ".join(page.text)
    for group in groups:
        for check in group.reports[0].verdict.checks:
            assert check.sentence in text
        for step in group.reports[0].chain:
            assert step.title in text
            assert step.sentence in text


def test_every_mark_of_a_layer_figure_is_a_number_of_the_report(page, groups):
    facts = groups[0].reports[0].facts
    told = [a["data-v"] for _, a in page.elements if "data-v" in a]
    first = np.array([float(v) for v in told if v.lower().replace("e", "").strip("+-.0123456789") == ""])
    for expected in (*facts.scale.mean, *facts.reference.batch_mean_128, *facts.alignment.mean):
        assert np.isclose(first, expected, rtol=1e-3, atol=0).any()
    # a person reads it: no mark says 0.28908333333333336
    assert max(sum(c.isdigit() for c in v.split("e")[0]) for v in told if v[-1:].isdigit()) <= 7


def test_every_figure_says_what_it_shows(page):
    charts = page.of("svg")
    assert len(charts) >= 3 + 4 * 6
    for chart in charts:
        assert chart["role"] == "img"
        assert len(chart["aria-label"]) > 30
        assert chart["data-convention"]


def test_nothing_is_requested_from_anywhere(page):
    for tag, attributes in page.elements:
        assert tag not in {"iframe", "object", "embed", "audio", "video", "base", "img"}
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))
    policy = next(m["content"] for m in page.of("meta") if m.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_inert_in_the_page_and_in_the_table(groups, bundles, page, text):
    spoilt = [renamed(groups[0], method_name=text, notes=text), groups[1]]
    shown = [dataclasses.replace(n, path=text) for n in networks(spoilt, bundles)]
    made = html_page(spoilt, shown, title=text)
    other = Page(made)
    tags = [tag for tag, _ in other.elements]
    assert tags == [tag for tag, _ in page.elements]
    for _, attributes in other.elements:
        assert not any(name.startswith("on") for name in attributes)
    assert unpacked(other.data)["networks"][0]["report"]["notes"] == text
    assert len(made) < 400_000 + 40 * len(text)
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", made)[0]
    assert not re.search("[\x00\x1b\u2028\u202e]", made)
    table = audit_markdown(spoilt, text)
    assert "<script" not in table
    assert "<img" not in table
    assert len(table) < 20_000


def test_a_report_without_a_bundle_makes_a_page():
    page = Page(html_page([], [hand_made(cosines=(0.9, 0.1, 0.0, 0.0, 0.1))]))
    assert "by hand" in " ".join(page.text)


def test_what_cannot_be_drawn_is_said():
    network = hand_made(cosines=(math.nan, 0.1, 0.0, 0.0, 0.1), growth=math.inf, g_128=0.0, non_finite=("h_1",))
    page = Page(html_page([], [network]))
    text = " ".join(page.text)
    assert "not drawn: layer 0 (NaN)" in text
    assert "not drawn: layer 0 (0)" in text
    assert "needs walk-back" in text


def test_a_fuller_report_adds_what_it_measured(groups, bundles):
    report = groups[0].reports[0]
    training = Training(
        accuracy=(0.1,),
        train_loss=(2.0,),
        loss_decrease=-0.5,
        loss_decrease_from_start=None,
        growth=1.5,
        growth_embed=None,
        growth_readout=None,
        growth_by_block=(1.0,),
        weight_product=(1.0,),
        weight_product_start=(1.0,),
    )
    fuller = report.facts.model_copy(update={"training": training})
    shown = networks(groups, bundles, [report.model_copy(update={"facts": fuller})])
    assert len(shown) == 4
    assert shown[0].report.facts.training is not None
    assert shown[0].report.verdict == report.verdict


def test_the_full_level_is_drawn_with_its_controls_and_its_null_band():
    made = report(level="full", method_name="mine")
    page = Page(html_page([], [Network(made)]))
    charts = {a["data-key"]: a for a in page.of("svg")}
    assert {"rho", "nudging", "fresh-b", "cosine"} <= charts.keys()
    assert "fresh-B null of the deep mean" in (charts["cosine"]["aria-label"] or "")
    for kind in ("credit a", "control a = g", "control random"):
        assert kind in (charts["rho"]["aria-label"] or "")


def test_the_command_writes_page_table_and_figures(bundles, tmp_path, capsys):
    given = str(bundles[0].path.parent)
    out = {"--html": tmp_path / "r.html", "--latex": tmp_path / "t.tex", "--figures": tmp_path / "figures"}
    flags = [str(part) for pair in out.items() for part in pair]
    assert main(["report", given, *flags, "--standalone"]) == 0
    assert "the protocol" in capsys.readouterr().out
    Page(out["--html"].read_text(encoding="utf-8"))
    assert out["--latex"].read_text().startswith(r"\documentclass")
    assert len(list(out["--figures"].iterdir())) == 9
    assert main(["report", given, "--html", str(tmp_path / "nowhere" / "r.html")]) == 2


def test_a_hundred_runs_of_a_hundred_epochs_stay_under_five_megabytes(groups, bundles):
    first = networks(groups, bundles)[0]
    line = {**first.trajectory[-1], "growth": 1234.56789, "accuracy": 0.123456789}
    long = [{**line, "epoch": k, "train_loss": 2.123456789 / (k + 1)} for k in range(101)]
    wide = make_facts(cosines=(0.123456789012345,) * 5, growth=12345.678901234567, g_128=1.23456789012345e-8)
    report = first.report.model_copy(update={"facts": wide})
    many = [dataclasses.replace(first, report=report, path=f"runs/{k}", trajectory=long) for k in range(100)]
    assert len(html_page(groups, many + networks(groups, bundles)).encode()) < 5_000_000


def test_the_files_of_the_page_are_in_the_package():
    folder = resources.files("creditscope.render") / "html"
    for name in ("page.html", "page.css", "page.js"):
        assert (folder / name).is_file()


def test_axes_hold_their_values_and_have_round_ticks():
    assert linear_axis([0.03, 0.97]) == (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert linear_axis([5.0]) == (4.4, 5.6, [4.4, 4.6, 4.8, 5.0, 5.2, 5.4, 5.6])
    low, high, ticks = log_axis([3e-8, 0.2])
    assert (low, high) == (1e-8, 1.0)
    assert ticks == [1e-8, 1e-6, 1e-4, 1e-2, 1.0]
    assert whole_ticks(range(5)) == [0, 1, 2, 3, 4]
    assert whole_ticks(range(101)) == [0, 20, 40, 60, 80, 100]
    assert linear_axis([math.nan]) == (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])


def test_a_mark_stands_where_its_value_says():
    chart = Chart("k", "t", "c", "y", [0, 1, 2], [Series("s", [0.0, 0.5, 1.0])], levels=(Level(0.5, "half"),))
    drawn = str(chart_svg(chart))
    heights = [float(y) for y in re.findall(r'<circle class="m" cx="[\d.]+" cy="([\d.]+)"', drawn)]
    level = float(re.search(r'class="level"[^>]* y1="([\d.]+)"', drawn)[1])  # type: ignore[index]
    assert heights[0] > heights[1] > heights[2]
    assert heights[1] == pytest.approx(level, abs=0.11)
    assert heights[1] == pytest.approx((heights[0] + heights[2]) / 2, abs=0.11)
    assert missing(chart) == ""


def test_the_margin_of_a_network_is_its_own_and_the_mean_says_that_it_is_one(bundles):
    """A second seed with other accuracies: each row shows its own margin, the section names the mean over seeds."""

    def again(bundle: Any, accuracy: float) -> Any:
        other = type(bundle.spec)(**{**bundle.spec.model_dump(), "seed": bundle.spec.seed + 1})
        line = {**bundle.trajectory[-1], "accuracy": accuracy}
        facts = {**bundle.report["facts"], "accuracy": accuracy, "evaluation": None}
        return Record(other, [*bundle.trajectory[:-1], line], {**bundle.report, "facts": facts})

    dfa, null = bundles[0], bundles[2]
    assert null.spec.hash == dfa.spec.null("matched").hash
    pool = [*bundles, again(dfa, 0.27925), again(null, 0.2835)]
    assert pool[-2].accuracy == 0.27925
    made = audit(pool)
    first, second = (section(n, DiagnosticThresholds()) for n in networks(made, pool)[:2])
    own = 100 * (dfa.accuracy - null.accuracy)
    mean = (own - 0.425) / 2
    assert first["margin"] == pytest.approx(own)
    assert second["margin"] == pytest.approx(-0.425)
    assert second["margin_cell"] == "-0.4"
    assert second["margin_told"] == f"mean margin over 2 seeds {signed(mean, 1)} pp, this network -0.4 pp"
    alone = section(Network(made[0].reports[1]), DiagnosticThresholds())  # its null is not at hand
    assert alone["margin"] is None
    assert alone["margin_cell"] == f"– (mean over 2 seeds {signed(mean, 1)})"
    text = html_page(made, networks(made, pool))
    assert ">own margin (pp)</th>" in text
    assert ">-0.4</td>" in text


def test_the_audit_table_says_over_how_many_layers_gamma_is(groups):
    group = groups[0]
    assert "layers)" not in cells(group)[2]
    facts = group.reports[0].facts
    lost = facts.alignment.model_copy(update={"mean": (None, *facts.alignment.mean[1:])})
    fewer = renamed(group, facts=facts.model_copy(update={"alignment": lost}))
    value, _, both = cells(group)[2].partition("; ")
    assert cells(fewer)[2] == f"{value} (1 of 2 layers); {both}"  # of those that count: a_2 trains nothing
    assert both.endswith(" over all layers")


def test_the_caption_of_the_markdown_table_is_whole(groups):
    assert caption(groups)[-20:] in audit_markdown(groups, "title")
    assert len(caption(groups)) > 500


def test_groups_of_one_name_are_told_apart_by_what_differs_on_the_same_task_and_shape():
    def group(**change: object) -> Group:
        return audit(pool((FA, 0.4, 0.35, {}), **change))[0]

    whole, bare = group(), group(terminal_norm=False)
    elsewhere = group(dataset="cifar100", terminal_norm=False)
    assert told_apart(bare, [whole, bare, elsewhere]) == "terminal_norm False"
    assert told_apart(elsewhere, [whole, bare, elsewhere]) == ""


def test_names_keep_what_tells_groups_apart_where_they_are_cut():
    def group(**change: object) -> Group:
        return audit(pool((FA, 0.4, 0.35, {}), **change))[0]

    wide, deep, bare = group(width=512), group(), group(terminal_norm=False)
    label = deep.label
    assert names([deep]) == [label]
    assert names([wide, deep], 60) == [f"{label} d=512", f"{label} d=256"]
    assert names([wide, deep, bare], 24) == [
        "fa(none) norm True d=512",
        "fa(none) norm True d=256",
        "fa(non… norm False d=256",
    ]


def test_a_column_of_names_is_no_column_of_sentences_or_numbers():
    columns = {
        "words": ["needs walk-back: D1 scale stability, D3 depth utility", "trustworthy"],
        "name": ["bp", "dfa(rms) [thirty epochs]"],
        "": ["+23.0 [+21.0, +24.9]", "-0.3 [-2.1, +1.4]"],
    }
    assert {kind: _kind(cells) for kind, cells in columns.items()} == {kind: kind for kind in columns}
