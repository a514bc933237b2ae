"""The front door: numbers of the README and of the figures come from files, sentences are short, words of ours are explained."""

import csv
import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats
from tests.e2e.pages import BLOCK, DOCS, ROOT, anchors

from creditscope.render.checklist import QUESTIONS

README = (ROOT / "README.md").read_text()
LONGEST = 40
"""Words of a sentence."""
CONCEPTS = {
    **{f"checks/{name}": name for name in ("d1", "d2", "d3", "c")},
    **{"depth-profile": "profile", "locality": "locality", "stream": "stream", "protocol": "protocol", "review": "protocol"},
}  # fmt: skip
"""Page -> its figure."""


def of_docs(name: str, place: Path = DOCS) -> ModuleType:
    sys.path.insert(0, str(place))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(place))


def records(prefix: str) -> dict:
    (found,) = (ROOT / "results" / "runs").glob(f"{prefix}*.json")
    return json.loads(found.read_text())


def groups(pattern: str, text: str) -> tuple[str, ...]:
    found = re.search(pattern, text, re.DOTALL)
    assert found is not None, pattern
    return found.groups()


def sentences(text: str) -> list[str]:
    """Of the prose: without code, tables, comments, links' addresses, pictures."""
    text = re.sub(r"<!--.*?-->|<[^>]+>", " ", BLOCK.sub("\n\n", text), flags=re.DOTALL)
    text = re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"\n\n\1\n\n", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    prose = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("|"))
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*>#]|\d+\.) )|(?<=[.!?:])[*_)\"”]*\s+", prose)
    return [" ".join(part.split()) for part in parts if part.strip()]


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "docs/review.md", "docs/glossary.md"])
def test_no_sentence_is_longer_than_forty_words(page):
    long = [s for s in sentences((ROOT / page).read_text()) if len(s.split()) > LONGEST]
    assert not long, long


def test_sentences_are_counted_as_a_reader_counts_them():
    assert sentences("# Title\n\nOne two. Three\nfour?\n\n| a | table |\n- an item\n\n```sh\ncode. code\n```\n") == [
        "# Title", "One two.", "Three four?", "- an item",
    ]  # fmt: skip


def test_the_readme_is_about_a_hundred_lines_and_its_tables_are_narrow():
    assert 90 <= len(README.splitlines()) <= 112
    for line in README.splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") <= 6  # five columns


def test_the_surprising_fact_is_that_of_the_runs_it_names():
    """Γ, accuracy and baseline of Credit Bridge: the mean over the three runs of its spec, from the files."""
    shown, null = groups(r"runs show (\w+) --store.*?random blocks: `(\w+)`", README)

    def same(prefix):
        spec = records(prefix)["spec"]
        every = [json.loads(p.read_text()) for p in (ROOT / "results" / "runs").glob("*.json")]
        return [r for r in every if {**r["spec"], "seed": 0} == {**spec, "seed": 0}]

    trained, frozen = same(shown), same(null)
    assert {r["spec"]["seed"] for r in trained} == {r["spec"]["seed"] for r in frozen} == {42, 123, 456}
    assert (trained[0]["spec"]["method"], trained[0]["spec"]["epochs"]) == ("cb", 30)
    assert frozen[0]["spec"]["train_last"] == 0
    claimed = [float(v) for v in re.findall(r"(?:Γ = |accuracy of |accuracy is )([\d.]+\d)", README)[:3]]
    assert trained[0]["spec"]["credit_site"] == "input"  # so a_L trains nothing and does not count
    gammas = [np.mean(r["report"]["facts"]["alignment"]["mean"][:-1]) for r in trained]
    accuracies = [np.mean([r["trajectory"][-1]["accuracy"] for r in of]) for of in (trained, frozen)]
    assert claimed == [
        pytest.approx(np.mean(gammas), abs=0.006),
        *(pytest.approx(value, abs=6e-4) for value in accuracies),
    ]


