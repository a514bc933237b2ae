"""The short form of tests/trust/claims.py: every kind of lie, three times."""

from __future__ import annotations

from tests.trust.claims import LIES, lies


def test_every_lie_is_refused_marked_or_inert(tmp_path):
    counts, faults = lies(3 * (len(LIES) + 1), 1, tmp_path)
    assert faults == []
    assert sum(counts.values()) == 3 * (len(LIES) + 1)
