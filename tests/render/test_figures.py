"""Figures of networks: the numbers of the facts, every format, text as text, nothing overlaps, names are inert."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from tests.refusals import refusal

from creditscope import CreditscopeError
from creditscope.measure.facts import DepthProfile
from creditscope.protocol.report import make_report
from creditscope.render import figures
from creditscope.render.charts import Chart, Dots, Level, Panel, Row, summary
from creditscope.render.draw import table_panels
from creditscope.render.plots import SETTINGS, Drawing, figure, tick_text
from creditscope.runs.groups import audit
from creditscope.studies.catalogue import NAMES
from creditscope.studies.grid import FA

from ..protocol.factory import make_facts
from ..studies.records import pool
from .pages import HOSTILE, renamed, trained
from .synthetic import made_up_study, profile, spoilt

PRESETS = {"penalty": "paper", "depth": "paper", "architectures": "paper", "temporal": "paper"}
"""Where the published grid has more to draw than the small one."""
PANELS = [figures.audit_panels, figures.layers_panels, figures.temporal_panels]


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    return audit(trained(tmp_path_factory.mktemp("runs")))


def readable(panels: Sequence[Panel], **how: Any) -> Drawing:
    made = figure(panels, **how)
    with matplotlib.rc_context(SETTINGS):
        canvas = FigureCanvasAgg(made)
        canvas.draw()
        renderer = canvas.get_renderer()
        shown = [t for t in made.findobj(Text) if t.get_visible() and t.get_text().strip() and _drawn(t, made)]
        boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in shown]
    width, height = made.bbox.size
    for text, box in boxes:
        assert box.x0 >= -1, text
        assert box.y0 >= -1, text
        assert box.x1 <= width + 1, text
        assert box.y1 <= height + 1, text
    for (one, a), (other, b) in combinations(boxes, 2):
        apart = a.x1 <= b.x0 + 1 or b.x1 <= a.x0 + 1 or a.y1 <= b.y0 + 1 or b.y1 <= a.y0 + 1
        assert apart, (one, other)
    return made


def _drawn(text: Text, made: Any) -> bool:
    """False for the labels of ticks outside the axes' limits, and of shared axes that show none."""
    for axes in made.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if text in (tick.label1, tick.label2):
                    low, high = sorted(limits)
                    return bool(low <= tick.get_loc() <= high and tick.label1.get_visible())
    return True


def test_every_figure_in_every_format_with_text_that_is_text(groups, tmp_path):
    written = figures.write_figures(groups, tmp_path / "out")
    names = {"audit", "layers", "temporal"} | ({"profile"} if groups[0].reports[0].facts.profile else set())
    assert {p.name for p in written} == {f"{name}.{suffix}" for name in names for suffix in ("svg", "pdf", "png")}
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


@pytest.mark.parametrize("panels", PANELS)
@pytest.mark.parametrize("hostile", [False, True])
def test_no_text_overlaps_and_none_is_cut(groups, panels, hostile):
    given = [*groups, *(renamed(groups[0], method_name=t) for t in HOSTILE)] if hostile else groups
    readable(panels(given))


@pytest.mark.parametrize("name", NAMES)
def test_every_study_has_a_figure_in_which_no_text_overlaps(name):
    panels = table_panels(made_up_study(name, PRESETS.get(name, "smoke")))
    assert panels
    readable(panels)


@pytest.mark.parametrize("name", ["audit", "ablation", "freshb"])
def test_hostile_names_are_text_in_the_figure_of_a_study(name):
    readable(table_panels(spoilt(made_up_study(name))))


def test_the_panels_of_a_network_hold_its_facts():
    facts = make_facts(cosines=(0.4, 0.1, 0.2, 0.1, 0.3)).model_copy(
        update={"profile": profile((0.3, 0.4), (0.3, 0.31))}
    )
    found = {p.key: p for p in figures.layer_panels(facts)}
    assert [*found][:4] == ["h", "g", "cosine", "profile"]
    expected = {"h": facts.scale.mean, "g": facts.reference.batch_mean_128, "cosine": (0.4, 0.1, 0.2, 0.1, 0.3)}
    for key, values in expected.items():
        panel = found[key]
        assert isinstance(panel, Chart)
        assert tuple(panel.series[0].values) == values
    reference = found["g"]
    assert isinstance(reference, Chart)
    assert [level.value for level in reference.levels] == [1e-7, 1e-8]


