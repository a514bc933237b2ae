"""The depth margin as estimated from the checkpoint, where no null was trained. It decides nothing: the null is the judge."""

from __future__ import annotations

from creditscope.measure.facts import DepthMargin, Facts
from creditscope.protocol.wording import between_pp, signed_pp

NETWORKS, WRONG_SIDE = 196, 9
"""Networks with a trained matched null, and those where estimate and margin lie on different sides of 2 pp.

Three data sets, mostly small networks and short trainings: `tests/trust/calibration.csv`, told on the page of the depth profile.
All nine lie within 2 pp of the threshold.
"""
CALIBRATION = (
    f"in {WRONG_SIDE} of {NETWORKS} networks with a trained null the estimate was on the wrong side of the threshold"
)

MARGIN_ABOVE = (2.375, 2.05, 1.975, 1.5, 1.25, 1.225, 1.15, 1.1, 1.05)
MARGIN_BELOW = (14.275, 11.175, 8.65, 8.55, 8.54, 8.45, 7.55, 7.15, 6.75)
"""The nine largest distances (pp, 5 % of these networks) of the margin above its estimate, and below it."""


def estimate(facts: Facts) -> str:
    """ "estimate -5.6 pp from the checkpoint"; "" where there is none."""
    margin = None if facts.profile is None else facts.profile.margin
    return "" if margin is None else f"estimate {signed_pp(margin.pp)} pp from the checkpoint"


def disagreement(facts: Facts, margin: DepthMargin, needed: float) -> str:
    """Estimate and trained null where they lie on different sides of the threshold and their intervals do not meet; else ""."""
    found = None if facts.profile is None else facts.profile.margin
    if found is None or (margin.margin_pp < needed) == (found.pp < needed):
        return ""
    low, high = (margin.margin_pp if end is None else end for end in (margin.low_pp, margin.high_pp))
    if low <= found.high_pp and found.low_pp <= high:
        return ""
    above = margin.margin_pp > found.pp
    distance = abs(margin.margin_pp - found.pp)
    further = sum(seen >= distance for seen in (MARGIN_ABOVE if above else MARGIN_BELOW))
    interval = "" if margin.low_pp is None else f" {between_pp(low, high)}"
    return (
        f"D3 and the depth profile disagree: {signed_pp(margin.margin_pp)}{interval} pp over the trained null, but "
        f"{signed_pp(found.pp)} {between_pp(found.low_pp, found.high_pp)} pp estimated from the checkpoint. "
        f"{_suspect(facts, margin) if above else 'Check that the null was trained by the same recipe'}. In {_seen(further)} of "
        f"the {NETWORKS} networks of the calibration was the trained margin this far {'above' if above else 'below'} the estimate"
    )


def _seen(networks: int) -> str:
    return f"{networks} or more" if networks == len(MARGIN_ABOVE) else str(networks or "none")


def _suspect(facts: Facts, margin: DepthMargin) -> str:
    """What a margin far above its estimate asks for: a null that does what its random blocks allow, or a fair estimate."""
    twin = None if facts.profile is None else facts.profile.twin[-1].accuracy
    allow = (
        "" if twin is None else f" (the null reaches {margin.null_accuracy:.3f}, a readout of random blocks {twin:.3f})"
    )
    return (
        f"Train the null to its end: same recipe, more epochs, another learning rate{allow}; "
        "or the head reads less of the state than the readout does (it pools): then the estimate does not compare"
    )
