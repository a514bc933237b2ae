"""Kill a driver or one of its processes at random moments, then finish. By hand: python tests/runs/kills.py 20"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DRIVER = Path(__file__).with_name("driver.py")
PATIENCE = 900.0
"""Seconds that a test waits for another process. It costs nothing where all is well, and a busy machine is no failure."""


def start(store: Path, log: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(DRIVER), str(store), str(log)], stderr=subprocess.DEVNULL, start_new_session=True
    )


def session(pid: int) -> list[int]:
    """The processes that the driver `pid` has started (it leads its own session)."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == pid and int(entry.name) != pid:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def result_hashes(store: Path) -> dict[str, str]:
    files = sorted(p for p in (store / "runs").rglob("*") if p.is_file())
    return {str(p.relative_to(store)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def disturb(store: Path, log: Path, kills: int, rng: random.Random) -> None:
    for _ in range(kills):
        driver = start(store, log)
        time.sleep(rng.uniform(1.0, 6.0))
        targets = session(driver.pid)
        target = rng.choice(targets) if targets and rng.random() < 0.5 else driver.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(target, signal.SIGKILL)
        ended(driver, PATIENCE, "a driver that was killed, or whose worker was, to end")


def ended(process: subprocess.Popen[bytes], limit: float, what: str) -> int:
    """The exit code; a process that does not end in time is killed, and the error says what was waited for."""
    try:
        return process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"waited {limit:g} s for {what}") from None


def finish(store: Path, log: Path) -> int:
    return ended(start(store, log), PATIENCE, "a driver to finish the grid of small runs")


if __name__ == "__main__":
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        assert finish(root / "quiet", root / "quiet.log") == 0
        disturb(root / "loud", root / "loud.log", int(sys.argv[1]), rng)
        assert finish(root / "loud", root / "loud.log") == 0
        assert result_hashes(root / "quiet") == result_hashes(root / "loud")
        print(f"{sys.argv[1]} kills: every run once, hashes equal")
