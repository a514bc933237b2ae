"""The engines beside the local one give the same bits; each is skipped where its library is not installed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.refusals import refusal
from tests.runs.driver import TINY, Inline
from tests.runs.kills import result_hashes

from creditscope.runs.execute import run_store
from creditscope.runs.executors import TaskFailed, WorkerDied, make_executor
from creditscope.runs.store import Store
from creditscope.training.spec import make_spec

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "module", "options"),
    [
        ("dask", "distributed", {"accelerated": True, "per_device": 2}),
        ("slurm", "submitit", {"cluster": "local"}),
        ("ray", "ray", {}),
    ],
)
def test_same_result_hashes_as_in_this_process(name, module, options, tmp_path, monkeypatch):
    pytest.importorskip(module, reason=f"extra {name} is missing: its executor is NOT tested")
    specs = [make_spec({**TINY, "epochs": 1, "seed": seed}) for seed in range(2)]

    def results(executor: Any, where: Path) -> dict[str, str]:
        assert run_store(specs, Store(where, create=True), executor) == []
        executor.shutdown()
        return result_hashes(where)

    with monkeypatch.context() as patch:
        # a worker of Dask has threads beside ours: Python's generator was once seen to move during a measurement
        if name == "dask":
            patch.delenv("CREDITSCOPE_CHECK_UNTOUCHED", raising=False)
        theirs = results(make_executor(name, 1, folder=str(tmp_path / "logs"), **options), tmp_path / "theirs")
    assert theirs == results(Inline(), tmp_path / "ours")


def test_slurm_gets_one_array_job(tmp_path, monkeypatch):
    """A stand-in for SLURM's commands: what is submitted together is one script with an array, capped at `workers`."""
    pytest.importorskip("submitit", reason="extra slurm is missing: its executor is NOT tested")
    scripts, bin_ = tmp_path / "scripts", tmp_path / "bin"
    scripts.mkdir()
    bin_.mkdir()
    sbatch = f'n=$(ls {scripts} | wc -l); cp "$1" {scripts}/$n.sh; echo "Submitted batch job 7"'
    for name, body in {"sbatch": sbatch, **dict.fromkeys(("srun", "sacct", "scancel"), "exit 0")}.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    options = {"folder": str(tmp_path / "logs"), "slurm": {"partition": "cpu", "time": 30}, "accelerated": True}
    executor = make_executor("slurm", 2, cluster="slurm", **options)
    for n in range(5):
        executor.submit(pow, n, 2)
    deadline = time.monotonic() + 30
    while not list(scripts.iterdir()):
        assert time.monotonic() < deadline, "waited 30 s for submitit to write the script of a job"
        time.sleep(0.1)
    executor.shutdown(cancel=True)
    (script,) = scripts.iterdir()
    text = script.read_text()
    for option in ("array=0-4%2", "partition=cpu", "time=30", "gres=gpu:1"):
        assert f"#SBATCH --{option}" in text
    assert "SLURM gives a GPU to one job" in refusal(lambda: make_executor("slurm", cluster="slurm", per_device=2))


def test_a_worker_that_hangs_is_stopped_and_the_next_task_gets_a_new_one():
    executor = make_executor("local", 1, timeout=60.0)
    assert executor.submit(pow, 2, 3).result() == 8  # the fork server is up now
    executor.shutdown()
    executor = make_executor("local", 1, timeout=1.0)
    hung, after = executor.submit(time.sleep, 600), executor.submit(pow, 2, 5)
    with pytest.raises(WorkerDied, match="no answer within 1 seconds"):
        hung.result(timeout=60)
    assert after.result(timeout=60) == 32
    executor.shutdown()


def test_a_task_that_raises_brings_its_traceback_and_its_worker_goes_on():
    executor = make_executor("local", 1)
    bad, pid, again = executor.submit(int, "x"), executor.submit(os.getpid), executor.submit(os.getpid)
    with pytest.raises(TaskFailed, match="ValueError: invalid literal") as raised:
        bad.result()
    assert "Traceback" in raised.value.trace
    assert pid.result() == again.result() != os.getpid()
    executor.shutdown()
