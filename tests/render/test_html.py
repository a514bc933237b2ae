"""The HTML page without a browser: everything is in it, nothing from outside is markup, it stays small."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from creditscope.cli import main
from creditscope.measure.certificate import Answer, Certificate
from creditscope.protocol import DiagnosticThresholds, judge
from creditscope.protocol.report import DiagnosticReport, make_report
from creditscope.render.draw import table_panels
from creditscope.render.html import Network, html_page, networks
from creditscope.render.html.page import audit_cells, environment, network_html, told_apart, warnings_of
from creditscope.render.html.section import layers_full, row, tone, verdict_mark
from creditscope.render.layers import PAGE, layers_section
from creditscope.render.numbers import num, signed
from creditscope.render.tables import kinds, table_markdown
from creditscope.render.words import paragraph
from creditscope.runs.groups import Group, audit, reported
from creditscope.runs.record import Record
from creditscope.studies.audit import audit_table
from creditscope.studies.catalogue import NAMES
from creditscope.studies.grid import FA

from ..protocol.factory import make_facts
from ..studies.records import pool
from .pages import HOSTILE, renamed, trained, unpacked
from .synthetic import full, made_up_study, profile, spoilt
from .test_report import report

VOID = {"meta", "link", "input", "br", "circle", "rect", "path"}


class Page(HTMLParser):
    """Elements, attributes and text of the page and, behind it, of the network pages packed in it; elements close in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.packs: list[str] = []
        self.feed(source)
        self.overview = len(self.elements)
        """Elements that are there before a network is opened."""
        *pages, held = map(unpacked, self.packs)
        self.networks, self.studies = held["networks"], held["studies"]
        self.pages: dict[str, str] = {key: html for pack in pages for key, html in pack.items()}
        for html in self.pages.values():
            self.feed(html)
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID or tag in ("circle", "path"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        packed = self.open[-1:] == ["script"] and self.elements[-1][1].get("type") == "application/gzip"
        (self.packs if packed else self.text).append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def assert_inert(self, source: str) -> None:
        assert not any(name.startswith("on") for _, attributes in self.elements for name in attributes)
        assert not re.search("[\x00\x1b\u2028\u202e]", source + "".join(self.pages.values()))


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


def test_every_network_has_a_page_and_its_whole_report_as_json(page, groups, bundles):
    data = page.networks
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


def test_the_overview_is_there_without_a_network_opened(page, groups):
    """Without scripts, and in print: the audit table, its figure and a line per network; no network page."""
    tags = [tag for tag, _ in page.elements[: page.overview]]
    assert "article" not in tags
    assert tags.count("svg") == 1
    assert tags.count("tr") == 1 + len(groups) + 1 + 4


def test_chance_stands_beside_every_accuracy(page, groups, bundles):
    """Ten classes of the embedded task: the larger of .1 and the share of the largest class."""
    seen = groups[0].reports[0].facts.evaluation
    told = f"chance {num(max(1 / 10, seen.largest_class))}"
    overview = re.findall(r'<span class="chance">([^<]*)</span>', html_page(groups, networks(groups, bundles)))
    assert overview == [told] * (len(groups) + len(bundles))
    pages = [html for html in page.pages.values() if "Accuracy + Γ alone" in html]
    assert [html.count(f'<span class="small">{told};</span>') for html in pages] == [1] * len(groups)
    assert 'class="chance"' not in html_page((), [hand_made()])  # whose labels are not known


def test_a_cell_without_a_value_is_a_dash_that_says_why(page):
    """Of bundles, of a report by hand without credit and null, of one with a layer that has no cosine."""
    partly = hand_made(cosines=(0.1,) * 5)
    assert partly.report.facts.alignment is not None
    means = partly.report.facts.alignment.model_copy(update={"mean": (0.1, 0.1, None, 0.1, 0.1)})
    facts = partly.report.facts.model_copy(update={"alignment": means})
    made = [hand_made(), dataclasses.replace(partly, report=partly.report.model_copy(update={"facts": facts}))]
    found = [*page.pages.values(), html_page((), made), *(network_html(n) for n in made)]
    dashes = [title for html in found for title in re.findall(r'<span class="none" title="([^"]*)">–</span>', html)]
    assert {"no credit was given", "no credit, or no cosine, at this layer", "not set"} <= set(dashes)
    for html in found:
        cells = re.findall(r"<(?:td|dd)[^>]*>(.*?)</(?:td|dd)>", html, re.DOTALL)
        bare = [re.sub(r'<span class="none" title="[^"]+">–</span>', "why", cell).strip() for cell in cells]
        assert not {"", "–"} & set(bare)


def test_every_mark_of_a_layer_figure_is_a_number_of_the_report(page, groups):
    facts = groups[0].reports[0].facts
    told = re.findall(r"<title>([^<]*)</title>", page.pages[page.networks[0]["key"]])
    first = np.array([float(words.split(" = ")[1].split(",")[0].split(" ")[0]) for words in told])
    for expected in (*facts.scale.mean, *facts.reference.batch_mean_128, *facts.alignment.mean):
        assert np.isclose(first, expected, rtol=6e-3, atol=0).any()
    # a person reads it: no mark says 0.28908333333333336
    digits = [
        sum(c.isdigit() for c in number.split("e")[0].lstrip("0."))
        for words in told
        for number in re.findall(r"[\d.e+-]{4,}", words)
    ]
    assert max(digits) <= 4  # 1234 is printed whole


def test_two_reports_of_one_name_have_pages_of_their_own(tmp_path):
    given = [hand_made(cosines=(0.1 * k,) * 5) for k in (1, 2, 2)]
    page = Page(html_page([], given))
    keys = [n["key"] for n in page.networks]
    assert len(set(keys)) == 3
    assert [a["id"] for a in page.of("article")] == keys
    assert [a["href"] for a in page.of("a") if str(a.get("href")).startswith("#run-")] == [f"#{key}" for key in keys]
    rows = reported((f"{k}.json", n.report) for k, n in enumerate(given))
    linked = Page(html_page(rows, given))
    links = [str(a["href"]).removeprefix("#") for a in linked.of("a") if "seed" in str(a.get("class"))]
    assert links == keys


def test_the_depth_profile_is_drawn_with_the_twin_as_a_band():
    facts = make_facts(depth=None, cosines=(0.1,) * 5).model_copy(
        update={"profile": profile((0.3, 0.4, 0.41, 0.42, 0.5), (0.3,) * 5)}
    )
    made = network_html(Network(make_report(facts, method_name="mine")))
    for words in ("network = 0.5 [0.48, 0.53], layer 4", "twin: random blocks = 0.3 [0.28, 0.33], layer 0"):
        assert f"<title>{words}</title>" in made
    assert 'fill-opacity="0.2"' in made
    assert "h_4" in made
    assert "profile margin (readout of h_L minus the twin" in made


def test_a_certificate_stands_on_the_page_with_its_matrix():
    answer = Answer("weight transport between blocks", "no", 2e-7, 1e-6)
    found = Certificate("local", "because", ((None, 1e-9), (0.5, None)), {"transport": answer}, ("a", "b"), {})
    made = network_html(Network(hand_made().report.with_certificate(found)))
    for words in (
        "LOCALITY: local",
        "why: because",
        "weight transport between blocks",
        "2e-07",
        "<title>weights of b, update of a: 0.5</title>",
    ):
        assert words in made


def test_every_figure_says_what_it_shows(page):
    charts = page.of("svg")
    assert len(charts) == 1 + 2 * 4  # the audit's, and layers and epochs of every network
    for chart in charts:
        assert chart["role"] == "img"
        assert len(chart["aria-label"] or "") > 30


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
    other.assert_inert(made)
    assert other.networks[0]["report"]["notes"] == text
    assert len(made) < 400_000 + 40 * len(text)
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", made)[0]
    table = table_markdown(audit_table(spoilt, text))
    assert "<script" not in table
    assert "<img" not in table
    assert len(table) < 20_000


def test_a_measurable_cosine_has_no_badge_of_a_pass():
    def told(**facts: Any) -> str:
        html = network_html(hand_made(**facts))
        return re.findall("<dt>Γ</dt><dd>(.*?)</dd>", html)[0]

    near_zero = (-0.01, -0.005, -0.01, -0.01, -0.01)
    assert told(cosines=near_zero) == "measurable, -0.009"
    assert told() == "not measured (no credit given)"
    small = told(cosines=near_zero, g_128=1e-9)
    assert 'class="badge fail"' in small
    assert "withheld" in small


@pytest.mark.parametrize(("networks_shown", "at_once"), [(1, True), (3, True), (4, False)])
def test_the_warnings_of_few_networks_stand_on_the_overview(networks_shown, at_once):
    made = [
        make_report(
            make_facts(), headline_acc=0.5, frozen_baseline_acc={"bp": 0.3}, n_test=1000, method_name=f"net {k}"
        )
        for k in range(networks_shown)
    ]
    html = html_page(reported([(r.method_name, r) for r in made]), list(map(Network, made)))
    overview = html.split('id="networks-title"')[0]
    assert ("D3 uses the bp null" in overview) is at_once
    assert ("Warnings on net 0" in overview) is at_once


def test_a_warning_of_some_networks_of_a_row_names_them(groups):
    first = groups[0].reports[0]
    told = first.verdict.model_copy(update={"warnings": (*first.verdict.warnings, "of one alone")})
    reports = [first, first.model_copy(update={"verdict": told})]
    row: Any = SimpleNamespace(names=["seed 0", "seed 1"], reports=reports)
    assert first.verdict.warnings
    assert warnings_of(row) == dict.fromkeys(first.verdict.warnings, "") | {"of one alone": "seed 1"}


def test_warnings_stand_under_the_verdict_and_names_in_them_are_code():
    made = make_report(make_facts(), headline_acc=[0.5] * 3, frozen_baseline_acc={"bp": [0.3, 0.31, 0.32]})
    html = network_html(Network(made))
    assert html.index('class="banner') < html.index('class="warnings"') < html.index('class="versus"')
    assert "D3 uses the bp null" in html
    assert "`" not in html
    code = environment().filters["code"]
    assert code("`<i>` and <b>, one ` alone") == "<code>&lt;i&gt;</code> and &lt;b&gt;, one ` alone"


def test_what_cannot_be_drawn_is_said():
    network = hand_made(cosines=(math.nan, 0.1, 0.0, 0.0, 0.1), growth=math.inf, g_128=0.0, non_finite=("h_1",))
    page = Page(html_page([], [network]))
    text = " ".join(page.text)
    assert "by hand" in text  # its own words: it comes from no bundle
    assert "not drawn: layer 0 (NaN)" in text
    assert "not drawn: layer 0 (0)" in text
    assert "needs walk-back" in text


def test_a_fuller_report_adds_what_it_measured(groups, bundles):
    report = groups[0].reports[0]
    fuller = full(report.facts, random.Random(0))
    shown = networks(groups, bundles, [report.model_copy(update={"facts": fuller})])
    assert len(shown) == 4
    assert shown[0].report.facts.perturbation == fuller.perturbation is not None
    assert shown[0].report.verdict == report.verdict


def test_the_full_level_is_drawn_with_its_controls_and_its_null_band():
    made = network_html(Network(report(level="full", method_name="mine")))
    label = re.findall(r'aria-label="(mean [^"]*)"', made)[0]
    for words in (
        "perturbation correlation ρ",
        "loss change by nudging",
        "fresh-B null: deep mean cosine",
        "fresh-B null of the deep mean",
    ):
        assert words in label
    for kind in ("credit a", "control a = g", "control random"):
        assert kind in label


def test_the_command_writes_page_table_and_figures(bundles, tmp_path, capsys):
    given = str(bundles[0].path.parent)
    out = {"--html": tmp_path / "r.html", "--latex": tmp_path / "t.tex", "--figures": tmp_path / "figures"}
    flags = [str(part) for pair in out.items() for part in pair]
    assert main(["report", given, *flags, "--standalone"]) == 0
    assert "the protocol" in capsys.readouterr().out
    Page(out["--html"].read_text(encoding="utf-8"))
    assert out["--latex"].read_text().startswith(r"\documentclass")
    assert len(list(out["--figures"].iterdir())) in (9, 12)  # 12 with the depth profile
    assert main(["report", given, "--html", str(tmp_path / "nowhere" / "r.html")]) == 2


def test_24_networks_stay_under_400_kilobytes(groups, bundles):
    """As many epochs as the demo has; each network with its own digits, depth profile and full level."""
    first = networks(groups, bundles)[0]
    many = []
    for k in range(24):
        dice = random.Random(k)
        line = {**first.trajectory[-1]}
        keys = ("growth", "accuracy", "train_loss")
        long = [
            {**line, "epoch": e, **{key: dice.random() for key in keys}, "g_per_sample": [dice.random()]}
            for e in range(26)
        ]
        facts = make_facts(
            cosines=tuple(dice.random() for _ in range(5)), growth=100 * dice.random(), g_128=dice.random()
        )
        curves = [[dice.random() for _ in range(5)] for _ in range(2)]
        facts = full(facts, dice).model_copy(update={"profile": profile(*curves)})
        report = first.report.model_copy(update={"facts": facts})
        many.append(dataclasses.replace(first, report=report, path=f"runs/{k}", trajectory=long))
    assert len(html_page(groups, [*many[:22], *networks(groups, bundles)[:2]]).encode()) < 400_000


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
    first, second = map(row, networks(made, pool)[:2])
    own = 100 * (dfa.accuracy - null.accuracy)
    mean = (own - 0.425) / 2
    assert first["margin"] == pytest.approx(own)
    assert second["margin"] == pytest.approx(-0.425)
    assert second["margin_cell"] == "-0.4"
    assert second["margin_told"] == f"mean margin over 2 seeds {signed(mean, 1)} pp, this network -0.4 pp"
    alone = row(Network(made[0].reports[1]))  # its null is not at hand
    assert alone["margin"] is None
    assert alone["margin_cell"] == f"mean over 2 seeds {signed(mean, 1)}"
    text = html_page(made, networks(made, pool))
    assert ">margin (pp)</th>" in text
    assert ">-0.4</td>" in text


def test_the_audit_table_says_over_how_many_layers_gamma_is(groups):
    group = groups[0]
    assert "layers)" not in audit_cells(group)["gamma"]
    facts = group.reports[0].facts
    lost = facts.alignment.model_copy(update={"mean": (None, *facts.alignment.mean[1:])})
    fewer = renamed(group, facts=facts.model_copy(update={"alignment": lost}))
    assert "1 of 2 layers" in audit_cells(fewer)["gamma"]  # of those that count: a_2 trains nothing


def test_groups_of_one_name_are_told_apart_by_what_differs_on_the_same_task_and_shape():
    def group(**change: Any) -> Group:
        return audit(pool((FA, 0.4, 0.35, {}), **change))[0]

    whole, bare = group(), group(terminal_norm=False)
    elsewhere = group(dataset="cifar100", terminal_norm=False)
    assert told_apart(bare, [whole, bare, elsewhere]) == "terminal_norm False"
    assert told_apart(elsewhere, [whole, bare, elsewhere]) == ""


def test_a_column_of_names_is_no_column_of_sentences_or_numbers():
    columns = {
        "words": ["needs walk-back: D1 scale stability, D3 depth utility", "trustworthy"],
        "name": ["bp", "dfa(rms) [thirty epochs]"],
        "": ["+23.0 [+21.0, +24.9]", "-0.3 [-2.1, +1.4]"],
    }
    assert kinds([list(row) for row in zip(*columns.values(), strict=True)]) == list(columns)


def test_full_numbers_of_the_layers_are_those_of_the_facts():
    facts = make_facts(cosines=(1 / 3, 0.1, 0.1, 0.1, 0.1), g_128=1 / 7e5)
    header, rows = layers_section(facts, PAGE).header, layers_section(facts, PAGE).rows
    whole = layers_full(facts)
    assert [len(cells) for cells in whole] == [len(header)] * len(rows)
    at = dict(zip(header, whole[0], strict=True))
    assert facts.alignment is not None
    assert float(at["cos(a_l, g_l)"]) == facts.alignment.mean[0] == 1 / 3
    assert float(at["‖g_l‖ / 128"]) == facts.reference.batch_mean_128[0]
    assert float(at["clamp batch size"]) == facts.reference.clamp_batch_size[0]
    assert float(at["under floor"]) == facts.alignment.under_floor[0]


def test_a_pass_with_a_warning_is_not_green():
    for growth, name, words in ((177.0, "warned", "✓ pass, with a warning"), (2.0, "pass", "✓ pass")):
        facts = make_facts(growth=growth)
        made = DiagnosticReport(facts=facts, verdict=judge(facts, DiagnosticThresholds()))
        shown = row(Network(made))
        assert (made.status, shown["tone"], shown["mark"]) == ("pass", name, words)
        assert f'class="banner {name}"' in network_html(Network(made))
    calm, grown = (judge(make_facts(growth=growth), DiagnosticThresholds()) for growth in (2.0, 177.0))
    assert (tone("pass", [calm, grown]), verdict_mark("pass", [calm, grown])) == ("warned", "✓ pass, with a warning")
    assert (tone("pass", [calm]), tone("mixed", [calm, grown])) == ("pass", "mixed")


def test_every_study_has_its_section_with_conclusion_figure_and_table():
    tables = [made_up_study(name) for name in NAMES]
    page = Page(html_page([], [hand_made()], studies=[("smoke", t) for t in tables], begun=["depth (paper): 1 of 30"]))
    text = " ".join(page.text)
    for table in tables:
        assert paragraph(table.conclusion)[:400] in text
        assert any(a.get("id") == f"study-{table.name}-smoke" for a in page.of("h3"))
        assert table_panels(table), table.name
    assert "depth (paper): 1 of 30" in text
    assert [s["text"]["conclusion"] for s in page.studies] == [paragraph(t.conclusion) for t in tables]


def test_hostile_text_in_a_study_is_inert_everywhere():
    tables = [made_up_study(name) for name in NAMES[:3]]  # a page is drawn for each of the three forms
    plain = Page(html_page([], [hand_made()], studies=[("smoke", t) for t in tables]))
    bad = [spoilt(t) for t in tables]
    clean = [dataclasses.replace(t, notes=HOSTILE) for t in tables]
    made = html_page([], [hand_made()], studies=[("smoke", t) for t in bad])
    page = Page(made)
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain.elements} | {"ul", "li"}
    same = Page(html_page([], [hand_made()], studies=[("smoke", t) for t in clean]))
    for tag in ("script", "img", "style", "a", "button", "h3", "table"):
        assert len(page.of(tag)) == len(same.of(tag)), tag
    page.assert_inert(made)
