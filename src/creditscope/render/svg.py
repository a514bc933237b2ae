"""Small charts as SVG text for the HTML report. Colours come from the page's style sheet; every mark carries its value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from creditscope.render.numbers import num, printable

WIDTH, HEIGHT = 400, 236
LEFT, RIGHT, BOTTOM = 52, 14, 38
LINE = 14
"""Height of a line of text."""
MOST_MARKS = 26
"""Marks per series: a longer one is drawn as a line with a mark every few points."""
SHAPES = ("circle", "square", "triangle", "diamond")
"""One per series, so that none is told by its colour alone."""


@dataclass(frozen=True)
class Series:
    """One line of marks; None and non-finite values are left out (and said so)."""

    name: str
    values: Sequence[float | None]
    spread: Sequence[float | None] = ()
    """Half-length of an error bar per value."""


@dataclass(frozen=True)
class Level:
    """A horizontal line: a threshold, a floor."""

    value: float
    label: str


@dataclass(frozen=True)
class Event:
    """A vertical line."""

    x: float
    label: str


@dataclass(frozen=True)
class Band:
    """A stretch of the vertical axis over some of the x values, e.g. what chance would give."""

    low: float
    high: float
    first: float
    last: float
    label: str


@dataclass(frozen=True)
class Chart:
    """Values over layers or epochs."""

    key: str
    title: str
    run: str
    convention: str
    y: str
    xs: Sequence[int]
    series: Sequence[Series]
    x: str = "layer"
    log: bool = False
    zero: bool = False
    """Draw the line y = 0 and keep it in view."""
    levels: Sequence[Level] = ()
    events: Sequence[Event] = ()
    band: Band | None = None


@dataclass(frozen=True)
class Row:
    """One line of a dot plot; `marks` are (label, value) pairs, `interval` a horizontal bar."""

    name: str
    marks: Sequence[tuple[str, float]]
    interval: tuple[float, float] | None = None
    hollow: Sequence[tuple[str, float]] = ()
    """Marks of something to compare with, drawn open."""


@dataclass(frozen=True)
class Dots:
    """Rows of dots over a common axis."""

    key: str
    title: str
    run: str
    convention: str
    x: str
    rows: Sequence[Row]
    levels: Sequence[Level] = ()
    zero: bool = True
    row_name: str = "row"


def text(value: str) -> str:
    """Inert text: nothing in it is markup."""
    return escape(printable(value), quote=True)


def usable(value: float | None, log: bool) -> bool:
    return value is not None and math.isfinite(value) and (not log or value > 0)


def chart_svg(chart: Chart) -> Markup:
    rows = len(chart.events) + (1 if len(chart.series) > 1 else 0)
    top = 30 + LINE * rows
    height = HEIGHT + 8 + LINE * rows
    points = [v for s in chart.series for v in s.values if v is not None and usable(v, chart.log)]
    ends = [
        v + sign * w
        for s in chart.series
        for v, w in zip(s.values, s.spread, strict=False)
        if v is not None and w is not None and usable(v, False) and usable(w, False)
        for sign in (-1, 1)
    ]
    seen = [*points, *([] if chart.log else ends), *(level.value for level in chart.levels)]
    seen += [0.0] if chart.zero and not chart.log else []
    seen += [chart.band.low, chart.band.high] if chart.band else []
    low, high, ticks = log_axis(seen) if chart.log else linear_axis(seen)
    first, last = min(chart.xs), max(chart.xs)
    pad = 10

    def at_x(x: float) -> float:
        inner = WIDTH - LEFT - RIGHT - 2 * pad
        return LEFT + pad + (inner * (x - first) / (last - first) if last > first else inner / 2)

    def at_y(y: float) -> float:
        if chart.log:
            y, a, b = math.log10(y), math.log10(low), math.log10(high)
        else:
            a, b = low, high
        return height - BOTTOM - (height - BOTTOM - top) * (y - a) / (b - a)

    out = [_open(chart, height, summary(chart))]
    out.append(f'<text class="axis-name" x="4" y="14">{text(chart.y)}{" (log scale)" if chart.log else ""}</text>')
    grid = "".join(f"M{LEFT} {at_y(tick):.1f}H{WIDTH - RIGHT}" for tick in ticks)
    names = [f'<text x="{LEFT - 6}" y="{at_y(tick) + 4:.1f}">{_tick(tick)}</text>' for tick in ticks]
    below = [f'<text x="{at_x(x):.1f}" y="{height - BOTTOM + 16}">{x}</text>' for x in whole_ticks(chart.xs)]
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
    for k, level in enumerate(chart.levels):
        y = at_y(level.value)
        x_text, anchor = (WIDTH - RIGHT - 2.0, "end") if k % 2 == 0 else (LEFT + 2.0, "start")
        out.append(f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(
            f'<text class="note" x="{x_text:.0f}" y="{y - 4:.1f}" text-anchor="{anchor}">{text(level.label)}</text>'
        )
    legend_rows = 1 if len(chart.series) > 1 else 0
    for k, event in enumerate(chart.events):
        at, y = at_x(event.x), 22 + LINE * (k + legend_rows) + 6
        x_text, anchor = (at + 4, "start") if at < WIDTH / 2 else (at - 4, "end")
        out.append(f'<line class="event" x1="{at:.1f}" x2="{at:.1f}" y1="{y - 8}" y2="{height - BOTTOM}"/>')
        out.append(f'<text class="note" x="{x_text:.1f}" y="{y}" text-anchor="{anchor}">{text(event.label)}</text>')
    if chart.zero and not chart.log:
        out.append(f'<line class="zero" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y(0):.1f}" y2="{at_y(0):.1f}"/>')
    legend_x = float(LEFT)
    for k, series in enumerate(chart.series):
        kept = [
            (i, x, v)
            for i, (x, v) in enumerate(zip(chart.xs, series.values, strict=True))
            if v is not None and usable(v, chart.log)
        ]
        if legend_rows:
            out.append(_shape(k, legend_x + 5, 30, 4))
            out.append(f'<text class="note" x="{legend_x + 13:.0f}" y="34">{text(series.name)}</text>')
            legend_x += 24 + 6.6 * len(series.name)
        path = " ".join(f"{at_x(x):.1f},{at_y(v):.1f}" for _, x, v in kept)
        out.append(f'<g class="series s{k}" data-name="{text(series.name)}">')
        if len(kept) > 1:
            out.append(f'<polyline class="line" points="{path}"/>')
        step = max(1, math.ceil(len(kept) / MOST_MARKS))
        for i, x, v in kept:
            spread = series.spread[i] if i < len(series.spread) else None
            if spread is not None and math.isfinite(spread) and not chart.log:
                y1, y2 = at_y(v - spread), at_y(v + spread)
                out.append(f'<line class="whisker" x1="{at_x(x):.1f}" x2="{at_x(x):.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>')
            if i % step == 0 or i == kept[-1][0]:
                out.append(_shape(k, at_x(x), at_y(v), 4 if step == 1 else 2.6, f'data-x="{x}" data-v="{_exact(v)}"'))
        out.append("</g>")
    return Markup("".join(out) + "</svg>")


def dots_svg(dots: Dots) -> Markup:
    name_width = min(150.0, 12 + 6.4 * max((len(r.name) for r in dots.rows), default=0))
    left, top, row_height = name_width + 8, 10, 26
    height = top + row_height * len(dots.rows) + 40 + (LINE if dots.levels else 0)
    bottom = top + row_height * len(dots.rows)
    seen = [v for r in dots.rows for _, v in (*r.marks, *r.hollow) if math.isfinite(v)]
    seen += [v for r in dots.rows if r.interval for v in r.interval if math.isfinite(v)]
    seen += [level.value for level in dots.levels] + ([0.0] if dots.zero else [])
    low, high, ticks = linear_axis(seen, most=4)

    def at_x(v: float) -> float:
        return left + 8 + (WIDTH - RIGHT - left - 16) * (v - low) / (high - low)

    out = [_open(dots, height, dots_summary(dots))]
    for tick in ticks:
        x = at_x(tick)
        out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{_tick(tick)}</text>')
    if dots.zero:
        out.append(f'<line class="zero" x1="{at_x(0):.1f}" x2="{at_x(0):.1f}" y1="{top}" y2="{bottom}"/>')
    for level in dots.levels:
        x = at_x(level.value)
        out.append(f'<line class="level" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom + 4}"/>')
        out.append(
            f'<text class="note" x="{min(x, WIDTH - 70):.1f}" y="{bottom + 30}" text-anchor="middle">{text(level.label)}</text>'
        )
    out.append(f'<text class="axis-name" x="{WIDTH - RIGHT}" y="{height - 4}" text-anchor="end">{text(dots.x)}</text>')
    longest = int((name_width - 6) / 6.2)
    for k, row in enumerate(dots.rows):
        y = top + row_height * (k + 0.5)
        name = row.name if len(row.name) <= longest else row.name[: longest - 1] + "…"
        out.append(f'<text class="row-name" x="{name_width:.0f}" y="{y + 4:.1f}" text-anchor="end">{text(name)}</text>')
        out.append(f'<g class="series s0" data-name="{text(row.name)}">')
        if row.interval and all(map(math.isfinite, row.interval)):
            a, b = map(at_x, row.interval)
            out.append(f'<line class="interval" x1="{a:.1f}" x2="{b:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        for label, value in row.hollow:
            if math.isfinite(value):
                attributes = f'width="7.2" height="7.2" data-x="{text(label)}" data-v="{_exact(value)}"'
                out.append(f'<rect class="m hollow" x="{at_x(value) - 3.6:.1f}" y="{y - 3.6:.1f}" {attributes}/>')
        for label, value in row.marks:
            if math.isfinite(value):
                out.append(_shape(0, at_x(value), y, 4, f'data-x="{text(label)}" data-v="{_exact(value)}"'))
        out.append("</g>")
    return Markup("".join(out) + "</svg>")


def summary(chart: Chart) -> str:
    """The chart in words: its text alternative."""
    parts = []
    for series in chart.series:
        pairs = list(zip(chart.xs, series.values, strict=True))
        if len(pairs) > 14:
            kept = pairs[:: math.ceil(len(pairs) / 8)]
            pairs = kept if kept[-1] == pairs[-1] else [*kept, pairs[-1]]
        name = f"{series.name}: " if len(chart.series) > 1 else ""
        parts.append(name + ", ".join(f"{chart.x} {x} {'not measurable' if v is None else num(v)}" for x, v in pairs))
    parts += [f"line at {level.label}" for level in chart.levels]
    parts += [event.label for event in chart.events]
    parts += [f"band: {chart.band.label}"] if chart.band else []
    return f"{chart.title}. " + "; ".join(parts) + "."


def dots_summary(dots: Dots) -> str:
    parts = []
    for row in dots.rows:
        marks = ", ".join(f"{label} {num(value)}".strip() for label, value in (*row.marks, *row.hollow))
        interval = f", interval {num(row.interval[0])} to {num(row.interval[1])}" if row.interval else ""
        parts.append(f"{row.name}: {marks}{interval}")
    parts += [f"line at {level.label}" for level in dots.levels]
    return f"{dots.title}. " + "; ".join(parts) + "."


def missing(chart: Chart) -> str:
    """What could not be drawn, in words; "" where everything is there."""
    gone = []
    for series in chart.series:
        for x, v in zip(chart.xs, series.values, strict=True):
            if not usable(v, chart.log):
                gone.append(f"{chart.x} {x} ({'not measurable' if v is None else num(v)})")
    return "not drawn: " + ", ".join(gone[:8]) + (" …" if len(gone) > 8 else "") if gone else ""


def linear_axis(values: Sequence[float], most: int = 5) -> tuple[float, float, list[float]]:
    """(low, high, ticks) with round ticks around the finite values."""
    finite = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    if not (high - low) > 1e-9 * max(abs(low), abs(high)):
        wide = max(abs(high), 1.0) * 0.1
        low, high = low - wide, high + wide
    raw = (high - low) / most
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [round(k * step, 12) if step > 1e-9 else k * step for k in range(first, last + 1)]
    return ticks[0], ticks[-1], ticks


def log_axis(values: Sequence[float], most: int = 6) -> tuple[float, float, list[float]]:
    """(low, high, ticks), all powers of ten, around the positive finite values."""
    exponents = [math.log10(v) for v in values if math.isfinite(v) and v > 0] or [0.0]
    first, last = math.floor(min(exponents) + 1e-9), math.ceil(max(exponents) - 1e-9)
    first, last = max(first, -307), min(max(last, first + 1), 308)
    step = max(1, math.ceil((last - first) / most))
    return 10.0**first, 10.0**last, [10.0**k for k in range(first, last + 1, step)]


def whole_ticks(xs: Sequence[int], most: int = 9) -> list[int]:
    """Some of the x values, evenly spaced from the first."""
    span = max(xs) - min(xs)
    step = next(
        (m * 10**e for e in range(8) for m in (1, 2, 5) if span / (m * 10**e) <= most - 1),
        span or 1,
    )
    return list(range(min(xs), max(xs) + 1, step))


def _open(chart: Chart | Dots, height: float, label: str) -> str:
    x_name = chart.x if isinstance(chart, Chart) else chart.row_name
    return (
        f'<svg class="chart" role="img" tabindex="0" viewBox="0 0 {WIDTH} {height:.0f}" data-key="{text(chart.key)}" '
        f'data-run="{text(chart.run)}" data-convention="{text(chart.convention)}" data-x-name="{text(x_name)}" '
        f'aria-label="{text(label)}">'
    )


def _shape(k: int, x: float, y: float, r: float, attributes: str = "") -> str:
    kind, css = SHAPES[k % len(SHAPES)], 'class="m"' if attributes else f'class="key s{k}"'
    if kind == "circle":
        return f'<circle {css} cx="{x:.1f}" cy="{y:.1f}" r="{r}" {attributes}/>'
    if kind == "square":
        return f'<rect {css} x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r}" height="{2 * r}" {attributes}/>'
    if kind == "triangle":
        points = f"{x:.1f},{y - r:.1f} {x + r:.1f},{y + r:.1f} {x - r:.1f},{y + r:.1f}"
    else:
        points = f"{x:.1f},{y - r:.1f} {x + r:.1f},{y:.1f} {x:.1f},{y + r:.1f} {x - r:.1f},{y:.1f}"
    return f'<polygon {css} points="{points}" {attributes}/>'


def _tick(value: float) -> str:
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:.4g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}"


def _exact(value: float) -> str:
    """As JSON writes it."""
    return repr(float(value))
