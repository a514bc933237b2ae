"""Small charts as SVG text for the HTML report. Colours come from the page's style sheet; every mark carries its value."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from markupsafe import Markup

from creditscope.render.axes import linear_axis, log_axis, tick_text, whole_ticks
from creditscope.render.charts import Chart, Dots, Figure, Matrix, Row, summary, usable
from creditscope.render.numbers import num, printable

WIDTH, HEIGHT = 400, 236
WIDE = 820
NARROW_NAMES = 180.0
"""Most room for the names of rows; `charts.NARROW_LETTERS` fit."""
LEFT, RIGHT, BOTTOM = 52, 14, 38
LINE = 14
"""Height of a line of text."""
LETTER = 6.6
"""Width of a letter, roughly."""
MOST_MARKS = 14
"""Marks per series: a longer one is drawn as a line with a mark every few points."""
SHAPES = ("circle", "square", "triangle", "diamond", "down")
"""One per series, so that none is told by its colour alone; from the sixth on, the line is dashed too."""
COLOURS = 8
"""Colours in the style sheet."""


def draw(figure: Figure) -> Markup:
    if isinstance(figure, Chart):
        return chart_svg(figure)
    return dots_svg(figure) if isinstance(figure, Dots) else matrix_svg(figure)


def text(value: str) -> str:
    """Inert text: nothing in it is markup."""
    return escape(printable(value), quote=True)


def short(value: str, letters: int) -> str:
    value = printable(value)
    return value if len(value) <= letters else value[: letters - 1] + "…"


def middle(value: str, letters: int) -> str:
    """Cut in the middle: names that begin alike differ at their ends."""
    value = printable(value)
    if len(value) <= letters:
        return value
    tail = (letters - 1) // 2
    return value[: letters - 1 - tail] + "…" + value[len(value) - tail :]


def chart_svg(chart: Chart) -> Markup:
    legend = _legend(chart)
    rows = len(chart.events) + len({y for _, _, y in legend})
    above = LINE if legend and chart.levels else 0  # room for the words of a level that is the highest value
    top = 30 + LINE * rows + above
    height = HEIGHT + 8 + LINE * rows + above
    pairs = [(x, v) for s in chart.series for x, v in chart.points(s) if v is not None and usable(v, chart.log)]
    ends = [
        v + sign * w
        for s in chart.series
        for v, w in zip(s.values, s.spread, strict=False)
        if v is not None and w is not None and usable(v, False) and usable(w, False)
        for sign in (-1, 1)
    ]
    seen = [*(v for _, v in pairs), *([] if chart.log else ends), *(level.value for level in chart.levels)]
    seen += [0.0] if chart.zero and not chart.log else []
    seen += [chart.band.low, chart.band.high] if chart.band else []
    low, high, ticks = log_axis(seen) if chart.log else linear_axis(seen)
    if chart.flip:
        ticks = [tick for tick in ticks if tick == round(tick)]  # there is no rank 1.5
    first, last = min(chart.xs), max(chart.xs)
    across: list[float] = list(map(float, chart.xs if chart.places else whole_ticks(chart.xs)))
    if not chart.whole:
        first, last, across = linear_axis([*chart.xs])
    pad = 24 if chart.places else 10

    def at_x(x: float) -> float:
        inner = WIDTH - LEFT - RIGHT - 2 * pad
        return LEFT + pad + (inner * (x - first) / (last - first) if last > first else inner / 2)

    def at_y(y: float) -> float:
        if chart.log:
            y, a, b = math.log10(y), math.log10(low), math.log10(high)
        else:
            a, b = (high, low) if chart.flip else (low, high)
        return height - BOTTOM - (height - BOTTOM - top) * (y - a) / (b - a)

    out = [_open(chart, WIDTH, height)]
    out.append(f'<text class="axis-name" x="4" y="14">{text(chart.y)}{" (log scale)" if chart.log else ""}</text>')
    grid = "".join(f"M{LEFT} {at_y(tick):.1f}H{WIDTH - RIGHT}" for tick in ticks)
    names = [f'<text x="{LEFT - 6}" y="{at_y(tick) + 4:.1f}">{tick_text(tick)}</text>' for tick in ticks]
    room = int((WIDTH - LEFT - RIGHT) / max(1, len(across)) / LETTER)
    told = [short(chart.place(x), max(3, room)) if chart.places else tick_text(x) for x in across]
    below = [
        f'<text x="{at_x(x):.1f}" y="{height - BOTTOM + 16}">{text(name)}</text>'
        for x, name in zip(across, told, strict=True)
    ]
    out += [
        f'<path class="grid" d="{grid}"/><g text-anchor="end">',
        *names,
        '</g><g text-anchor="middle">',
        *below,
        "</g>",
    ]
    out.append(f'<text class="axis-name" x="{WIDTH - RIGHT}" y="{height - 4}" text-anchor="end">{text(chart.x)}</text>')
    if chart.band:
        a, b = at_x(chart.band.first) - pad, at_x(chart.band.last) + pad
        y_top, y_low = at_y(chart.band.high), at_y(chart.band.low)
        out.append(
            f'<rect class="band" x="{a:.1f}" y="{y_top:.1f}" width="{b - a:.1f}" height="{max(y_low - y_top, 1):.1f}"/>'
        )
    level_names = []  # drawn last: a line does not run through the words
    for k, level in enumerate(chart.levels):
        y = at_y(level.value)
        x_text, anchor = (WIDTH - RIGHT - 2.0, "end") if k % 2 == 0 else (LEFT + 2.0, "start")
        out.append(f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        level_names.append(
            f'<text class="note" x="{x_text:.0f}" y="{y - 4:.1f}" text-anchor="{anchor}">{text(level.label)}</text>'
        )
    for k, event in enumerate(chart.events):
        at, y = at_x(event.x), 22 + LINE * (k + rows - len(chart.events)) + 6
        x_text, anchor = (at + 4, "start") if at < WIDTH / 2 else (at - 4, "end")
        out.append(f'<line class="event" x1="{at:.1f}" x2="{at:.1f}" y1="{y - 8}" y2="{height - BOTTOM}"/>')
        out.append(f'<text class="note" x="{x_text:.1f}" y="{y}" text-anchor="{anchor}">{text(event.label)}</text>')
    if chart.zero and not chart.log:
        out.append(f'<line class="zero" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y(0):.1f}" y2="{at_y(0):.1f}"/>')
    for k, (name, x, y) in enumerate(legend):
        out.append(_shape(k, x + 5, y - 4, 4))
        out.append(f'<text class="note" x="{x + 13:.0f}" y="{y:.0f}">{text(name)}</text>')
    for k, series in enumerate(chart.series):
        kept = [(i, x, v) for i, (x, v) in enumerate(chart.points(series)) if v is not None and usable(v, chart.log)]
        out.append(_group(k, series.name))
        if len(kept) > 1 and series.line:
            digits = 1 if len(kept) <= 40 else 0  # a long line has many points in each unit
            path = " ".join(f"{at_x(x):.{digits}f},{at_y(v):.1f}" for _, x, v in kept)
            out.append(f'<polyline class="line" points="{path}"/>')
        step = max(1, math.ceil(len(kept) / MOST_MARKS))
        for i, x, v in kept:
            spread = series.spread[i] if i < len(series.spread) else None
            if spread is not None and math.isfinite(spread) and not chart.log and i % step == 0:
                y1, y2 = at_y(v - spread), at_y(v + spread)
                out.append(f'<line class="whisker" x1="{at_x(x):.1f}" x2="{at_x(x):.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>')
            if i % step == 0 or i == kept[-1][0] or x in series.fired:
                value = f'data-x="{text(chart.place(x))}" data-v="{_told(v)}"'
                out.append(_shape(k, at_x(x), at_y(v), 4 if step == 1 else 2.6, value))
            if x in series.fired:
                out.append(f'<circle class="fired" cx="{at_x(x):.1f}" cy="{at_y(v):.1f}" r="7.5"/>')
        out.append("</g>")
    return Markup("".join([*out, *level_names]) + "</svg>")


def _legend(chart: Chart) -> list[tuple[str, float, float]]:
    """(name, x, y) of every series, wrapped; none where there is only one."""
    placed: list[tuple[str, float, float]] = []
    x, y = float(LEFT), 34.0
    for series in chart.series if len(chart.series) > 1 else ():
        name = short(series.name, 44)
        width = 24 + LETTER * len(name)
        if x > LEFT and x + width > WIDTH - RIGHT + 10:
            x, y = float(LEFT), y + LINE
        placed.append((name, x, y))
        x += width
    return placed


def dots_svg(dots: Dots) -> Markup:
    width, most = (WIDE, 340.0) if dots.is_wide else (WIDTH, NARROW_NAMES)
    name_width = min(most, 12 + LETTER * max((len(r.name) for r in dots.rows), default=0))
    left, top, row_height = name_width + 8, 10, 26 if len(dots.rows) <= 14 else 20
    height = top + row_height * len(dots.rows) + 40 + (LINE if dots.levels else 0)
    bottom = top + row_height * len(dots.rows)
    seen = [v for r in dots.rows for _, v in (*r.marks, *r.hollow) if usable(v, dots.log)]
    seen += [v for r in dots.rows if r.interval for v in r.interval if usable(v, dots.log)]
    seen += [level.value for level in dots.levels] + ([0.0] if dots.zero and not dots.log else [])
    low, high, ticks = log_axis(seen, most=4) if dots.log else linear_axis(seen, most=4)

    def at_x(v: float) -> float:
        v, a, b = (math.log10(v), math.log10(low), math.log10(high)) if dots.log else (v, low, high)
        return left + 8 + (width - RIGHT - left - 16) * (v - a) / (b - a)

    out = [_open(dots, width, height)]
    for tick in ticks:
        x = at_x(tick)
        out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{tick_text(tick)}</text>')
    if dots.zero and not dots.log:
        out.append(f'<line class="zero" x1="{at_x(0):.1f}" x2="{at_x(0):.1f}" y1="{top}" y2="{bottom}"/>')
    for level in dots.levels:
        x = at_x(level.value)
        out.append(f'<line class="level" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom + 4}"/>')
        out.append(
            f'<text class="note" x="{min(x, width - 70):.1f}" y="{bottom + 30}" text-anchor="middle">{text(level.label)}</text>'
        )
    unit = f"{dots.x} (log scale)" if dots.log else dots.x
    out.append(f'<text class="axis-name" x="{width - RIGHT}" y="{height - 4}" text-anchor="end">{text(unit)}</text>')
    longest = int((name_width - 6) / LETTER)
    for k, row in enumerate(dots.rows):
        y = top + row_height * (k + 0.5)
        name = text(middle(row.name, longest))
        out.append(f'<text class="row-name" x="{name_width:.0f}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
        out += [_group(0, row.name), *_row(row, y, at_x, dots.log), "</g>"]
    return Markup("".join(out) + "</svg>")


def _row(row: Row, y: float, at_x: Callable[[float], float], log: bool) -> list[str]:
    out = []
    if row.interval and all(usable(v, log) for v in row.interval):
        a, b = map(at_x, row.interval)
        out.append(f'<line class="interval" x1="{a:.1f}" x2="{b:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for label, value in row.hollow:
        if usable(value, log):
            attributes = f'width="7.2" height="7.2" data-x="{text(label)}" data-v="{_told(value)}"'
            out.append(f'<rect class="m hollow" x="{at_x(value) - 3.6:.1f}" y="{y - 3.6:.1f}" {attributes}/>')
    for label, value in row.marks:
        if usable(value, log):
            out.append(_shape(0, at_x(value), y, 4, f'data-x="{text(label)}" data-v="{_told(value)}"'))
    return out


def matrix_svg(matrix: Matrix) -> Markup:
    """Words in a grid; a cell's kind is told by its words, its colour and its border."""
    left = min(150.0, 14 + LETTER * max((len(name) for name, _ in matrix.rows), default=0))
    longest = max([len(c) for c in matrix.columns] + [len(cell.words) for _, row in matrix.rows for cell in row])
    wide = max(40.0, 10 + LETTER * min(longest, 18))
    width = max(float(WIDTH), left + wide * len(matrix.columns) + 6)
    wide = (width - left - 6) / max(1, len(matrix.columns))
    letters, row_height, top = int((wide - 4) / LETTER), 24, 22
    out = [_open(matrix, width, top + row_height * len(matrix.rows) + 6)]
    for k, column in enumerate(matrix.columns):
        name = text(short(column, letters))
        out.append(
            f'<text class="axis-name" x="{left + wide * (k + 0.5):.1f}" y="15" text-anchor="middle">{name}</text>'
        )
    for i, (row_name, cells) in enumerate(matrix.rows):
        y = top + row_height * i
        name = text(short(row_name, int((left - 8) / 6.2)))
        out.append(f'<text class="row-name" x="{left - 6:.0f}" y="{y + 16}" text-anchor="end">{name}</text>')
        out.append(f'<g class="series cells" data-name="{text(row_name)}">')
        for k, cell in enumerate(cells):
            x = left + wide * k
            box = f'x="{x + 1:.1f}" y="{y + 1}" width="{wide - 2:.1f}" height="{row_height - 2}"'
            marks = f'data-x="{text(matrix.columns[k])}" data-v="{text(cell.words)}"'
            out.append(f'<rect class="m cell {cell.kind}" {box} {marks}/>')
            words = text(short(cell.words, letters))
            out.append(
                f'<text class="in {cell.kind}" x="{x + wide / 2:.1f}" y="{y + 16}" text-anchor="middle">{words}</text>'
            )
        out.append("</g>")
    return Markup("".join(out) + "</svg>")


