"""Described figures drawn with matplotlib: text as text, colours and marks that do without each other."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from creditscope.render.charts import Chart, Dots, Matrix, usable
from creditscope.render.charts import Figure as Described
from creditscope.render.numbers import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito: told apart with every common colour vision."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLES = ("-", "--", "-.", ":")
LEVELS = ("--", ":", "-.", (0, (8, 2)), (0, (1, 3)))
WIDTH = 7.2
"""Inches: the text width of a page."""
SETTINGS: dict[str, Any] = {
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "creditscope",
    "text.parse_math": False,  # a method's name is text, whatever stands in it
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
}
FACES = {
    "good": ("#DCEBF7", ""),
    "bad": ("#FBE3D6", "///"),
    "open": ("#F2F2F2", ".."),
    "plain": ("#FFFFFF", ""),
}
"""Face and hatch of a cell; its words say the same."""


def plot(panels: Sequence[Described]) -> Figure:
    """One figure with all panels of a study."""
    from matplotlib.figure import Figure

    lines = _arranged(panels)
    heights = [max(map(_height, line)) for line in lines]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.9), layout="constrained")
    grid = figure.add_gridspec(len(lines), 1, height_ratios=heights)
    drawn: list[Axes] = []
    levels = 0
    for k, line in enumerate(lines):
        cells = grid[k].subgridspec(1, len(line))
        for i, panel in enumerate(line):
            axes = figure.add_subplot(cells[i])
            axes.set_title("\n".join(textwrap.wrap(panel.title, 94 // len(line) - 10)))
            if isinstance(panel, Chart):
                _chart(axes, panel, levels)
            elif isinstance(panel, Dots):
                _dots(axes, panel, levels, first=i == 0)
            else:
                _matrix(axes, panel)
            drawn.append(axes)
            levels += 0 if isinstance(panel, Matrix) else len(panel.levels)
    legend(figure, drawn)
    return figure


def _arranged(panels: Sequence[Described]) -> list[list[Described]]:
    """Rows of panels: a matrix has a row of its own, the others stand two or three in a row, by their kind."""
    lines: list[list[Described]] = []
    for kind, found in groupby(panels, key=type):
        same = list(found)
        words = max((len(" ".join(p.places)) for p in same if isinstance(p, Chart)), default=0)
        most = 1 if kind is Matrix else 2 if words > 24 or len(same) in (2, 4) else 3
        lines += [same[k : k + most] for k in range(0, len(same), most)]
    return lines


def _height(panel: Described) -> float:
    if isinstance(panel, Chart):
        return 2.4
    return 0.8 + (0.24 if isinstance(panel, Dots) else 0.34) * len(panel.rows)


def style(k: int) -> dict[str, Any]:
    return {
        "color": COLOURS[k % len(COLOURS)],
        "marker": MARKERS[k % len(MARKERS)],
        "ls": STYLES[(k // len(COLOURS)) % len(STYLES)],
        "ms": 4,
        "lw": 1.2,
    }


def short(name: str, letters: int = 34) -> str:
    name = printable(name)
    return name if len(name) <= letters else name[: letters - 1] + "…"


def _chart(axes: Axes, chart: Chart, before: int) -> None:
    """`before`: levels in earlier panels, so that every level has a dash of its own."""
    from matplotlib.ticker import MaxNLocator

    for k, series in enumerate(chart.series):
        kept = [
            (x, v, w)
            for (x, v), w in zip(chart.points(series), [*series.spread, *[None] * len(series.values)], strict=False)
            if v is not None and usable(v, chart.log)
        ]
        look = style(k) if series.line else {**style(k), "ls": "none", "ms": 5}
        look["markevery"] = (k % 3 if len(kept) > 18 else 0, max(1, len(kept) // 9))
        xs, values = [x for x, _, _ in kept], [v for _, v, _ in kept]
        axes.plot(xs, values, label=short(series.name), **look)
        bars = [(x, v, w) for x, v, w in kept if w is not None and math.isfinite(w)]
        if bars and len(kept) <= 18:
            axes.errorbar(
                [x for x, _, _ in bars], [v for _, v, _ in bars], yerr=[w for _, _, w in bars],
                fmt="none", ecolor=look["color"], elinewidth=0.8, capsize=2,
            )  # fmt: skip
        rings = [(x, v) for x, v, _ in kept if x in series.fired]
        if rings:
            axes.plot(*zip(*rings, strict=True), "o", ms=9, mfc="none", mec=look["color"], label="_nolegend_")
    for k, level in enumerate(chart.levels, before):
        axes.axhline(level.value, color="0.3", ls=LEVELS[k % len(LEVELS)], lw=0.8, label=short(level.label, 44))
    if chart.zero:
        axes.axhline(0, color="0.75", lw=0.8, zorder=0)
    axes.set_ylabel(chart.y)
    axes.set_xlabel(chart.x)
    if chart.log:
        log_scale(axes, "y")
    if chart.places:
        axes.set_xticks(range(len(chart.places)), [short(p, 14) for p in chart.places])
        axes.set_xlim(-0.4, len(chart.places) - 0.6)
    elif chart.whole:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.axvline(0, color="0.75", lw=0.8, zorder=0)
    if chart.flip:
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.invert_yaxis()


def _dots(axes: Axes, dots: Dots, before: int, first: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    labelled: set[str] = set()

    def once(label: str) -> str:
        new = label if label and label not in labelled else "_nolegend_"
        labelled.add(label)
        return new

    for k, row in enumerate(dots.rows):
        marks = [v for _, v in row.marks if usable(v, dots.log)]
        hollow = [v for _, v in row.hollow if usable(v, dots.log)]
        if row.interval and all(usable(v, dots.log) for v in row.interval):
            axes.plot(row.interval, [k, k], "-", color=COLOURS[0], lw=1.6, alpha=0.6)
            axes.plot(row.interval, [k, k], "|", color=COLOURS[0], ms=6)
        axes.plot(hollow, [k] * len(hollow), "s", mfc="none", color=COLOURS[1], ms=4, label=once(dots.hollow))
        axes.plot(marks, [k] * len(marks), "o", color=COLOURS[0], ms=4, label=once(dots.marks))
    for k, level in enumerate(dots.levels, before):
        axes.axvline(level.value, color="0.3", ls=LEVELS[k % len(LEVELS)], lw=0.8, label=short(level.label, 44))
    if dots.log:
        log_scale(axes, "x")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
        if dots.zero:
            axes.axvline(0, color="0.75", lw=0.8, zorder=0)
    axes.set_yticks(range(len(dots.rows)), [short(r.name, 48) if first else "" for r in dots.rows])
    axes.set_ylim(len(dots.rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(dots.x)


def _matrix(axes: Axes, matrix: Matrix) -> None:
    from matplotlib.patches import Rectangle

    letters = max(6, 78 // max(1, len(matrix.columns)))
    for i, (_, cells) in enumerate(matrix.rows):
        for k, cell in enumerate(cells):
            face, hatch = FACES[cell.kind]
            box = Rectangle((k - 0.5, i - 0.5), 1, 1, facecolor=face, edgecolor="0.75", hatch=hatch, lw=0.8)
            axes.add_patch(box)
            words = textwrap.wrap(short(cell.words, 40), letters, break_long_words=False)
            axes.text(
                k, i, "\n".join(words), ha="center", va="center", fontsize=6.5,
                bbox={"facecolor": face, "edgecolor": "none", "pad": 0.6},
            )  # fmt: skip
    axes.set_xlim(-0.5, max(1, len(matrix.columns)) - 0.5)
    axes.set_ylim(len(matrix.rows) - 0.5, -0.5)
    axes.set_xticks(range(len(matrix.columns)), ["\n".join(textwrap.wrap(c, letters)) for c in matrix.columns])
    axes.set_yticks(range(len(matrix.rows)), [short(name) for name, _ in matrix.rows])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def log_scale(axes: Axes, which: str = "y") -> None:
    """Powers of ten as 1e-7: they are text, and the same as in the reports."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis = axes.yaxis if which == "y" else axes.xaxis
    (axes.set_yscale if which == "y" else axes.set_xscale)("log")
    low, high = sorted(axis.get_view_interval())
    if low > 0 and math.ceil(math.log10(low)) >= math.floor(math.log10(high)):  # fewer than two powers in view
        limits = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high) + 1e-9)
        (axes.set_ylim if which == "y" else axes.set_xlim)(*limits)
    axis.set_major_locator(LogLocator(numticks=8 if which == "y" else 5))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"1e{round(math.log10(value))}" if value > 0 else ""))


def legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """One legend below all panels, each name once."""
    pairs = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if not pairs:
        return
    columns = max(1, min(4, len(pairs), 100 // (max(map(len, pairs)) + 6)))
    figure.legend(list(pairs.values()), list(pairs), loc="outside lower center", ncols=columns)
