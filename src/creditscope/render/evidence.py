"""The evidence of an entry as a figure: its margins with their intervals, against the line of D3.

Entries with the same rows and the same range share one frame, of which each has a layer: 6 ms an entry instead of 26.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import matplotlib
from markupsafe import Markup

from creditscope.board.entry import Audit, Entry
from creditscope.measure.depth import UNSTATED
from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.protocol.wording import null_name
from creditscope.render.charts import Dots, Level, Row, summary
from creditscope.render.numbers import num
from creditscope.render.plots import SETTINGS, Drawing, dots_frame, dots_marks
from creditscope.render.svg import layers

TITLE = "Margin over the null"
CONVENTION = (
    "percentage points, 95 % intervals. Null: accuracy minus that of the null (random-blocks baseline); depth profile: readout "
    "of the last state minus that of a twin with random blocks; by others: external evaluations"
)
RANGES = (10.0, 25.0, 50.0, 100.0)
"""Percentage points on either side of zero."""
WIDTH = 3.5
"""Inches: a phone."""
LETTERS = 44


def evidence_figures(entries: Sequence[Entry]) -> dict[str, Markup]:
    """Name of an entry -> its figure; an entry without any margin has none."""
    frames: dict[tuple[float, tuple[str, ...]], dict[str, Dots]] = {}
    for entry in entries:
        dots = margins_panel(entry)
        if dots.rows:
            names = tuple(row.name for row in dots.rows)
            frames.setdefault((_range(dots), names), {})[entry.claim.name] = dots
    return {name: made for (size, _), panels in frames.items() for name, made in _frame(size, panels).items()}


def margins_panel(entry: Entry) -> Dots:
    """Every margin of the current audit, and those of evaluations by others."""
    limit = DiagnosticThresholds().frozen_acc_margin_pp
    rows = _rows(entry.current)
    rows += [
        Row(f"by others {k}", own[0].marks, own[0].interval)
        for k, audit in enumerate(entry.externals, 1)
        if (own := _rows(audit, profile=False))
    ]
    level = Level(limit, f"D3 threshold {num(limit)} pp")
    return Dots("margins", TITLE, CONVENTION, "pp", rows, levels=(level,))


def _rows(audit: Audit, profile: bool = True) -> list[Row]:
    chosen = audit.margin
    margins = sorted(audit.row.margins, key=lambda m: m != chosen)  # the one that D3 judges by first
    rows = [
        Row(
            "unstated null" if m.null == UNSTATED else null_name(m.null),
            [("" if m.n == 1 else f"mean of {m.n}", m.margin_pp)],
            None if m.low_pp is None or m.high_pp is None else (m.low_pp, m.high_pp),
        )
        for m in margins
    ]
    if (found := audit.profile_margins) and profile:
        marks = [(f"network {k}" if len(found) > 1 else "", p.pp) for k, p in enumerate(found, 1)]
        rows.append(Row("depth profile", marks, (found[0].low_pp, found[0].high_pp) if len(found) == 1 else None))
    return rows


def _range(dots: Dots) -> float:
    values = [abs(v) for row in dots.rows for v in (*(value for _, value in row.marks), *(row.interval or ()))]
    return next((size for size in RANGES if max(values) < size), RANGES[-1])


def _frame(size: float, panels: dict[str, Dots]) -> dict[str, Markup]:
    first = next(iter(panels.values()))
    height = 0.66 + 0.22 * len(first.rows)
    with matplotlib.rc_context(SETTINGS):
        made = Drawing(figsize=(WIDTH, height))
        left, right = 0.95 / WIDTH, 1 - 0.12 / WIDTH
        axes = made.add_axes((left, 0.56 / height, right - left, 1 - 0.6 / height))
        for made.layer, dots in panels.items():
            dots_marks(made, axes, _cut(dots, size))
        dots_frame(axes, first, True, LETTERS)
        axes.set_xlim(-size, size)
    return layers(made, {name: summary(dots) for name, dots in panels.items()})


def _cut(dots: Dots, size: float) -> Dots:
    """A t interval of two seeds may reach beyond 100 pp; its words say so, the bar ends at the frame."""
    ends = [r.interval and (max(r.interval[0], -size), min(r.interval[1], size)) for r in dots.rows]
    return replace(dots, rows=[replace(r, interval=cut) for r, cut in zip(dots.rows, ends, strict=True)])
