"""Every rule, model, measure, profile and certificate, and a step of a study, on a fake accelerator: `suite.py`, run apart."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_suite_on_the_fake_accelerator() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "tests/device/suite.py",
    ]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    dots = sum(line.count(".") for line in done.stdout.splitlines() if re.fullmatch(r"[.]+\s+\[ *\d+%\]", line.strip()))
    assert (int(passed[1]) if passed else dots) >= 45, done.stdout[-2000:]