def _open(figure: Figure, width: float, height: float) -> str:
    x_name = figure.x if isinstance(figure, Chart) else figure.row_name if isinstance(figure, Dots) else ""
    return (
        f'<svg class="chart" role="img" tabindex="0" viewBox="0 0 {width:.0f} {height:.0f}" data-key="{text(figure.key)}" '
        f'data-convention="{text(figure.convention)}" data-x-name="{text(x_name)}" '
        f'aria-label="{text(summary(figure))}">'
    )


def _group(k: int, name: str) -> str:
    dashed = " dashed" if k >= len(SHAPES) else ""
    return f'<g class="series s{k % COLOURS}{dashed}" data-name="{text(name)}">'


def _shape(k: int, x: float, y: float, r: float, attributes: str = "") -> str:
    kind, css = SHAPES[k % len(SHAPES)], 'class="m"' if attributes else f'class="key s{k % COLOURS}"'
    if kind == "circle":
        return f'<circle {css} cx="{x:.1f}" cy="{y:.1f}" r="{r}" {attributes}/>'
    if kind == "square":
        return f'<rect {css} x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r}" height="{2 * r}" {attributes}/>'
    if kind in ("triangle", "down"):
        tip, base = (y - r, y + r) if kind == "triangle" else (y + r, y - r)
        points = f"{x:.1f},{tip:.1f} {x + r:.1f},{base:.1f} {x - r:.1f},{base:.1f}"
    else:
        points = f"{x:.1f},{y - r:.1f} {x + r:.1f},{y:.1f} {x:.1f},{y + r:.1f} {x - r:.1f},{y:.1f}"
    return f'<polygon {css} points="{points}" {attributes}/>'


def _told(value: float) -> str:
    """As a person reads it: four digits (the page holds every digit as JSON)."""
    return num(float(value), 4)