def test_the_readme_explains_its_words():
    for word in ("credit", "Γ", "twin", "growth", "null", "Mode 1", "matched"):
        assert re.search(rf"\*+{re.escape(word)}\*+", README), f"{word} is not introduced"
    assert "`credit_norm`, which" in README
    assert "RMS 1 (`rms`)" in README
    for word in ("bundle", "store "):  # not needed by a first reader, so not used outside of commands
        assert word not in re.sub(r"`[^`]+`", "", BLOCK.sub("", README))


@pytest.mark.parametrize(("page", "figure"), CONCEPTS.items())
def test_every_concept_has_its_figure_for_both_colour_schemes(page, figure):
    text = (DOCS / f"{page}.md").read_text()
    assert re.search(rf"!\[[^\]]{{30,}}\]\((?:\.\./)?images/{figure}\.svg\)", text), "no figure with a text alternative"
    drawn = (DOCS / "images" / f"{figure}.svg").read_text()
    assert "prefers-color-scheme: dark" in drawn
    assert 'class="ground"' in drawn
    assert "aria-label" in drawn
    assert len(drawn) < 40_000


def test_the_first_figure_shows_the_stored_profiles():
    """The numbers in its text alternative are the means over seeds in profiles.json."""
    stored = json.loads((DOCS / "images" / "profiles.json").read_text())
    drawn = (DOCS / "images" / "profile.svg").read_text()
    for label, name in of_docs("figures").CURVES.items():
        curves = [[state["accuracy"] for state in p["curve"]] for p in stored[label].values()]
        assert len(curves) == 3
        (told,) = groups(rf"{re.escape(name)}: ([^;]+);", drawn)
        shown = [float(v) for v in re.findall(r"layer \d+ ([\d.]+)", told)]
        assert shown == pytest.approx(np.mean(curves, axis=0), abs=6e-4)


def test_the_figure_of_d3_shows_the_accuracies_of_the_runs():
    drawn = (DOCS / "images" / "d3.svg").read_text()
    spec = {
        "dataset": "cifar10",
        "width": 256,
        "depth": 4,
        "epochs": 100,
        "method": "bp",
        "penalty": 0.0,
        "train_last": None,
    }
    found = {}
    for path in (ROOT / "results" / "runs").glob("*.json"):
        r = json.loads(path.read_text())
        if all(r["spec"].get(k) == v for k, v in spec.items()) and r["spec"]["terminal_norm"]:
            found[r["spec"]["seed"]] = r["trajectory"][-1]["accuracy"]
    (told,) = groups(r"accuracy\. bp: ([^;]+),", drawn)
    assert {int(s): float(v) for s, v in re.findall(r"seed (\d+) ([\d.]+)", told)} == pytest.approx(found, abs=6e-4)


def test_first_uses_of_a_word_become_links_to_the_glossary():
    reason = "pip install 'creditscope[docs]' builds the site"
    nodes = pytest.importorskip("docutils.nodes", reason=reason)
    new_document = pytest.importorskip("docutils.utils", reason=reason).new_document
    links = of_docs("glossary_links", DOCS / "_ext")
    tree = new_document("page")
    title, first, second = nodes.title("", "A null"), nodes.paragraph(), nodes.paragraph()
    first += [
        nodes.Text("Two nulls, a nullable and "),
        nodes.literal("", "credit_norm"),
        nodes.Text(" and a frozen-blocks null"),
    ]
    second += nodes.Text("Mode 1, growth, and a null again")
    tree += [title, first, second]
    assert links.link(tree, "glossary.html") == 4
    made = {n["refuri"]: n.astext() for n in tree.findall(nodes.reference)}
    assert made == {
        "glossary.html#null": "nulls", "glossary.html#credit_norm": "credit_norm", "glossary.html#mode-1": "Mode 1",
        "glossary.html#growth": "growth",
    }  # fmt: skip
    assert tree.astext().replace(
        "\n\n", "|"
    ) == "A null|Two nulls, a nullable and credit_norm and a frozen-blocks null|" + ("Mode 1, growth, and a null again")


