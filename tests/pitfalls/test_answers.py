"""What the catalogue answers of reports whose facts are made by hand."""

from __future__ import annotations

from creditscope.measure.facts import Aggregate
from creditscope.pitfalls import pf05_aggregation


def test_aggregations_are_shown_with_their_extremes():
    near = Aggregate(
        headline=0.657, concat=0.445, norm_weighted=0.517, flattened=0.5, clamped_128=0.6, spread=0.2, sign_flips=False
    )
    assert pf05_aggregation.extremes(near) == (("concatenated", 0.445), ("mean of layers", 0.657))
    assert pf05_aggregation.disagreement(near) is None
    far = near.model_copy(update={"concat": -0.2})
    assert str(pf05_aggregation.disagreement(far)).startswith(
        "the sign of Γ depends on the aggregation: concatenated -0.200"
    )
