"""The page of a board: one table of claims, a plot, and a page per entry that is unpacked when it is opened.

The page of an entry has one figure, its margins; `creditscope report report.json --html` draws all those of its report.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup

from creditscope.board.claim import FILE
from creditscope.board.entry import Audit, Entry
from creditscope.files import claim_directory, make_directory, write_atomic
from creditscope.measure.depth import UNSTATED
from creditscope.measure.facts import Paired
from creditscope.protocol.wording import null_name
from creditscope.render.certificate import certificate_section
from creditscope.render.charts import LIMITS, Chart, Dots, Level, Row, Series, rule, summary
from creditscope.render.claims import accuracy_words, badge, gamma_words, not_checked, renamed
from creditscope.render.document import Section
from creditscope.render.html.page import Tile, asset, counted, environment, packs, whole_page
from creditscope.render.html.section import figure_of
from creditscope.render.layers import layers_section
from creditscope.render.numbers import accuracy, interval_of, mark, num, share, signed, span_of
from creditscope.render.plots import SETTINGS, Drawing, dots_frame, dots_marks
from creditscope.render.profile import profile_section
from creditscope.render.report import checks_section, margin_lines
from creditscope.render.svg import layers
from creditscope.render.words import LOCALITY, STATUSES

TOGETHER = 40
"""Entries that are packed together: what their pages share is stored once."""
MARKER = "board.json"


def write_board(entries: Sequence[Entry], refused: Sequence[tuple[str, str]], out: Path, title: str) -> int:
    """Write the site: index.html, entries/NAME/ with evidence and badge; the size of index.html in bytes."""
    claim_directory(out, MARKER, b'{"schema": "creditscope-board/1"}\n', "a board", own=("index.html", "entries"))
    page = board_page(entries, refused, title).encode()
    for entry in entries:
        directory = out / "entries" / entry.claim.name
        make_directory(directory, f"cannot create {directory}")
        for name in [FILE, *(e.file for audit in entry.audits for e in audit.stated.reports)]:
            _put(directory / name, (entry.path / name).read_bytes())
        _put(directory / "badge.svg", badge(entry.current).encode())
    write_atomic(out / "index.html", page)
    return len(page)


def _put(target: Path, data: bytes) -> None:
    """As it is where it is so already: most entries are those of the last time."""
    if not (target.is_file() and os.path.getsize(target) == len(data) and target.read_bytes() == data):
        target.write_bytes(data)


def board_page(
    entries: Sequence[Entry], refused: Sequence[tuple[str, str]] = (), title: str = "creditscope board"
) -> str:
    """The page; `refused`: (name of the directory, why) of the entries that do not hold."""
    entries = sorted(entries, key=_place)
    rows = [row(e) for e in entries]
    drawn = evidence_figures(entries)
    return whole_page(
        "board.html",
        asset("page.css") + asset("board.css"),
        title=title,
        packs=packs({key(e): entry_html(e, drawn.get(e.claim.name)) for e in entries}, TOGETHER),
        protocols=sorted({e.current.stated.protocol for e in entries}),
        summary=_summary(entries),
        rows=rows,
        figures_list=[figure_of(plot, title="One mark per claim")] if (plot := claims_plot(entries)) else [],
        refused=refused,
        statuses=[s for s in STATUSES if any(r["status"] == s for r in rows)],
        choices={
            "data": sorted({e.claim.data for e in entries}),
            "code": sorted({e.claim.code.name for e in entries}),
            "locality": sorted(set(map(_locality, entries))),
        },
    )


def _summary(entries: Sequence[Entry]) -> list[Tile]:
    """What the board holds, in numbers."""
    compared = [e for e in entries if e.reach and e.published]
    over, undecided = (sum(e.reach == reach for e in compared) for reach in ("above", "undecided"))
    words = f"published accuracies above the audited ones, {undecided} more undecided"
    published, total = sum(e.published for e in entries), len(entries)
    whose = f"audited networks: {published} next to a published accuracy, {total - published} run here"
    tiles = counted(f"{over} of {len(compared)}", words, [e.current.status for e in entries])
    return [(str(total), whose, "claim"), *tiles]


def _place(entry: Entry) -> tuple[Any, ...]:
    """Published claims first; of one data set together, the largest margin first."""
    margin = entry.current.margin
    return not entry.published, entry.claim.data, -margin.margin_pp if margin else 0.0, entry.claim.name


def key(entry: Entry) -> str:
    return f"claim-{entry.claim.name}"


def row(entry: Entry) -> dict[str, Any]:
    """The line of an entry in the table."""
    audit, others = entry.current, entry.by_others
    profiles = audit.profile_margins
    margin_text, interval = _margin(audit)
    return {
        "entry": entry,
        "claim": entry.claim,
        "audit": audit,
        "key": key(entry),
        "renamed": renamed(entry),
        "claimed": entry.claim.claimed.accuracy,
        "audited": audit.accuracy.mean if audit.accuracy else None,
        "audited_text": accuracy(audit.accuracies),
        "margin": audit.margin.margin_pp if audit.margin else None,
        "margin_text": margin_text,
        "interval": interval,
        "profile": sum(m.pp for m in profiles) / len(profiles) if profiles else None,
        "profile_text": _profile(profiles),
        "profile_interval": interval_of(profiles[0].low_pp, profiles[0].high_pp) if len(profiles) == 1 else "",
        "locality": _locality(entry),
        "status": audit.status,
        "mark": mark(audit.status),
        "others": _others(others),
        "others_sort": others.margin.margin_pp if others and others.margin else None,
    }


def _locality(entry: Entry) -> str:
    return LOCALITY.get(entry.current.locality, entry.current.locality) or "not certified"


def _margin(audit: Audit) -> tuple[str, str]:
    """The margin over the null in words, and its interval."""
    m = audit.margin
    return (signed(m.margin_pp, 1), interval_of(m.low_pp, m.high_pp)) if m else ("–", "")


def _profile(margins: Sequence[Paired]) -> str:
    values = sorted(m.pp for m in margins)
    return " to ".join(signed(v, 1) for v in (values if len(values) < 2 else (values[0], values[-1]))) or "–"


def _others(audit: Audit | None) -> str:
    if audit is None:
        return "–"
    margin = f"{_margin(audit)[0]} " if audit.margin else ""
    return f"{margin}{mark(audit.status)}"


def claims_plot(entries: Sequence[Entry]) -> Chart | None:
    """Claimed accuracy against the margin over the null, one mark per entry, a series for each verdict."""
    series = []
    for status in STATUSES:
        found = [
            (e.claim.method, e.claim.claimed.accuracy, e.current.margin.margin_pp)
            for e in entries
            if e.current.status == status and e.claim.claimed.accuracy is not None and e.current.margin is not None
        ]
        if found:
            names, claimed, margins = zip(*found, strict=True)
            series.append(Series(mark(status), margins, (), claimed, line=False, labels=names))
    if not series:
        return None
    needed = LIMITS.frozen_acc_margin_pp
    xs = sorted(x for s in series for x in s.xs or ())
    title = "Claimed accuracy against the margin over the null"
    convention = (
        "one mark per entry with both numbers; margin: accuracy minus that of the null (random-blocks baseline) of D3"
    )
    look: dict[str, Any] = {"zero": True, "levels": (Level(needed, f"D3 {num(needed)} pp"),), "whole": False}
    return Chart("claims", title, convention, "depth margin (pp)", xs, series, "claimed accuracy", **look)


# ---- the page of an entry ------------------------------------------------------------------------------------------


def entry_html(entry: Entry, drawn: Markup | None = None) -> str:
    """The page of an entry; `drawn`: its figure."""
    claim, audit = entry.claim, entry.current
    stated, first = audit.stated, audit.reports[0]
    where = [
        ("paper", claim.paper.title if claim.paper else "", claim.paper.url if claim.paper else ""),
        ("code", " ".join(filter(None, (claim.code.name, claim.code.version))), claim.code.url),
        ("licence of the code", claim.code.licence, ""),
        ("in the report", " · ".join(filter(None, (first.method_name, first.notes))), ""),
        ("architecture", claim.architecture, ""),
        ("data", claim.data, ""),
        ("claim stands in", claim.claimed.source, ""),
        ("convention of the claim", claim.claimed.convention, ""),
        ("audited by", f"{stated.by}, {stated.date}", ""),
        ("device", stated.device, ""),
        ("protocol", stated.protocol, ""),
        ("seeds", ", ".join(map(str, stated.seeds)), ""),
        ("recipe", stated.recipe, ""),
        ("remark", " ".join(filter(None, (claim.note, stated.note))), ""),
        ("seal of the claim", claim.seal, ""),
    ]
    return (
        environment()
        .get_template("entry.html")
        .render(
            e=row(entry),
            evidence=[] if drawn is None else [{"title": TITLE, "svg": drawn, "convention": CONVENTION, "note": ""}],
            accuracy_words=accuracy_words(entry),
            gamma_words=gamma_words(entry),
            not_checked=not_checked(entry),
            interval=audit.accuracy and span_of(audit.accuracy.low, audit.accuracy.high),
            where=where,
            seeds=_seeds(audit),
            history=[
                (a, renamed(entry, a), " ".join(_margin(a)) if a.margin else "–", under) for a, under in entry.history()
            ],
            checks_section=checks_section,
            layers_section=layers_section,
            margin_lines=margin_lines,
            profile_section=profile_section,
            certificate_section=certificate_section,
        )
    )


def _seeds(audit: Audit) -> Section:
    """Accuracies seed by seed, beside those of the nulls."""
    kinds = list(audit.stated.nulls)
    bp = audit.stated.bp_accuracy
    columns = [audit.accuracies, *(audit.stated.nulls[k] for k in kinds), *([bp] if bp else [])]
    header = ["seed", "accuracy", *(null_name(k) for k in kinds), *(["backpropagation"] if bp else [])]
    rows = [
        [str(seed), *(share(c[k], 4) if k < len(c) else "–" for c in columns)]
        for k, seed in enumerate(audit.stated.seeds)
    ]
    return Section("Accuracy, seed by seed", header, rows)


# ---- the evidence of an entry as a figure: its margins with their intervals, against the line of D3 ------------------------


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
    """Name of an entry -> its figure; an entry without any margin has none.

    Entries with the same rows and the same range share one frame, of which each has a layer: 6 ms an entry instead of 26.
    """
    frames: dict[tuple[float, tuple[str, ...]], dict[str, Dots]] = {}
    for entry in entries:
        dots = margins_panel(entry)
        if dots.rows:
            names = tuple(row.name for row in dots.rows)
            frames.setdefault((_range(dots), names), {})[entry.claim.name] = dots
    return {name: made for (size, _), panels in frames.items() for name, made in _frame(size, panels).items()}


def margins_panel(entry: Entry) -> Dots:
    """Every margin of the current audit, and those of evaluations by others."""
    rows = _rows(entry.current)
    rows += [
        Row(f"by others {k}", own[0].marks, own[0].interval)
        for k, audit in enumerate(entry.externals, 1)
        if (own := _rows(audit, profile=False))
    ]
    return Dots("margins", TITLE, CONVENTION, "pp", rows, levels=(rule("frozen_acc_margin_pp"),))


def _rows(audit: Audit, profile: bool = True) -> list[Row]:
    chosen = audit.margin
    margins = sorted(audit.row.margins, key=lambda m: m != chosen)  # the one that D3 judges by first
    rows = [
        Row(
            "unstated null" if m.null == UNSTATED else null_name(m.null),
            [("" if m.n == 1 else f"mean of {m.n}", m.margin_pp)],
            m.ends,
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
