"""Figures for papers: every format, text as text, nothing overlaps, names are inert."""

from __future__ import annotations

import dataclasses
import statistics
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from creditscope import CreditscopeError
from creditscope.render import figures
from creditscope.render.charts import Chart, Dots
from creditscope.render.plots import SETTINGS, plot
from creditscope.render.study_charts import study_charts
from creditscope.runs.groups import audit
from creditscope.studies.catalogue import NAMES

from .pages import HOSTILE, renamed, trained
from .synthetic import made_up_study, spoilt

PRESETS = {"penalty": "paper", "depth": "paper", "architectures": "paper", "temporal": "paper"}
"""Where the published grid has more to draw than the small one."""
DRAW = [figures.audit_figure, figures.layers_figure, figures.temporal_figure]


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    return audit(trained(tmp_path_factory.mktemp("runs")))


def test_every_figure_in_every_format_with_text_that_is_text(groups, tmp_path):
    written = figures.write_figures(groups, tmp_path / "out")
    assert sorted(p.name for p in written) == sorted(
        f"{name}.{suffix}" for name in ("audit", "layers", "temporal") for suffix in ("svg", "pdf", "png")
    )
    for path in written:
        content = path.read_bytes()
        if path.suffix == ".svg":
            assert b"<text" in content
            assert b"dfa(rms)" in content
        elif path.suffix == ".pdf":
            assert content.startswith(b"%PDF")
            assert b"/Type3" not in content
        else:
            assert content.startswith(b"\x89PNG")
    again = figures.write_figures(groups, tmp_path / "again")
    assert [p.read_bytes() for p in written] == [p.read_bytes() for p in again]


@pytest.mark.parametrize("draw", DRAW)
@pytest.mark.parametrize("hostile", [False, True])
def test_no_text_overlaps_and_none_is_cut(groups, draw, hostile):
    given = [*groups, *(renamed(groups[0], method_name=t) for t in HOSTILE)] if hostile else groups
    readable(lambda: draw(given))


@pytest.mark.parametrize("name", NAMES)
def test_every_study_has_a_figure_in_which_no_text_overlaps(name):
    panels = study_charts(made_up_study(name, PRESETS.get(name, "smoke")))
    assert panels
    readable(lambda: plot(panels))


@pytest.mark.parametrize("name", ["audit", "ablation", "early", "freshb"])
def test_hostile_names_are_text_in_the_figure_of_a_study(name):
    panels = study_charts(spoilt(made_up_study(name)))
    readable(lambda: plot(panels))


def test_the_files_of_a_study_with_hostile_names_are_well_formed(tmp_path):
    written = figures.write_figures([], tmp_path, {"study-ablation": study_charts(spoilt(made_up_study("ablation")))})
    assert [p.name for p in written] == ["study-ablation.svg", "study-ablation.pdf", "study-ablation.png"]
    drawn = written[0].read_text()
    assert "<script" not in drawn
    ElementTree.fromstring(drawn)
    assert b"/Type3" not in written[1].read_bytes()


def test_marks_of_a_study_are_its_numbers():
    result = made_up_study("freshb")
    drawn = study_charts(result)[0]
    assert isinstance(drawn, Dots)
    for row, point in zip(drawn.rows, result.figure["points"], strict=True):
        assert [v for _, v in row.marks] == [point["trained"]]
        assert [v for _, v in row.hollow] == point["draws"]
    lines = study_charts(made_up_study("ladder"))[0]
    assert isinstance(lines, Chart)
    points = [p for p in made_up_study("ladder").figure["points"] if p["method"] == lines.series[0].name]
    assert list(lines.series[0].values) == pytest.approx([statistics.fmean(p["accuracy"]) for p in points])
    ranks = study_charts(made_up_study("functional"))[0]
    assert isinstance(ranks, Chart)
    by_cosine = sorted(made_up_study("functional").figure["points"], key=lambda p: -p["cosine"])
    first = {s.name: s.values[0] for s in ranks.series}
    assert [first[p["label"]] for p in by_cosine] == [1, 2, 3, 4]


def test_networks_of_different_shape_get_their_own_figures(groups):
    other = dataclasses.replace(groups[0], spec=groups[0].spec.model_copy(update={"depth": 8}))
    parts = figures.alike([*groups, other])
    assert sorted(len(found) for found in parts.values()) == [1, 2]
    assert figures.alike(groups) == {"": list(groups)}
    many = figures.alike(list(groups) * 10)
    assert [len(found) for found in many.values()] == [12, 8]


def readable(draw: Callable[[], Any]) -> None:
    settings: Any = SETTINGS
    with matplotlib.rc_context(settings):
        figure = draw()
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        shown = [
            t
            for t in figure.findobj(Text)
            if isinstance(t, Text) and t.get_visible() and t.get_text().strip() and _drawn(t, figure)
        ]
        boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in shown]
    width, height = figure.bbox.size
    for text, box in boxes:
        assert box.x0 >= -1, text
        assert box.y0 >= -1, text
        assert box.x1 <= width + 1, text
        assert box.y1 <= height + 1, text
    for (one, a), (other, b) in combinations(boxes, 2):
        apart = a.x1 <= b.x0 + 1 or b.x1 <= a.x0 + 1 or a.y1 <= b.y0 + 1 or b.y1 <= a.y0 + 1
        assert apart, (one, other)


def _drawn(text: Text, figure: Any) -> bool:
    """False for the labels of ticks outside the axes' limits, and of shared axes that show none."""
    for axes in figure.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if text in (tick.label1, tick.label2):
                    low, high = sorted(limits)
                    return bool(low <= tick.get_loc() <= high and tick.label1.get_visible())
    return True


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys, creditscope.render.figures; sys.exit(any('matplotlib' in m for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_directory_that_cannot_be_made_is_one_line(groups, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CreditscopeError, match="cannot make"):
        figures.write_figures(groups, tmp_path / "file" / "out")
