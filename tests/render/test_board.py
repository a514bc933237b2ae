"""The page of a board: its numbers, its size, and that nothing in it can run."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from creditscope.board.entry import Entry, read_entries, read_entry
from creditscope.protocol.report import make_report
from creditscope.render.claims import badge
from creditscope.render.html.board import board_page, claims_plot, entry_html, evidence_figures, margins_panel, row
from creditscope.render.numbers import num

from ..board.entries import ROOT, made, stored_report
from .pages import HOSTILE, unpacked

SIZE_OF_200 = 500_000


def many(n: int) -> list[Entry]:
    """n entries of different names and numbers, from those of the board."""
    held, _ = read_entries([ROOT / "board"])
    found = []
    for k in range(n):
        entry = held[k % len(held)]
        claimed = entry.claim.claimed.model_copy(
            update={"accuracy": ((entry.claim.claimed.accuracy or 0.3) * 997 + k) % 1}
        )
        claim = entry.claim.model_copy(
            update={
                "name": f"{entry.claim.name}-{k}",
                "method": f"{entry.claim.method} {k}",
                "claimed": claimed,
                "seal": f"{k:064x}",
            }
        )
        found.append(Entry(claim, entry.path, entry.audits))
    return found


def test_two_hundred_entries_are_under_500_kb():
    size = len(board_page(many(200)).encode())
    assert size < SIZE_OF_200, f"{size:,} bytes"


def test_every_row_of_the_table_leads_to_a_page():
    page = board_page(many(100))
    rows = re.findall(r'<a href="#(claim-[^"]*)">', page)
    packs = re.findall(r'<script type="application/gzip" data-networks="([^"]*)">([^<]*)</script>', page)
    assert len(packs) == 3
    assert len(rows) == 100
    assert [key for keys, _ in packs for key in keys.split(" ")] == rows
    assert all(list(unpacked(pack)) == keys.split(" ") for keys, pack in packs)


def test_the_page_holds_every_entry_and_its_numbers(tmp_path):
    entry = made(tmp_path / "a-rule")
    page = board_page([entry])
    report = stored_report()
    assert f"{report.headline_acc[0]:.3f}" in page
    assert report.facts.depth is not None
    margin = next(m for m in report.facts.depth.margins if m.null == "matched")
    assert f"{margin.margin_pp:+.1f}<i>[{margin.low_pp:+.1f}, {margin.high_pp:+.1f}]</i>" in page
    packs = re.findall(r'<script type="application/gzip" data-networks="([^"]*)">([^<]*)</script>', page)
    assert [keys for keys, _ in packs] == ["claim-a-rule"]
    inside = unpacked(packs[0][1])["claim-a-rule"]
    assert entry.claim.seal in inside
    assert entry.current.stated.reports[0].sha256[:16] in inside
    assert "three-check/1.0" in inside


def test_hostile_words_are_inert(tmp_path):
    short = [t for t in HOSTILE if t.isprintable() and len(t) <= 120]
    for k, text in enumerate(short):
        entry = made(tmp_path / f"rule-{k}", method=text, architecture=text, data=text, note=text)
        page = board_page([entry], [(text, text)], text)
        for shown in (page, entry_html(entry)):
            assert "<script>alert" not in shown
            assert "<script>window" not in shown
            assert "<img" not in shown
            assert "<svg onload" not in shown
        assert len(re.findall("<script", page)) == 2
        ElementTree.fromstring(badge(entry.current))


def test_a_row_has_what_the_entry_has():
    entry = read_entry(ROOT / "board" / "entries" / "fabricpc-predictive-coding")
    found = row(entry)
    measured = entry.current.reports[0].facts.profile
    assert measured is not None
    assert measured.margin is not None
    profile = measured.margin
    assert found["profile_text"] == f"{profile.pp:+.1f}"
    assert found["profile_interval"] == f"[{profile.low_pp:+.1f}, {profile.high_pp:+.1f}]"
    assert found["others"] == "–"
    assert found["status"] == entry.current.status


def test_the_plot_has_a_mark_for_every_entry_with_both_numbers():
    held, _ = read_entries([ROOT / "board"])
    both = [e for e in held if e.claim.claimed.accuracy is not None and e.current.margin is not None]
    plot = claims_plot(held)
    assert plot is not None
    assert sum(len(s.values) for s in plot.series) == len(both)
    assert sorted(label for s in plot.series for label in s.labels) == sorted(e.claim.method for e in both)


def test_the_figure_of_an_entry_has_its_margins_against_the_line_of_d3(tmp_path):
    entries = [read_entry(ROOT / "board" / "entries" / name) for name in ("field-cifar10-ep", "pcx-predictive-coding")]
    report = stored_report()
    entries.append(made(tmp_path / "no-null", make_report(report.facts, headline_acc=report.headline_acc, n_test=4000)))
    drawn = evidence_figures(entries)
    for entry in entries:
        rows = {r.name: r for r in margins_panel(entry).rows}
        margins = {m.null: m for m in entry.current.row.margins}
        assert {f"{null} null" for null in margins} == set(rows) - {"depth profile"}
        for null, margin in margins.items():
            assert rows[f"{null} null"].interval == (margin.low_pp, margin.high_pp)
        root = ElementTree.fromstring(drawn[entry.claim.name])
        words = root.get("aria-label") or ""
        assert "line at D3 threshold 2 pp" in words
        titles = [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}title")]
        assert len(titles) == len(rows)
        for name, found in rows.items():
            ((_, value),) = found.marks
            assert sum(f"{name} = {num(value)}" in t for t in titles) == 1
            assert f"{name}: " in words
    assert "interval" in (ElementTree.fromstring(drawn["field-cifar10-ep"]).get("aria-label") or "")


def test_a_mark_stands_where_its_number_is_on_the_axis(tmp_path):
    """Two entries in one frame: their marks are as far apart as their margins, on the scale that the ticks give."""
    report = stored_report()
    entries = []
    for k, null in enumerate((0.11, 0.14)):
        own = make_report(
            report.facts, headline_acc=report.headline_acc, network_acc=report.network_acc,
            frozen_baseline_acc={"matched": report.headline_acc[0] - null}, n_test=report.n_test,
        )  # fmt: skip
        entries.append(made(tmp_path / f"rule-{k}", own))
    places, ticks = [], {}
    for name, figure in evidence_figures(entries).items():
        root = ElementTree.fromstring(figure)
        circle = next(e for e in root.iter("{http://www.w3.org/2000/svg}circle") if "matched" in (e[0].text or ""))
        places.append((name, float(circle.get("cx", ""))))
        for text in root.iter("{http://www.w3.org/2000/svg}text"):
            if re.fullmatch(r"[−-]?\d+(\.0)?", text.text or "") and text.get("x"):
                ticks[float((text.text or "").replace("−", "-"))] = float(text.get("x", ""))
    (low, at_low), (high, at_high) = min(ticks.items()), max(ticks.items())
    per_pp = (at_high - at_low) / (high - low)
    for (_, x), pp in zip(sorted(places), (11.0, 14.0), strict=True):
        assert low < pp < high
        assert x == pytest.approx(at_low + per_pp * (pp - low), abs=1.0)


def test_a_claim_above_the_audited_mean_is_marked_on_the_page():
    held, _ = read_entries([ROOT / "board"])
    found = {e.claim.name: e.reach for e in held}
    page = board_page(held)
    assert page.count(" pp, undecided</i>") == sum(r == "undecided" for r in found.values()) > 0
    assert page.count(" pp over</i>") == sum(r == "above" for r in found.values()) > 0
    over, undecided = (sum(e.published and e.reach == reach for e in held) for reach in ("above", "undecided"))
    total = sum(e.published and bool(e.reach) for e in held)
    assert f"<strong>{over} of {total}</strong> published accuracies above the audited ones, {undecided} more" in page
