"""The examples on networks of other libraries, each from a clean environment; the pages show what they print."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from creditscope import DiagnosticReport

ROOT = Path(__file__).parents[2]
NAMES = ("pcx", "fabricpc")
LONGEST = 180
"""Seconds from a clean environment to the verdict."""


def environment() -> Any:
    spec = importlib.util.spec_from_file_location("environment", ROOT / "examples" / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_has_a_page_and_a_target():
    assert sorted(NAMES) == environment().NAMES
    makefile = (ROOT / "Makefile").read_text()
    for name in NAMES:
        assert f"\nexample-{name}:" in makefile
        assert "VERDICT" in (ROOT / "docs" / f"{name}.md").read_text()


def test_requirements_are_read_whatever_stands_behind_the_name():
    text = "# a comment\njax==0.4.38\nml_dtypes>=0.5 ; python_version > '3'\n\n-c x\nOpt.Einsum\n"
    assert environment().names_in(text) == {"jax", "ml-dtypes", "opt-einsum"}


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_from_a_clean_environment(name):
    shutil.rmtree(ROOT / "examples" / name / ".venv", ignore_errors=True)
    started = time.monotonic()
    command = [sys.executable, str(ROOT / "examples" / "environment.py"), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < LONGEST
    report = DiagnosticReport.from_dict(json.loads((ROOT / "examples" / name / "report.json").read_text()))
    assert report.verdict.line in done.stdout
    facts = report.facts
    assert facts.proof is not None
    assert all(error is not None and error < 1e-3 for error in facts.proof.gradient)
    assert facts.profile is not None
    assert facts.profile.margin is not None
    assert facts.perturbation is not None
    assert facts.perturbation.reference is not None
    assert min(m for m in facts.perturbation.reference.mean if m is not None) > 0.99
    assert report.checks["D3"].answer != "not measured"
