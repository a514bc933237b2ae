"""What a user waits for before anything happens: `creditscope --help`, and `import creditscope` beyond torch."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.harness import Row

HELP_SECONDS, IMPORT_SECONDS = 0.5, 0.2


def seconds(code: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def run(rounds: int) -> list[Row]:
    """Seconds, not ratios: these targets are what a person notices. Interleaved with the bare interpreter and torch."""
    cases = {
        "python": ["-c", ""],
        "help": ["-m", "creditscope", "--help"],
        "torch": ["-c", "import torch"],
        "both": ["-c", "import torch, creditscope; creditscope.diagnose"],
    }
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, code in cases.items():
            taken[name].append(seconds(code))
    best = {k: min(v) for k, v in taken.items()}
    middle = {k: statistics.median(v) for k, v in taken.items()}
    group = "Start-up (seconds)"
    beyond = [t["both"] - t["torch"] for t in (best, middle)]
    return [
        Row(group, "creditscope --help", "nothing", best["help"], middle["help"], HELP_SECONDS),
        Row(group, "import creditscope", "import torch", beyond[0], beyond[1], IMPORT_SECONDS),
    ]
