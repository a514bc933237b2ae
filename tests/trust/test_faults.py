"""A slice of the random faults: every kind once, on one store after the other."""

from __future__ import annotations

import multiprocessing
import random
from pathlib import Path

import pytest
from tests.trust.faults import FAULTS, Outcome, disturb, one_round

pytestmark = pytest.mark.slow


def _disturbed(root: str, names: list[str], answer: object) -> None:
    outcome = disturb(0, Path(root), seed=1, names=names)
    answer.put((dict(outcome.tried), outcome.lost))  # type: ignore[attr-defined]


def test_every_kind_of_fault_leaves_a_store_whole(tmp_path):
    """In a process of its own: it forks, and pytest's process has threads."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    names = [*FAULTS, "kill at write", "kill at write", "no space"]
    process = context.Process(target=_disturbed, args=(str(tmp_path), names, answer))
    process.start()
    tried, lost = answer.get(timeout=300)
    process.join()
    assert lost == []
    assert sum(tried.values()) == len(names)
    assert set(tried) == set(FAULTS)


def test_a_loss_would_be_seen(tmp_path):
    """The harness compares: files other than those of the undisturbed store are a loss."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=_false_quiet, args=(str(tmp_path), answer))
    process.start()
    lost = answer.get(timeout=300)
    process.join()
    assert len(lost) == 1
    assert "differ from the undisturbed store" in lost[0]


def _false_quiet(root: str, answer: object) -> None:
    outcome = Outcome()
    one_round(Path(root) / "0", [], {"runs/x/model.safetensors": "0"}, random.Random(0), outcome)
    answer.put(outcome.lost)  # type: ignore[attr-defined]