def test_every_glossary_entry_can_be_linked():
    pytest.importorskip("docutils", reason="pip install 'creditscope[docs]' builds the site")
    words = of_docs("glossary_links", DOCS / "_ext").words()
    assert {w.anchor for w in words} <= anchors(DOCS / "glossary.md")
    forms = [form.lower() for w in words for form in w.forms]
    assert len(forms) == len(set(forms)) > 30


def test_the_page_for_reviewers_asks_what_the_checklist_asks():
    asked = re.findall(r"PF(\d\d): \*\*(.+?)\*\*", (ROOT / "docs" / "review.md").read_text())
    assert len(asked) == len(QUESTIONS)
    assert {int(number): question for number, question in asked} == QUESTIONS


def test_the_page_for_reviewers_explains_every_warning_behind_the_word():
    code = (ROOT / "src" / "creditscope" / "protocol" / "policies.py").read_text()
    warnings = re.findall(r'warned\.append\("([^"]+)"\)', code)
    assert len(warnings) > 3
    page = (DOCS / "review.md").read_text()
    assert not [w for w in warnings if f"(warning: {w})`" not in page]


def page_text(name: str) -> str:
    return " ".join((DOCS / name).read_text().split())


def test_published_numbers_of_the_pages_are_those_of_the_audit():
    with (ROOT / "audits" / "arxiv-2606.21126" / "published.csv").open() as file:
        published = list(csv.DictReader(file))

    def value(**wanted: str) -> dict[str, str]:
        (found,) = (row for row in published if all(row[k] == v for k, v in wanted.items()))
        return found

    told = groups(r"published: frozen (\S+), DFA (\S+), FA (\S+)\)", page_text("checks/d3.md"))
    audit = {"table": "Primary audit", "quantity": "accuracy"}
    rows = [value(**audit, method=m, setting=s) for m, s in (("dfa", "frozen blocks"), ("dfa", ""), ("fa", ""))]
    assert [float(t) for t in told] == [float(row["value"]) for row in rows]
    course = value(table="Course of DFA", quantity="cosine[0]", epoch="5")
    told = groups(r"layer 0 has (\S+) to (\S+) from the start", page_text("studies/early.md"))
    assert [float(t) for t in told] == [float(course["low"]), float(course["high"])]


def test_numbers_that_the_pages_compute_are_computed_here():
    megabytes = groups(r"CIFAR-10: (\d+) MB of bytes, and (\d+) MB padded", page_text("devices.md"))
    assert [int(m) for m in megabytes] == [round(60_000 * 3 * 32**2 / 1e6), round(50_000 * 3 * 40**2 / 1e6)]
    *seeds, low, high = groups(
        r"seeds at (\S+), (\S+) and (\S+) it reaches from (\S+) to ([\d.]+),", page_text("board.md")
    )
    ends = stats.ttest_1samp([float(s) for s in seeds], 0).confidence_interval()
    assert (float(low), float(high)) == pytest.approx(tuple(ends), abs=5e-3)


def test_the_costs_of_a_step_on_two_pages_differ_by_what_is_said():
    with (ROOT / "audits" / "field" / "cost.csv").open() as file:
        cost = {row["rule"]: float(row["per_step"]) for row in csv.DictReader(file)}
    table = (DOCS / "credit-rules.md").read_text().partition("## What a step costs")[2]
    told = {rule: float(over) for rule, over in re.findall(r"^\| `([\w-]+)` \| ([\d.]+) \|", table, re.MULTILINE)}
    assert told.keys() <= cost.keys()
    (said,) = groups(r"the two differ by up to (\d+) %", page_text("credit-rules.md"))
    assert int(said) == round(100 * max(abs(over / cost[rule] - 1) for rule, over in told.items()))