def test_the_profile_of_methods_over_depth_has_the_twins_as_one_band():
    """Two networks of DFA, one of BP: a mean with its range, one with its interval; the band holds every twin's interval."""

    def of(name: str, curve: tuple[float, ...], twin: tuple[float, ...]) -> Any:
        facts = make_facts().model_copy(update={"profile": profile((*curve, 0.3, 0.3, 0.3), (*twin, 0.3, 0.3, 0.3))})
        return make_report(facts, method_name=name)

    made = [of("dfa", (0.3, 0.2), (0.3, 0.31)), of("dfa", (0.32, 0.26), (0.32, 0.3)), of("bp", (0.3, 0.6), (0.3, 0.35))]
    drawn = figures.profile_figure([*made, make_report(make_facts(), method_name="without")])
    assert [t.get_text() for t in drawn.legends[0].get_texts()] == ["dfa", "bp", "twin: random blocks"]
    found: dict[str, list[DepthProfile]] = {}
    for report in made:
        found.setdefault(report.method_name, []).append(report.facts.profile)
    panel = figures.profile_panel(found)
    dfa, bp, twins = panel.series
    assert dfa.values[:2] == pytest.approx([0.31, 0.23])
    assert [dfa.interval(0), dfa.interval(1)] == [(0.3, 0.32), (0.2, 0.26)]
    assert bp.interval(1) == pytest.approx((0.58, 0.63))
    assert twins.band
    assert twins.interval(1) == pytest.approx((0.28, 0.38))
    (axes,) = drawn.axes
    outlines = [np.asarray(c.get_paths()[0].vertices) for c in axes.collections]
    (heights,) = [outline[:, 1] for outline in outlines if len(outline) > 4]
    assert (min(heights), max(heights)) == pytest.approx((0.28, 0.38))  # of every twin's interval, at every depth
    assert "raw input 0.250" in summary(panel)
    with pytest.raises(CreditscopeError, match="none of the reports has a depth profile"):
        figures.profile_figure([make_report(make_facts())])


def test_means_over_seeds_are_geometric_on_a_log_axis_and_leave_out_what_is_not_finite():
    runs = [[1.0, math.nan, 4.0], [4.0, 9.0, math.inf]]
    assert figures._over_seeds("x", runs, log=True).values == pytest.approx([2.0, 9.0, 4.0])
    assert figures._over_seeds("x", runs).values == pytest.approx([2.5, 9.0, 4.0])
    assert figures._over_seeds("x", [[math.nan]]).values == [None]


def test_networks_of_different_shape_get_their_own_figures(groups):
    other = dataclasses.replace(groups[0], spec=groups[0].spec.model_copy(update={"depth": 8}))
    parts = figures.alike([*groups, other])
    assert sorted(len(found) for found in parts.values()) == [1, 2]
    assert figures.alike(groups) == {"": list(groups)}
    many = figures.alike(list(groups) * 10)
    assert [len(found) for found in many.values()] == [12, 8]


def test_names_keep_what_tells_groups_apart_where_they_are_cut():
    def group(**change: Any) -> Any:
        return audit(pool((FA, 0.4, 0.35, {}), **change))[0]

    wide, deep, bare = group(width=512), group(), group(terminal_norm=False)
    label = deep.label
    assert figures.names([deep]) == [label]
    assert figures.names([wide, deep], 60) == [f"{label} d=512", f"{label} d=256"]
    assert figures.names([wide, deep, bare], 24) == [
        "fa(none) norm True d=512",
        "fa(none) norm True d=256",
        "fa(non… norm False d=256",
    ]


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys, creditscope.render.figures, creditscope.render.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_directory_that_cannot_be_made_is_one_line(groups, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot make" in refusal(lambda: figures.write_figures(groups, tmp_path / "file" / "out"))
    with pytest.raises(CreditscopeError, match=r"end it with \.svg, \.pdf or \.png"):
        figure(figures.audit_panels(groups)).save(tmp_path / "x.gif")


@pytest.mark.parametrize(
    ("value", "text"), [(-0.00025, "-2.5e-4"), (-0.001, "-0.001"), (0.0005, "5e-4"), (0.0, "0"), (0.25, "0.25")]
)
def test_ticks_of_a_linear_axis_are_short(value, text):
    """Seven letters fit the fixed margin."""
    assert tick_text(value) == text
    assert len(text) <= 7


@pytest.mark.parametrize(
    ("values", "least", "limits"),
    [
        ((0.301, 0.303), 0.1, (0.252, 0.352)),  # around their middle, .302
        ((0.003, 0.005), 0.1, (0.0, 0.1)),  # an accuracy is not below 0
        ((0.1, 0.9), 0.1, None),  # wide enough: as matplotlib has it
    ],
)
def test_the_values_of_one_network_do_not_fill_an_axis(values, least, limits):
    row = Row("mine", [(f"seed {k}", v) for k, v in enumerate(values)])
    narrow, wide = (
        figure([Dots("a", "accuracy", "", "accuracy", [row], zero=False, least=size)]).axes[0].get_xlim()
        for size in (0.0, least)
    )
    assert wide == pytest.approx(limits or narrow)


def test_a_threshold_and_its_unit_stand_on_one_line():
    row = Row("mine", [("seed 1", 3.0)])
    dots = [
        Dots("a", "margin", "", "margin (pp)", [row], levels=[Level(2.0, "the D3 threshold 2 pp")]) for _ in range(4)
    ]
    for axes in figure(dots).axes:
        assert "2\N{NO-BREAK SPACE}pp" in axes.get_xlabel()
