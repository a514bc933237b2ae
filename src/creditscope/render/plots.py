"""The one way of drawing: matplotlib, for notebooks, papers and pages (whose SVG `creditscope.render.svg` makes small).

Colours are told apart with every common colour vision; marks differ in shape, so that none is told by its colour alone.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Sequence
from itertools import count, groupby
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from creditscope.errors import CreditscopeError
from creditscope.files import write_atomic
from creditscope.render.charts import Chart, Dots, Level, Matrix, Panel, Series, missing, summary, usable
from creditscope.render.numbers import num, shortened

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito."""
ROLES = {"gradient": 2, "random": 3}
"""The style of a control; no other series of its figure has it."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLES = ("-", "--", "-.", ":")
RULE, GREY, GRID = "#9b1420", "#6e7781", "#d8dee4"
"""Of thresholds, of what explains, of the grid."""
FACES = {"good": "#dcebf7", "bad": "#fbe3d6", "open": "#f2f2f2", "plain": "#fdfdfd"}
"""Of the cells of a matrix; their words and hatches say the same."""
HATCHES = {"bad": "///", "open": ".."}
WIDTH = 7.2
"""Inches: the text width of a page."""
MOST_MARKS = 14
"""Marks per series: a longer one is a line with a mark every few points."""
BEFORE_UNIT, NO_BREAK = re.compile(r"(?<=\d) (?=\D)"), "\N{NO-BREAK SPACE}"
"""A number and its unit stand on one line."""
FORMATS = ("svg", "pdf", "png")
UNDATED: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
SETTINGS: Any = {
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "creditscope",
    "text.parse_math": False,  # a method's name is text, whatever stands in it
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.bottom": False,
    "ytick.left": False,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
}


class Drawing(Figure):
    """A matplotlib figure that knows its words: a text alternative, and what to say of each mark.

    Saved as it is shown: text stays text, whatever the reader's own settings are.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.alternative = ""
        self.note = ""
        """What could not be drawn."""
        self.tips: dict[str, list[str]] = {}
        """Group of marks -> the words for each of them, in order."""
        self.layer = ""
        """Of what is drawn next: a figure may hold several sets of marks, of which `svg.layers` shows one at a time."""
        self.layers: dict[str, str] = {}
        """Group of marks -> its layer."""

    def tip(self, words: Sequence[str]) -> str:
        """The name of a new group of marks."""
        name = f"tips-{len(self.tips)}"
        self.tips[name] = list(words)
        if self.layer:
            self.layers[name] = self.layer
        return name

    def savefig(self, *args: Any, **kwargs: Any) -> None:
        with matplotlib.rc_context(SETTINGS):
            super().savefig(*args, **kwargs)

    def save(self, path: Path) -> Path:
        """Write SVG, PDF or PNG, by the path's ending: atomically, and the same bytes every time."""
        kind = path.suffix.removeprefix(".")
        if kind not in FORMATS:
            raise CreditscopeError(f"a figure cannot be written to {path}: end it with .svg, .pdf or .png")
        buffer = io.BytesIO()
        self.savefig(buffer, format=kind, dpi=200, metadata=UNDATED[kind])
        write_atomic(path, buffer.getvalue())
        return path


