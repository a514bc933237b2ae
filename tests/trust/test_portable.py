"""Other systems and the oldest Python, as far as one machine can tell."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text()
OLDEST = (3, 10)

WITHOUT_FCNTL = """
import sys, warnings
sys.modules["fcntl"] = None  # as on Windows
warnings.simplefilter("ignore")
import creditscope
from pathlib import Path
from creditscope.runs.execute import run_store
from creditscope.runs.store import Store
from creditscope.training.loop import is_busy, train
from creditscope.training.spec import RunSpec
from tests.trust.faults import Inline
import filelock
assert filelock.FileLock is filelock.SoftFileLock
out = Path(sys.argv[1])
spec = RunSpec(method="dfa", credit_norm="rms", width=8, depth=1, epochs=1, batch_size=2000)
assert train(spec, out / "run").spec == spec
(out / "store" / "runs").mkdir(parents=True)
store = Store(out / "store", create=True)
lock = out / "store" / "runs" / f".{spec.hash}.lock"
lock.write_text("999999999\\nelsewhere-that-is-not-this-host\\n")
assert store.running() == [spec.hash]  # another machine's
lock.unlink()
assert run_store([spec], store, Inline()) == []
assert [r["hash"] for r in store.rows()] == [spec.hash]
assert sorted(p.name for p in (out / "store" / "runs").iterdir()) == [spec.hash]
"""


def test_without_fcntl_training_and_stores_work(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FCNTL, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_without_a_fork_server_workers_are_spawned(monkeypatch):
    from creditscope.runs.executors import local

    monkeypatch.setattr(local, "_START", "spawn")
    made = local.Worker()
    try:
        assert made.call(divmod, (7, 2), 120) == (3, 1)
    finally:
        made.close()


@pytest.mark.parametrize("part", ["src", "tests", "benchmarks", "examples"])
def test_the_source_parses_as_the_oldest_python(part):
    for path in sorted(p for p in (ROOT / part).rglob("*.py") if ".venv" not in p.parts):
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=OLDEST)


def test_the_oldest_python_is_the_same_everywhere():
    """What pip enforces, what ruff and mypy check against, and what the workflow runs."""
    oldest = ".".join(map(str, OLDEST))
    assert f'requires-python = ">={oldest}"' in PROJECT
    assert f'target-version = "py{oldest.replace(".", "")}"' in PROJECT
    assert f'python_version = "{oldest}"' in PROJECT


def test_classifiers_name_what_the_workflow_tests():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    stated = re.findall(r"Programming Language :: Python :: (3\.\d+)", PROJECT)
    assert matrix["python"] == stated == ["3.10", "3.11", "3.12", "3.13"]
    systems = {"ubuntu": "POSIX :: Linux", "macos": "MacOS", "windows": "Microsoft :: Windows"}
    assert [name.removesuffix("-latest") for name in matrix["os"]] == [*systems]
    assert re.findall(r'"Operating System :: (.*?)"', PROJECT) == [*systems.values()]
    assert "-c constraints.txt" in (ROOT / ".github" / "workflows" / "test.yml").read_text()
