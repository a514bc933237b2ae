"""Figures for papers: every format, text as text, nothing overlaps, names are inert."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from typing import Any

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from creditscope import CreditscopeError
from creditscope.render import figures
from creditscope.render.plots import SETTINGS
from creditscope.studies.audit import audit

from .pages import HOSTILE, renamed, trained

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
    settings: Any = SETTINGS
    with matplotlib.rc_context(settings):
        figure = draw(given)
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
