"""The page of a board: its numbers, its size, and that nothing in it can run."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from creditscope.board.entry import Entry, read_entries, read_entry
from creditscope.render.badge import badge
from creditscope.render.html.board import board_page, claims_plot, entry_html, row

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
