"""The slim SVG: marks stand where their values say and tell them, colours are classes, nothing in it is markup from outside."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from creditscope.render.charts import Band, Cell, Chart, Dots, Level, Matrix, Panel, Row, Series, missing
from creditscope.render.plots import COLOURS, MARKERS, figure
from creditscope.render.svg import GROUNDS, standalone, svg

from .pages import HOSTILE

NS = "{http://www.w3.org/2000/svg}"


def chart(*series: Series, **more: object) -> Chart:
    return Chart("k", "title", "convention", "y", [0, 1, 2], series, **more)  # type: ignore[arg-type]


def marks(drawn: str) -> list[tuple[str, ElementTree.Element]]:
    """(words, element) of every mark."""
    elements = ElementTree.fromstring(drawn).iter()
    return [(str(e.findtext(f"{NS}title")), e) for e in elements if "m" in e.get("class", "").split()]


def test_a_mark_stands_where_its_value_says_and_tells_it():
    drawn = svg(figure([chart(Series("s", [0.0, 0.5, 1.0]), levels=(Level(0.5, "half"),))]))
    found = marks(drawn)
    assert [words for words, _ in found] == ["s = 0, layer 0", "s = 0.5, layer 1", "s = 1, layer 2"]
    heights = [float(e.get("cy", "nan")) for _, e in found]
    (level,) = re.findall(r'<path d="M[\d.]+ ([\d.]+)L[\d.]+ \1" class="lrule"', drawn)
    assert heights[0] > heights[1] > heights[2]
    assert heights[1] == pytest.approx(float(level), abs=0.11)
    assert heights[1] == pytest.approx((heights[0] + heights[2]) / 2, abs=0.11)


def test_every_shape_stays_at_its_place_and_every_colour_is_a_class_and_a_colour():
    """The markers of matplotlib are drawn around their point: so is the middle of each outline."""
    series = [Series(f"s{k}", [k, k + 1.0, k]) for k in range(len(COLOURS))]
    found = marks(svg(figure([chart(*series)])))
    assert len(found) == 3 * len(COLOURS)
    across: dict[str, set[float]] = {}
    for words, element in found:
        k = int(words[1])
        assert {f"f{k}", "m"} <= set(element.get("class", "").split())
        assert element.get("fill", "").lower() == COLOURS[k].lower()
        if MARKERS[k] == "o":
            x = float(element.get("cx", "nan"))
        else:
            xs = [float(v) for v in re.findall(r"(-?[\d.]+) -?[\d.]+", element.get("d", ""))]
            x = (min(xs) + max(xs)) / 2
        across.setdefault(words[-1], set()).add(round(x))
    assert all(max(places) - min(places) <= 1 for places in across.values())


def test_a_long_line_has_few_marks_and_keeps_its_ends_and_rings():
    values = [float(k) for k in range(101)]
    panel = Chart("k", "t", "c", "y", range(101), [Series("s", values, fired=[37])], "epoch")
    told = [words for words, _ in marks(svg(figure([panel])))]
    assert len(told) < 20
    assert {"s = 0, epoch 0", "s = 37, epoch 37", "s = 100, epoch 100"} <= set(told)


def test_what_is_not_finite_is_left_out_and_said():
    panel = chart(Series("s", [float("nan"), None, 1.0]))
    made = figure([panel])
    assert made.note == missing(panel) == "not drawn: layer 0 (NaN), layer 1 (not measurable)"
    assert [words for words, _ in marks(svg(made))] == ["s = 1, layer 2"]
    log = figure([chart(Series("s", [0.0, 1.0, 2.0]), log=True)])
    assert "layer 0 (0)" in log.note


def test_cells_intervals_and_open_marks_tell_their_values():
    rows = [Row("bp", [("seed 1", 0.5), ("seed 2", 0.25)], (0.2, 0.6), [("null", 0.1)])]
    assert [w for w, _ in marks(svg(figure([Dots("d", "t", "c", "x", rows)])))] == [
        "bp = 0.5, seed 1",
        "bp = 0.25, seed 2",
        "bp = 0.1, null",
    ]
    matrix = Matrix("m", "t", "c", ["S1", "S2"], [("bp", [Cell("accept", "good"), Cell("reject", "bad")])])
    assert [w for w, _ in marks(svg(figure([matrix])))] == ["bp, S1: accept", "bp, S2: reject"]
    assert re.findall(r'<path [^>]*class="m (\w+)', str(svg(figure([matrix])))) == ["fgood", "fbad"]
    spans = svg(figure([chart(Series("s", [0.1, 0.2, 0.3], [(0.0, 0.15), 0.05, None]))]))
    assert "s = 0.1 [0, 0.15], layer 0" in spans
    assert "s = 0.2 [0.15, 0.25], layer 1" in spans


def test_the_words_for_who_cannot_see_it_are_there():
    made = figure([chart(Series("s", [1.0, 2.0, 3.0]), band=Band(0, 1, 0, 2, "chance"))])
    root = ElementTree.fromstring(svg(made, "key"))
    assert root.get("role") == "img"
    assert root.get("aria-label") == "title. layer 0 1, layer 1 2, layer 2 3; band: chance."
    assert made.note == "band: chance"


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_words(text):
    panels: list[Panel] = [
        Chart("k", text, text, text, [0, 1], [Series(text, [1.0, 2.0]), Series("b", [2.0, 1.0])], text),
        Matrix("m", text, text, [text], [(text, [Cell(text)])]),
    ]
    drawn = svg(figure(panels), text)
    tags = {e.tag.removeprefix(NS) for e in ElementTree.fromstring(drawn).iter()}
    assert tags <= {"svg", "path", "text", "title", "circle"}
    assert not re.search("[\x00\x1b\u2028\u202e]", drawn)
    assert not re.search(r"<\w+[^>]* on\w+=", re.sub(r'"[^"]*"', '""', drawn))


def test_four_panels_take_few_bytes():
    """matplotlib's own SVG of the same figure has about 30 kB."""
    panels = [chart(Series(f"s{k}", [1.0, 2.0, 3.0]), levels=(Level(2, "limit"),)) for k in range(4)]
    assert len(svg(figure(panels, columns=4, quick=True))) < 9000


def test_a_figure_of_its_own_brings_ground_and_colours_for_both_schemes():
    drawn = standalone(figure([chart(Series("s", [1.0, 2.0, 3.0]), levels=(Level(2.0, "half"),))]))
    root = ElementTree.fromstring(drawn)
    style, ground, *_ = root
    light, dark = (style.text or "").split("@media (prefers-color-scheme: dark)")
    assert (ground.tag, ground.get("class")) == (f"{NS}rect", "ground")
    used = {name for e in root.iter() for name in (e.get("class") or "").split()} - {"drawing", "m"}
    for sheet, name in ((light, "light"), (dark, "dark")):
        assert all(f".{used_class} {{" in sheet for used_class in used)
        assert f".ground {{ fill: {GROUNDS[name]['bg']} }}" in sheet