def figure(panels: Sequence[Panel], *, columns: int | None = None, quick: bool = False) -> Drawing:
    """One figure with all panels.

    `columns`: panels side by side (by default as many as their words allow). `quick`: margins are fixed, not fitted to the text,
    in half the time; only for charts with short titles.
    """
    lines = _arranged(panels, columns)
    heights = [
        max(map(_height, line)) + (0.7 if len(panels) == 1 and isinstance(panels[0], Chart) else 0) for line in lines
    ]
    names = {name for panel in panels for name in _legend_names(panel)}
    below = 0.18 * math.ceil(len(names) / 4) + 0.1 * bool(names)
    most = max(map(len, lines))
    with matplotlib.rc_context(SETTINGS | ({"axes.titley": 1.02} if quick else {})):
        made = Drawing(figsize=(WIDTH, sum(heights) + below), layout=None if quick else "constrained")
        drawn: list[Axes] = []
        grid = made.add_gridspec(
            len(lines), 1, height_ratios=heights, **(_margins(made, len(lines), below) if quick else {})
        )
        for k, line in enumerate(lines):
            cells = grid[k].subgridspec(1, most, wspace=0.28) if quick else grid[k].subgridspec(1, len(line))
            for i, panel in enumerate(line):
                axes = made.add_subplot(cells[i])
                title = short(panel.title, 160)
                axes.set_title(
                    title if quick else "\n".join(textwrap.wrap(title, max(20, 94 // len(line) - 6))), loc="left"
                )
                if isinstance(panel, Chart):
                    _chart(made, axes, panel)
                    axes.set_ylabel("" if quick or panel.y in panel.title else short(panel.y))
                elif isinstance(panel, Dots):
                    dots_marks(made, axes, panel)
                    dots_frame(axes, panel, first=i == 0, letters=66 // len(line))
                else:
                    _matrix(made, axes, panel)
                drawn.append(axes)
        _legend(made, drawn)
    made.alternative = " ".join(map(summary, panels))
    notes = [(f"{p.title}: " if len(panels) > 1 else "") + missing(p) for p in panels if missing(p)]
    notes += [f"band: {p.band.label}" for p in panels if isinstance(p, Chart) and p.band]
    made.note = "; ".join(notes)
    return made


def _margins(made: Drawing, lines: int, below: float) -> dict[str, float]:
    """For axes whose labels are short; in inches: .52 at the left, .38 below and .24 above each panel."""
    height = made.get_figheight()
    inner = (height - below) / lines - 0.62
    return {
        "left": 0.52 / WIDTH, "right": 1 - 0.08 / WIDTH, "bottom": (below + 0.38) / height, "top": 1 - 0.24 / height,
        "hspace": 0.62 / inner,
    }  # fmt: skip


def _arranged(panels: Sequence[Panel], columns: int | None) -> list[list[Panel]]:
    """Rows of panels: a matrix has a row of its own, the others stand two or three in a row, by their kind."""
    lines: list[list[Panel]] = []
    for kind, found in groupby(panels, key=type):
        same = list(found)
        words = max((len(" ".join(p.places)) for p in same if isinstance(p, Chart)), default=0)
        words = max([words, *(len(r.name) for p in same if isinstance(p, Dots) for r in p.rows)])
        most = 1 if kind is Matrix else columns or (2 if words > 24 or len(same) in (2, 4) else 3)
        lines += [same[k : k + most] for k in range(0, len(same), most)]
    return lines


def _height(panel: Panel) -> float:
    if isinstance(panel, Chart):
        return 1.9
    return 0.9 + (0.22 if isinstance(panel, Dots) else 0.34) * len(panel.rows)


def _legend_names(panel: Panel) -> list[str]:
    if isinstance(panel, Chart):
        return [s.name for s in panel.series] if _named(panel) else []
    return [name for name in (panel.marks, panel.hollow) if name] if isinstance(panel, Dots) else []


def _named(chart: Chart) -> bool:
    """Whether its series need a legend: not where there is one, or where the places along x say it."""
    return len(chart.series) > 1 and not (chart.places and all(len(set(s.xs or ())) == 1 for s in chart.series))


def style(k: int) -> dict[str, Any]:
    """Of the k-th series: its colour, its mark and its dashes."""
    dashes = STYLES[(k // len(COLOURS)) % len(STYLES)]
    return {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)], "ls": dashes, "ms": 4, "lw": 1.2}


def short(name: str, letters: int = 34) -> str:
    return shortened(name, letters)


def _chart(made: Drawing, axes: Axes, chart: Chart) -> None:
    roles = {ROLES[series.role] for series in chart.series if series.role}
    free = (k for k in count() if k not in roles)
    for series in chart.series:
        _series(made, axes, chart, series, ROLES[series.role] if series.role else next(free))
    if chart.band and not chart.log:
        b, colour = chart.band, COLOURS[ROLES["random"]]
        axes.fill_between([b.first - 0.3, b.last + 0.3], b.low, b.high, color=colour, alpha=0.22, lw=0)
    if chart.zero and not chart.log:
        axes.axhline(0, color=GREY, lw=0.8, zorder=0.9)
    for level in chart.levels:
        axes.axhline(level.value, color=RULE, ls="--", lw=0.9)
    if chart.log:
        log_scale(axes, "y")  # thresholds are in view
    for k, event in enumerate(sorted(chart.events, key=lambda e: e.x)):
        axes.axvline(event.x, color=GREY, ls=":", lw=1)
        left = k == 0  # the first to the left of its line, the others to the right
        axes.annotate(
            event.mark, (event.x, 1), (-3 if left else 3, -2), xycoords=("data", "axes fraction"),
            textcoords="offset points", fontsize=6.5, color=GREY, ha="right" if left else "left", va="top",
        )  # fmt: skip
    axes.set_xlabel(short(chart.x))
    axes.grid(False, axis="x")
    if chart.places:
        axes.set_xticks(range(len(chart.places)), [short(p, 14) for p in chart.places])
        axes.set_xlim(-0.4, len(chart.places) - 0.6)
    elif chart.whole and len(chart.xs) <= 9 and all(x == int(x) for x in chart.xs):
        axes.xaxis.set_major_locator(FixedLocator(list(chart.xs)))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=chart.whole))
    if not chart.whole:
        axes.axvline(0, color=GREY, lw=0.8, zorder=0.9)
    if not chart.log:
        _widen(axes, "y", chart.least)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))
    for k, level in enumerate(chart.levels):
        _level(made, axes, chart, level, left=k % 2 == 1)


