"""The points of the calibration, and what is said of them."""

from __future__ import annotations

import re

import numpy as np
from tests.e2e.pages import DOCS
from tests.trust import calibration

from creditscope.protocol import estimate
from creditscope.training.spec import make_spec


def test_what_a_report_says_of_the_estimate_follows_from_the_points():
    points = calibration.read_points()
    margins = [
        (100 * (p["h_L"] - p["twin_0"]), 100 * (p["accuracy"] - p["null"])) for p in points if p["h_L"] is not None
    ]
    wrong = sum((e < 2) != (m < 2) for e, m in margins)
    assert (len(margins), wrong) == (estimate.NETWORKS, estimate.WRONG_SIDE)
    for distances, sign in ((estimate.MARGIN_ABOVE, 1), (estimate.MARGIN_BELOW, -1)):
        furthest = sorted((sign * (m - e) for e, m in margins), reverse=True)[: len(distances)]
        assert distances == tuple(round(distance, 3) for distance in furthest)
    assert len(margins) >= 100
    assert len({p["dataset"] for p in points}) == 3


def test_bias_and_wrong_sides_by_hand():
    found = [(1.0, 3.0), (4.0, 5.0), (0.0, -2.0)]  # errors -2, -1, +2: mean -1/3, standard deviation sqrt(13/3)
    assert calibration.said(found) == ["3", "-0.3", "2.1", "1.00", "1 (33 %)"]


def test_one_null_serves_both_sites_and_every_network_of_the_grid_has_one():
    by_site = [make_spec({"method": "fa", "credit_norm": "none", "credit_site": site}) for site in ("input", "output")]
    assert len({calibration.null_of(spec).hash for spec in by_site}) == 1
    specs = [(spec.hash, n) for spec, n in calibration.grid()]
    assert len(set(specs)) == len(specs)
    assert all(calibration.null_of(spec).frozen for spec, _ in calibration.grid())


PAGE = " ".join((DOCS / "depth-profile.md").read_text().split())


def told(pattern: str) -> list[float]:
    found = re.search(pattern, PAGE)
    assert found is not None, pattern
    return [float(number.replace(",", "")) for number in found.groups()]


def test_the_tables_of_the_page_are_those_of_the_points():
    text = (DOCS / "depth-profile.md").read_text()
    held = text.partition(calibration.START)[2].partition(calibration.END)[0]
    assert held.strip() == calibration.page(calibration.read_points())


def test_what_the_page_says_of_the_points_is_recomputed():
    """Written differently: one array of estimate, margin and label."""
    points = [p for p in calibration.read_points() if p["h_L"] is not None]
    estimate = np.array([100 * (p["h_L"] - p["twin_0"]) for p in points])
    margin = np.array([100 * (p["accuracy"] - p["null"]) for p in points])
    error, wrong, away = estimate - margin, (estimate < 2) != (margin < 2), abs(estimate - 2)
    for norm, pattern in (
        ("rms", r"by (\S+) pp on average \((\d+) networks, spread (\S+)\)"),
        ("none", r"with `none` by (\S+) \((\d+) networks, spread (\S+)\)"),
    ):
        mine = np.array([bool(re.match(rf"d?fa\({norm}", p["label"])) for p in points])
        found = error[mine]
        assert told(pattern) == [round(found.mean(), 1), mine.sum(), round(found.std(ddof=1), 1)]
    assert told(r"In (\d+) of (\d+) networks \((\d+) %\) the estimate") == [
        wrong.sum(), len(points), round(100 * wrong.mean())
    ]  # fmt: skip
    near, between = away < 1, (away >= 1) & (away < 2)
    assert told(r"(\d+) of the (\d+) within 1 pp, (\d+) of the (\d+) from 1 to 2 pp, none of the (\d+) further") == [
        wrong[near].sum(), near.sum(), wrong[between].sum(), between.sum(), (away >= 2).sum()
    ]  # fmt: skip
    assert not wrong[away >= 2].any()
    assert told(r"In none of the (\d+) networks of the calibration") == [len(points)]
    large, negative = margin >= 8, margin < -2
    assert told(
        r"it is (\S+) pp too low on average in the (\d+) networks with a margin of 8 pp and more, and (\S+) pp too high in the "
        r"(\d+) with a margin below -2 pp"
    ) == [-round(error[large].mean(), 1), large.sum(), round(error[negative].mean(), 1), negative.sum()]


def test_the_error_of_a_margin_near_the_threshold():
    """Of two accuracies near .3 on n samples each: sqrt(2 p (1 - p) / n)."""
    pp, samples = told(r"about (\S+) pp on ([\d,]+) test samples")
    assert pp == round(100 * (2 * 0.3 * 0.7 / samples) ** 0.5)
