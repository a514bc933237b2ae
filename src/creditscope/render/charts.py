"""What a figure shows, before it is drawn: panels of numbers with their names, conventions and words for who cannot see them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.render.numbers import num

Spread = float | tuple[float, float] | None
"""Half-length of an interval around its value, or its two ends."""


@dataclass(frozen=True)
class Series:
    """One line of marks; None and non-finite values are left out (and said so)."""

    name: str
    values: Sequence[float | None]
    spread: Sequence[Spread] = ()
    xs: Sequence[float] | None = None
    """Its own x values, where they are not those of the chart."""
    line: bool = True
    """False: marks alone."""
    fired: Sequence[float] = ()
    """x values that get a large open mark: a check first fires there."""
    band: bool = False
    """The spread is a band around the line, not a bar at each mark."""
    labels: Sequence[str] = ()
    """What each mark is, where they are things of their own: then none is left out."""
    role: Literal["", "gradient", "random"] = ""
    """A control has the same colour in every figure: the exact gradient, or what is random."""

    def interval(self, k: int) -> tuple[float, float] | None:
        """The two ends of the k-th spread, where they are finite."""
        value, spread = self.values[k], self.spread[k] if k < len(self.spread) else None
        if value is None or spread is None:
            return None
        low, high = spread if isinstance(spread, tuple) else (value - spread, value + spread)
        return (low, high) if math.isfinite(low) and math.isfinite(high) else None


@dataclass(frozen=True)
class Level:
    """A line at a value: a threshold, a floor."""

    value: float
    label: str


LIMITS = DiagnosticThresholds()
RULES = {
    "h_norm_explosion_ratio": "D1 {}",
    "g_norm_floor": "floor of D2 {}",
    "frozen_acc_margin_pp": "D3 threshold {} pp",
    "stability_drift_ceiling": "C {}",
    "concentration_share": "Mode 2 above {}",
}


def rule(threshold: str, value: float | None = None) -> Level:
    """The line of a threshold of the protocol; `value` where it is not the default."""
    value = float(getattr(LIMITS, threshold)) if value is None else value
    return Level(value, RULES[threshold].format(f"{value:g}".replace("e-0", "e-")))


@dataclass(frozen=True)
class Event:
    """A vertical line."""

    x: float
    label: str
    mark: str
    """What stands at the line: a word, so that neighbours do not cover each other."""


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
    """Values over layers, epochs, penalties, or over another value."""

    key: str
    title: str
    convention: str
    y: str
    xs: Sequence[float]
    series: Sequence[Series]
    x: str = "layer"
    log: bool = False
    zero: bool = False
    """Draw the line y = 0 and keep it in view."""
    levels: Sequence[Level] = ()
    events: Sequence[Event] = ()
    band: Band | None = None
    places: Sequence[str] = ()
    """Words instead of numbers along x: xs are then 0, 1, 2, ..."""
    whole: bool = True
    """x has whole numbers only."""
    least: float = 0.0
    """Smallest range of a linear y axis: one network does not fill it with its own noise."""

    def points(self, series: Series) -> list[tuple[float, float | None]]:
        return list(zip(self.xs if series.xs is None else series.xs, series.values, strict=True))

    def place(self, x: float) -> str:
        """An x value in words."""
        if self.places:
            return self.places[int(x)]
        return str(int(x)) if self.whole else num(x)


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
    convention: str
    x: str
    rows: Sequence[Row]
    levels: Sequence[Level] = ()
    zero: bool = True
    log: bool = False
    marks: str = ""
    """What a filled mark is, for a legend."""
    hollow: str = ""
    """What an open mark is."""
    least: float = 0.0
    """Smallest range of a linear axis."""


@dataclass(frozen=True)
class Cell:
    """`kind` chooses how it looks: good, bad, open or plain; the words say it too."""

    words: str
    kind: str = "plain"


@dataclass(frozen=True)
class Matrix:
    """Words in a grid."""

    key: str
    title: str
    convention: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]


Panel = Chart | Dots | Matrix


def usable(value: float | None, log: bool) -> bool:
    return value is not None and math.isfinite(value) and (not log or value > 0)


def summary(panel: Panel) -> str:
    """The panel in words: its text alternative."""
    if isinstance(panel, Chart):
        parts = _chart_words(panel)
    elif isinstance(panel, Dots):
        parts = _dots_words(panel)
    else:
        parts = [
            f"{name}: " + ", ".join(f"{c} {cell.words}" for c, cell in zip(panel.columns, cells, strict=True))
            for name, cells in panel.rows
        ]
    return f"{panel.title}. " + "; ".join(parts) + "."


def _chart_words(chart: Chart) -> list[str]:
    parts = []
    for series in chart.series:
        pairs = chart.points(series)
        if len(pairs) > 14:
            kept = pairs[:: math.ceil(len(pairs) / 8)]
            pairs = kept if kept[-1] == pairs[-1] else [*kept, pairs[-1]]
        name = f"{series.name}: " if len(chart.series) > 1 else ""
        words = (f"{chart.x} {chart.place(x)} {'not measurable' if v is None else num(v)}" for x, v in pairs)
        fired = [f"a check first fires at {chart.x} {chart.place(x)}" for x in series.fired]
        parts.append(name + ", ".join([*words, *fired]))
    parts += [f"line at {level.label}" for level in chart.levels]
    parts += [event.label for event in chart.events]
    parts += [f"band: {chart.band.label}"] if chart.band else []
    return parts


def _dots_words(dots: Dots) -> list[str]:
    parts = []
    for row in dots.rows:
        marks = ", ".join(f"{label} {num(value)}".strip() for label, value in (*row.marks, *row.hollow))
        interval = f", interval {num(row.interval[0])} to {num(row.interval[1])}" if row.interval else ""
        parts.append(f"{row.name}: {marks or 'nothing measured'}{interval}")
    return parts + [f"line at {level.label}" for level in dots.levels]


def missing(panel: Panel) -> str:
    """What could not be drawn, in words; "" where everything is there."""
    gone = []
    if isinstance(panel, Chart):
        for series in panel.series:
            name = f"{series.name}, " if len(panel.series) > 1 else ""
            for x, v in panel.points(series):
                if not usable(v, panel.log):
                    gone.append(f"{name}{panel.x} {panel.place(x)} ({'not measurable' if v is None else num(v)})")
    elif isinstance(panel, Dots):
        for row in panel.rows:
            gone += [f"{row.name} {k} ({num(v)})" for k, v in (*row.marks, *row.hollow) if not usable(v, panel.log)]
    return "not drawn: " + ", ".join(gone[:8]) + (" …" if len(gone) > 8 else "") if gone else ""
