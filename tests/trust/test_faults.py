"""A slice of the faults: every kind once, and each at the first writes; and a loss, if there were one, would be seen."""

from __future__ import annotations

import multiprocessing
import queue
import random
from pathlib import Path
from typing import Any

import pytest
from tests.trust.faults import AT_A_WRITE, FAULTS, Outcome, disturb, enumerate_faults, one_round, undisturbed
from tests.trust.starts import start_together

pytestmark = [pytest.mark.slow, pytest.mark.posix]

FIRST_WRITES = range(1, 8)
LIMIT = 600


def _disturbed(root: str, answer: Any) -> None:
    quiet, writes = undisturbed(Path(root) / "quiet")
    whole = disturb(0, Path(root), quiet, seed=1, names=[*FAULTS])
    fooled = Outcome()
    one_round(Path(root) / "other", [], {"runs/x/model.safetensors": "0"}, random.Random(0), fooled)
    each = enumerate_faults(Path(root) / "each", quiet, writes, FIRST_WRITES)
    starts = [start_together(Path(root) / f"starts-{k}", drivers) for k, drivers in enumerate((2, 4, 8))]
    answer.put((dict(whole.tried), whole.lost, fooled.lost, writes, dict(each.tried), each.lost, starts))


@pytest.fixture(scope="module")
def outcome(tmp_path_factory) -> Any:
    """In a process of its own: it forks, and pytest's process may have threads."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=_disturbed, args=(str(tmp_path_factory.mktemp("faults")), answer))
    process.start()
    try:
        found = answer.get(timeout=LIMIT)
    except queue.Empty:
        process.kill()
        pytest.fail(f"waited {LIMIT} s for the process that disturbs stores, and it gave no answer")
    process.join()
    return found


def test_every_kind_of_fault_leaves_a_store_whole_and_a_difference_would_be_seen(outcome):
    tried, lost, seen, *_ = outcome
    assert lost == []
    assert tried == dict.fromkeys(FAULTS, 1)
    assert len(seen) == 1
    assert "differ from the undisturbed store" in seen[0]


def test_a_fault_at_each_of_the_first_writes_of_a_store_leaves_it_whole(outcome):
    _, _, _, writes, tried, lost, _ = outcome
    assert lost == []
    assert tried == dict.fromkeys(AT_A_WRITE, len(FIRST_WRITES))
    # the writes that make a store, in their order: its directory, store.json (beside, flushed, renamed), runs/
    assert writes[:5] == ["mkdir", "open", "fsync", "replace", "mkdir"]


def test_drivers_that_start_at_once_on_a_new_store_all_succeed(outcome):
    assert outcome[-1] == ["", "", ""]
