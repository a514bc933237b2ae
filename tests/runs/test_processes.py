"""Drivers as processes: two on one store, and drivers and workers that are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.runs.driver import tiny_specs
from tests.runs.kills import PATIENCE, disturb, ended, finish, result_hashes, session, start

from creditscope.runs.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.posix]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory) -> Path:
    """A store that nobody disturbed."""
    root: Path = tmp_path_factory.mktemp("quiet")
    assert finish(root / "store", root / "log") == 0
    return root / "store"


def test_two_drivers_share_the_grid_and_train_nothing_twice(quiet, tmp_path):
    drivers = [start(tmp_path / "store", tmp_path / "log") for _ in range(2)]
    assert [ended(d, PATIENCE, "a driver to train its share of six small runs") for d in drivers] == [0, 0]
    trained = Counter((tmp_path / "log").read_text().split())
    assert trained == Counter(s.hash for s in tiny_specs())
    assert result_hashes(tmp_path / "store") == result_hashes(quiet)


def test_after_kills_every_run_is_there_once_with_the_same_bits(quiet, tmp_path):
    disturb(tmp_path / "store", tmp_path / "log", 3, random.Random(7))
    assert finish(tmp_path / "store", tmp_path / "log") == 0
    assert result_hashes(tmp_path / "store") == result_hashes(quiet)
    store = Store(tmp_path / "store")
    assert store.failures() == {}
    assert store.running() == []
    assert [r["hash"] for r in store.rows()] == sorted(s.hash for s in tiny_specs())


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_driver_leaves_no_worker_and_what_was_trained(tmp_path, how):
    """Exit code not 0, no process left that trains on; Ctrl-C: one line that says how to go on."""
    command = [*["-m", "creditscope", "study", "run", "early", "--workers", "2", "--store"], str(tmp_path / "store")]
    driver = subprocess.Popen(
        [sys.executable, *command],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  (ignored in the background)
    )
    deadline = time.monotonic() + PATIENCE
    while not list(tmp_path.glob("store/runs/.*.partial/resume.safetensors")):
        assert time.monotonic() < deadline, f"waited {PATIENCE:g} s for the first run to finish its first epoch"
        time.sleep(0.1)
    before = whole_runs(tmp_path / "store")
    os.kill(driver.pid, how)
    _, said = driver.communicate(timeout=PATIENCE)
    assert driver.returncode not in (0, None)
    assert "run the same command again to resume" in said or how != signal.SIGINT
    assert "Traceback" not in said
    deadline = time.monotonic() + PATIENCE
    while left := session(driver.pid):
        assert time.monotonic() < deadline, f"waited {PATIENCE:g} s for the workers of the driver to end; left: {left}"
        time.sleep(0.1)
    assert Store(tmp_path / "store").running() == []
    assert list(tmp_path.glob("store/runs/.*.partial/resume.safetensors"))
    assert len(whole_runs(tmp_path / "store") - before) < 2, "both workers have trained on to the end of their runs"


def whole_runs(store: Path) -> set[str]:
    return {path.name for path in (store / "runs").iterdir() if not path.name.startswith(".")}
