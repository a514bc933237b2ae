"""The studies on the page and as tables: published | ours | difference, computed words, nothing from outside is markup."""

from __future__ import annotations

import dataclasses
import random
import re

import pytest

from creditscope.protocol.report import make_report
from creditscope.render.html import Network, html_page
from creditscope.render.study import arranged, study_latex, study_markdown, study_text
from creditscope.render.study_charts import BUILDERS, study_charts
from creditscope.studies.catalogue import NAMES
from creditscope.studies.grid import DFA, make
from creditscope.studies.result import StudyResult

from ..protocol.factory import make_facts
from .pages import HOSTILE
from .synthetic import full, made_up, made_up_study, spoilt
from .test_html import Page
from .test_latex import ALLOWED


@pytest.fixture(scope="module")
def results():
    return [made_up_study(name) for name in NAMES]


def network() -> Network:
    return Network(make_report(make_facts(cosines=(0.4, 0.1, 0.1, 0.1, 0.1)), headline_acc=[0.5], method_name="mine"))


def test_every_study_can_be_drawn():
    assert set(BUILDERS) == set(NAMES)


def test_every_study_has_its_section_with_conclusion_figure_and_table(results):
    page = Page(html_page([], [network()], studies=[("smoke", r) for r in results], begun=["depth (paper): 1 of 30"]))
    text = " ".join(page.text)
    for result in results:
        assert result.conclusion[:400] in text
        assert any(a.get("id") == f"study-{result.name}-smoke" for a in page.of("h3"))
    drawn = {str(a["data-key"]) for a in page.of("svg")}
    assert all(any(key.startswith(f"{name}-") for key in drawn) for name in NAMES)
    for chart in page.of("svg"):
        assert chart["role"] == "img"
        assert len(chart["aria-label"] or "") > 30
    assert "depth (paper): 1 of 30" in text
    assert [s["conclusion"] for s in page.studies] == [r.conclusion for r in results]


def test_published_ours_and_difference_stand_side_by_side():
    result = StudyResult(
        "audit",
        "q",
        ["method", "accuracy", "published", "difference", "Γ", "ρ", "published"],
        [["dfa", "0.300", "0.306", "-0.006", "0.1", "0.2", "–"], ["bp", "0.6", "–", "–", "1", "1", "–"]],
        {"points": []},
        "c",
        "v",
    )
    columns, rows = arranged(result)
    assert [(c.group, c.name) for c in columns] == [
        ("", "method"), ("accuracy", "published"), ("accuracy", "ours"), ("accuracy", "difference"), ("", "Γ"), ("", "ρ"),
    ]  # fmt: skip
    assert rows[0] == ["dfa", "0.306", "0.300", "-0.006", "0.1", "0.2"]
    made = html_page([], [network()], studies=[("paper", result)])
    start = made.index("numbers study-table")
    head = made[start : made.index("</thead>", start)]
    assert re.search(r'colspan="3"[^>]*>accuracy<', head)
    assert re.findall(r'<th scope="col" class="(\w+)">', head) == ["published", "ours", "difference"]
    latex = study_latex(result)
    assert "accuracy: published & accuracy: ours & difference" in latex


def test_hostile_text_in_a_study_is_inert_everywhere(results):
    plain = Page(html_page([], [network()], studies=[("smoke", r) for r in results]))
    bad = [spoilt(dataclasses.replace(r, notes=list(HOSTILE))) for r in results]
    clean = [dataclasses.replace(r, notes=list(HOSTILE)) for r in results]
    made = html_page([], [network()], studies=[("smoke", r) for r in bad])
    page = Page(made)
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain.elements} | {"ul", "li"}
    same = Page(html_page([], [network()], studies=[("smoke", r) for r in clean]))
    for tag in ("script", "img", "style", "a", "button", "h3", "table"):
        assert len(page.of(tag)) == len(same.of(tag)), tag
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search("[\x00\x1b\u2028\u202e]", made)
    for result in bad[:3]:
        told = study_markdown(result)
        assert "<script" not in told
        assert "<img" not in told
        assert "\u202e" not in told + study_text(result) + study_latex(result)
        latex = study_latex(result)
        commands = set(re.findall(r"\\([A-Za-z]+)", latex))
        ours = {
            "begin",
            "end",
            "centering",
            "scriptsize",
            "caption",
            "label",
            "resizebox",
            "ifdim",
            "width",
            "linewidth",
        }
        ours |= {"else", "fi", "toprule", "midrule", "bottomrule", "usepackage"}
        assert commands <= ALLOWED | ours
        assert latex.isascii()


def test_a_hundred_different_networks_with_all_studies_stay_under_five_megabytes():
    many = [varied(seed) for seed in range(100)]
    assert all(len(n.trajectory) == 101 for n in many)
    studies = [("paper" if name == "temporal" else "smoke") for name in NAMES]
    results = [(preset, made_up_study(name, preset)) for name, preset in zip(NAMES, studies, strict=True)]
    assert len(html_page([], many, studies=results).encode()) < 5 * 2**20


def varied(seed: int) -> Network:
    """A network of 100 epochs, measured at level full, with digits that do not repeat."""
    run = made_up(make("paper", DFA, seed))
    dice = random.Random(seed)
    facts = full(run.facts, dice)
    scale = facts.scale.model_copy(update={"mean": tuple(dice.random() for _ in range(5))})
    report = make_report(
        facts.model_copy(update={"scale": scale}),
        headline_acc=[0.5],
        method_name="dfa(rms)",
        notes=f"cifar10, resmlp d=256 L=4, seed {seed}",
        run=run.spec.hash,
    )
    keys = ("accuracy", "train_loss", "gamma", "growth", "stability")
    lines = [{**x, **{k: dice.random() for k in keys}, "g_per_sample": [dice.random()] * 2} for x in run.trajectory]
    return Network(report, run.spec.model_dump(), lines, {"torch": "2.4"}, f"runs/{run.spec.hash}", dice.random())


def test_what_is_not_finite_is_left_out_and_said():
    result = made_up_study("random-target")
    lines = [{**line, "h_L": ["NaN", *line["h_L"][1:]]} for line in result.figure["lines"]]
    chart = study_charts(dataclasses.replace(result, figure={**result.figure, "lines": lines}))[0]
    made = html_page([], [network()], studies=[("smoke", dataclasses.replace(result, figure={"lines": lines}))])
    assert chart.series[0].values[0] is None  # type: ignore[union-attr]
    assert "epoch 0 (not measurable)" in made