def tick_text(value: float) -> str:
    """Of a linear axis: short enough for a fixed margin."""
    if value and abs(value) < 1e-3:
        return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")
    return f"{value:.3g}"


def _series(made: Drawing, axes: Axes, chart: Chart, series: Series, k: int) -> None:
    points = [(i, x, v) for i, (x, v) in enumerate(chart.points(series)) if v is not None and usable(v, chart.log)]
    xs, values = [x for _, x, _ in points], [v for *_, v in points]
    look = style(k) if series.line else {**style(k), "ls": "none", "ms": 5}
    step = 1 if series.labels else max(1, math.ceil(len(points) / MOST_MARKS))
    marked = [n for n, (_, x, _) in enumerate(points) if n % step == 0 or n == len(points) - 1 or x in series.fired]
    spans = [(x, span) for i, x, _ in points if (span := series.interval(i)) and not (chart.log and span[0] <= 0)]
    if series.band and spans:
        low, high = zip(*(span for _, span in spans), strict=True)
        axes.fill_between([x for x, _ in spans], low, high, color=look["color"], alpha=0.2, lw=0)
    elif len(points) <= 2 * MOST_MARKS:
        for x, span in spans:
            axes.plot([x, x], span, color=look["color"], lw=1, label="_")
    words = []
    for n in marked:
        i, x, v = points[n]
        span = series.interval(i)
        interval = f" [{num(span[0])}, {num(span[1])}]" if span else ""
        whose = f"{series.labels[i]}: " if series.labels else ""
        words.append(f"{whose}{series.name} = {num(v)}{interval}, {chart.x} {chart.place(x)}")
    label = short(series.name) if _named(chart) else "_"
    axes.plot(xs, values, label=label, markevery=marked, gid=made.tip(words), **look)
    rings = [(x, v) for _, x, v in points if x in series.fired]
    if rings:
        axes.plot(*zip(*rings, strict=True), "o", ms=9, mfc="none", mec=look["color"], label="_")


def _level(made: Drawing, axes: Axes, chart: Chart, level: Level, left: bool) -> None:
    """The label of a threshold: above or below its line, at the end where it covers the fewest marks and lines."""
    label, box = short(level.label, 44), axes.get_position()
    wide = 3.9 * len(label) / (72 * made.get_figwidth() * box.width)  # of the panel; letters of 6.5 points
    high = 11 / (72 * made.get_figheight() * box.height)
    into = axes.transData + axes.transAxes.inverted()
    line = float(into.transform((0, level.value))[1])
    drawn = []
    for series in chart.series:
        marks = [into.transform((x, v)) for x, v in chart.points(series) if v is not None and usable(v, chart.log)]
        for a, b in zip(marks, [*marks[1:], *marks[-1:]], strict=True):
            drawn += [a + (b - a) * share for share in (0.0, 0.25, 0.5, 0.75)]

    def covered(place: tuple[bool, bool]) -> int:
        at_left, below = place
        rise = [(line - y if below else y - line) for x, y in drawn if (x if at_left else 1 - x) < wide]
        return sum(-high / 3 < y < high for y in rise) + 99 * (below and line < high)

    at_left, below = min(((left, False), (left, True), (not left, False), (not left, True)), key=covered)
    axes.annotate(
        label, (0 if at_left else 1, level.value), (2 if at_left else -2, -1.5 if below else 1.5),
        xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=6.5, color=RULE,
        ha="left" if at_left else "right", va="top" if below else "bottom",
    )  # fmt: skip


def dots_marks(made: Drawing, axes: Axes, dots: Dots) -> None:
    seen: set[str] = set()

    def once(name: str) -> str:
        new = name and name not in seen
        seen.add(name)
        return name if new else "_"

    for k, row in enumerate(dots.rows):
        if row.interval and all(usable(v, dots.log) for v in row.interval):
            axes.hlines(k, *row.interval, color=COLOURS[0], lw=1.8, alpha=0.6, gid=made.tip([]))
        for marks, hollow in ((row.marks, False), (row.hollow, True)):
            kept = [(label, v) for label, v in marks if usable(v, dots.log)]
            if not kept:
                continue
            words = [f"{row.name} = {num(v)}" + (f", {label}" if label else "") for label, v in kept]
            look: dict[str, Any] = {"color": COLOURS[hollow], "marker": "s" if hollow else "o"}
            look |= {"mfc": "none"} if hollow else {}
            label = once(dots.hollow if hollow else dots.marks)
            values = [v for _, v in kept]
            axes.plot(values, [k] * len(kept), ls="none", ms=4.5, label=label, gid=made.tip(words), **look)


