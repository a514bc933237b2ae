"""A slice of the random faults: every kind once; and a loss, if there were one, would be seen."""

from __future__ import annotations

import multiprocessing
import random
from pathlib import Path
from typing import Any

import pytest
from tests.trust.faults import FAULTS, Outcome, disturb, one_round

pytestmark = pytest.mark.slow


def _disturbed(root: str, answer: Any) -> None:
    whole = disturb(0, Path(root), seed=1, names=[*FAULTS])
    fooled = Outcome()
    one_round(Path(root) / "other", [], {"runs/x/model.safetensors": "0"}, random.Random(0), fooled)
    answer.put((dict(whole.tried), whole.lost, fooled.lost))


def test_every_kind_of_fault_leaves_a_store_whole_and_a_difference_would_be_seen(tmp_path):
    """In a process of its own: it forks, and pytest's process may have threads."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=_disturbed, args=(str(tmp_path), answer))
    process.start()
    tried, lost, seen = answer.get(timeout=300)
    process.join()
    assert lost == []
    assert tried == dict.fromkeys(FAULTS, 1)
    assert len(seen) == 1
    assert "differ from the undisturbed store" in seen[0]
