"""A model that several processes hold: the facts of one process, on every rank; an error on one ends all. Real processes, gloo.

python tests/stream/test_ranks.py 4     # the same with four processes
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.stream import rank_jobs
from torch import nn

from creditscope import CreditscopeError, Monitor, diagnose
from creditscope.credit import BP
from creditscope.stream.ranks import ranks_of

SIZE = int(os.environ.get("CREDITSCOPE_TEST_RANKS", "2"))
JOBS = {"ddp": "facts,full,monitor,broken", "fsdp": "facts,full,monitor,broken"}
MEASURED = (
    *("convention", "accuracy", "evaluation", "loss", "scale", "reference"),
    *("alignment", "aggregate", "concentration", "stability", "non_finite"),
)
"""Of the facts all that is not about how the model was seen."""


@cache
def answers(kind: str, size: int = SIZE) -> list[dict[str, Any]]:
    """What every rank found."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [sys.executable, "-W", "ignore", str(Path(rank_jobs.__file__)), JOBS[kind], kind]
        ranks = [
            subprocess.Popen(
                [*arguments, str(rank), str(size), folder],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "CREDITSCOPE_CHECK_UNTOUCHED": "1"},
            )
            for rank in range(size)
        ]
        try:
            said = [process.communicate(timeout=600)[0] for process in ranks]
        finally:
            for process in ranks:
                process.kill()
        assert [process.returncode for process in ranks] == [0] * size, "\n".join(said)
        found = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(size)]
        lines = (Path(folder) / "run" / "trajectory.jsonl").read_text().splitlines()
        return [{**one, "written": [json.loads(line) for line in lines]} for one in found]


def require_same(ours: Any, theirs: Any, where: str = "") -> None:
    """Numbers to 1e-5, all else exactly."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), where
        for key in theirs:
            require_same(ours[key], theirs[key], f"{where}.{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            require_same(a, b, f"{where}[{k}]")
    elif isinstance(theirs, float):
        assert math.isclose(ours, theirs, rel_tol=1e-5, abs_tol=1e-7), f"{where}: {ours} and {theirs}"
    else:
        assert ours == theirs, f"{where}: {ours} and {theirs}"


def alone(interface: bool, **options: Any) -> dict[str, Any]:
    """The facts of one process with the whole data."""
    model = rank_jobs.net(interface)
    credit = rank_jobs.rule(model) if interface else BP()
    found: dict[str, Any] = json.loads(
        diagnose(model, rank_jobs.data(), credit=credit, **options).facts.model_dump_json()
    )
    return found


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("how", ["hooks", "interface"])
def test_every_rank_gets_the_facts_of_one_process(kind, how):
    wanted = alone(how == "interface")
    assert wanted["stability"]["groups"] == 6
    for one in answers(kind):
        found = one["facts"][how]
        require_same({k: found[k] for k in MEASURED}, {k: wanted[k] for k in MEASURED})
        assert found["stream"]["kind"] == wanted["stream"]["kind"]
        assert found["stream"]["widths"] == wanted["stream"]["widths"]
        assert max(found["proof"]["swap"]) < 1e-4
        assert max(found["proof"]["gradient"]) < 1e-2


def test_level_full_of_copies_is_that_of_one_process():
    wanted = alone(False, level="full")
    for one in answers("ddp"):
        for name in ("perturbation", "nudging", "fresh_b"):
            require_same(one["full"][name], wanted[name], name)


def test_level_full_of_shards_says_why_it_is_not_measured():
    for one in answers("fsdp"):
        assert "float64 copy" in one["full"]["perturbation"]["reason"]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_monitor_says_the_same_on_every_rank_and_writes_once(kind):
    found = answers(kind)
    history = found[0]["monitor"]["history"]
    assert [line["epoch"] for line in history] == [0, 1, 2]
    assert len({line["eval_loss"] for line in history}) == 3
    assert found[0]["written"] == history
    for one in found[1:]:
        require_same(one["monitor"], found[0]["monitor"])
    watching = Monitor(rank_jobs.net(), rank_jobs.data(), credit=BP())
    watching.step(0)
    require_same(history[0], json.loads(json.dumps(watching.history[0])))


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_what_fails_on_one_rank_ends_all_with_the_one_line(kind):
    found = [one["broken"] for one in answers(kind)]
    assert all(one == found[0] for one in found)
    said = {
        "labels": "label 13 is out of range",
        "shape": "cannot be multiplied",
        "reading": f"rank {SIZE - 1}: OSError: the disk is gone",
    }
    for name, words in said.items():
        for what in ("diagnose", "Monitor"):
            line = found[0][f"{name}, {what}"]
            assert words in line, line
            assert "\n" not in line
    assert float(found[0]["after"]) > 0


def test_a_model_of_one_process_has_no_ranks():
    assert ranks_of(nn.Linear(2, 2)) is None


def test_fsdp_of_the_first_kind_is_refused(monkeypatch):
    class FullyShardedDataParallel(nn.Sequential):
        pass

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(CreditscopeError, match="fully_shard"):
        ranks_of(FullyShardedDataParallel(nn.Linear(2, 2)))
