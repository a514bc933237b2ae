"""The depth margin as estimated from the checkpoint, where no null was trained. It decides nothing: the null is the judge."""

from __future__ import annotations

from creditscope.measure.facts import Facts
from creditscope.protocol.wording import signed_pp

NETWORKS, WRONG_SIDE = 196, 9
"""Networks with a trained matched null, and those where estimate and margin lie on different sides of 2 pp.

Three data sets, mostly small networks and short trainings: `tests/trust/calibration.csv`, told on the page of the depth profile.
All nine lie within 2 pp of the threshold.
"""
CALIBRATION = (
    f"in {WRONG_SIDE} of {NETWORKS} networks with a trained null the estimate was on the wrong side of the threshold"
)


def estimate(facts: Facts) -> str:
    """ "estimate -5.6 pp from the checkpoint"; "" where there is none."""
    margin = None if facts.profile is None else facts.profile.margin
    return "" if margin is None else f"estimate {signed_pp(margin.pp)} pp from the checkpoint"