def dots_frame(axes: Axes, dots: Dots, first: bool, letters: int) -> None:
    for level in dots.levels:
        axes.axvline(level.value, color=RULE, ls="--", lw=0.9)
    if dots.log:
        log_scale(axes, "x")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
        if dots.zero:
            axes.axvline(0, color=GREY, lw=0.8, zorder=0.9)
        _widen(axes, "x", dots.least)
    axes.set_yticks(range(len(dots.rows)), [short(r.name, 48) if first else "" for r in dots.rows])
    axes.set_ylim(len(dots.rows) - 0.5, -0.5)
    rules = "; ".join(f"dashed: {BEFORE_UNIT.sub(NO_BREAK, short(level.label, 44))}" for level in dots.levels)
    name = [] if dots.x in dots.title else [short(dots.x, letters)]
    axes.set_xlabel("\n".join([*name, *textwrap.wrap(rules, letters)]))


def _matrix(made: Drawing, axes: Axes, matrix: Matrix) -> None:
    letters = max(6, 78 // max(1, len(matrix.columns)))
    for i, (name, cells) in enumerate(matrix.rows):
        for k, cell in enumerate(cells):
            tip = made.tip([f"{name}, {matrix.columns[k]}: {cell.words}"])
            look: dict[str, Any] = {"facecolor": FACES[cell.kind], "edgecolor": GREY, "hatch": HATCHES.get(cell.kind)}
            axes.add_patch(Rectangle((k - 0.48, i - 0.46), 0.96, 0.92, gid=tip, lw=0.6, **look))
            words = "\n".join(textwrap.wrap(short(cell.words, 40), letters, break_long_words=False))
            box = {"facecolor": FACES[cell.kind], "edgecolor": "none", "pad": 0.6}
            axes.text(k, i, words, ha="center", va="center", fontsize=6.5, bbox=box if cell.kind in HATCHES else None)
    axes.grid(False)
    axes.set_xlim(-0.5, max(1, len(matrix.columns)) - 0.5)
    axes.set_ylim(len(matrix.rows) - 0.5, -0.5)
    axes.set_xticks(
        range(len(matrix.columns)), ["\n".join(textwrap.wrap(short(c, 3 * letters), letters)) for c in matrix.columns]
    )
    axes.set_yticks(range(len(matrix.rows)), [short(name) for name, _ in matrix.rows])
    axes.spines[:].set_visible(False)


def _widen(axes: Axes, which: str, least: float) -> None:
    """The view is at least this wide, around its middle; what begins above 0 is not shown below it."""
    low, high = getattr(axes, f"get_{which}lim")()
    if high - low < least:
        start = (low + high - least) / 2
        start = max(start, 0.0) if low >= 0 else start
        axes.set(**{f"{which}lim": (start, start + least)})


def log_scale(axes: Axes, which: str) -> None:
    """Powers of ten as 1e-7: they are text, and the same as in the reports."""
    axis = axes.yaxis if which == "y" else axes.xaxis
    axes.set(**{f"{which}scale": "log"})
    low, high = sorted(axis.get_view_interval())
    if low > 0 and math.ceil(math.log10(low)) >= math.floor(math.log10(high)):  # fewer than two powers in view
        limits = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high) + 1e-9)
        axes.set(**{f"{which}lim": limits})
    axis.set_major_locator(LogLocator(numticks=7 if which == "y" else 5))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"1e{round(math.log10(value))}" if value > 0 else ""))


def _legend(made: Drawing, drawn: Sequence[Axes]) -> None:
    """One legend below all panels, each name once; none where a single name says nothing."""
    pairs = {label: handle for axes in drawn for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(pairs) < 2:
        return
    names: dict[tuple[Any, ...], list[str]] = {}  # series that look alike are one entry with both names
    for label, handle in pairs.items():
        names.setdefault(_look(handle) or (label,), []).append(label)
    entries = {" / ".join(labels): pairs[labels[0]] for labels in names.values()}
    columns = max(1, min(4, len(entries), 100 // (max(map(len, entries)) + 6)))
    made.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns)


def _look(handle: Any) -> tuple[Any, ...]:
    """Colour, mark and dashes of a line; () for what is no line."""
    line = handle[0] if isinstance(handle, tuple) else handle
    if not isinstance(line, Line2D):
        return ()
    return line.get_color(), line.get_marker(), line.get_linestyle(), line.get_markerfacecolor()
