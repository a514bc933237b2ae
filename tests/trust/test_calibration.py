"""The points of the calibration, and what is said of them."""

from __future__ import annotations

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
