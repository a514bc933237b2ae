"""What a user waits for before anything happens: `creditscope --help`, and `import creditscope` and `diagnose` beyond torch.

With compiled files in a cache of their own, as every start but the first has them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.harness import Row

HELP_SECONDS, IMPORT_SECONDS = 0.5, 0.2


def run_python(code: list[str], cache: str) -> str:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"PYTHONPYCACHEPREFIX": cache}
    return subprocess.run([sys.executable, *code], check=True, capture_output=True, text=True, env=env).stdout


def start_up(cache: str) -> float:
    start = time.perf_counter()
    run_python(["-m", "creditscope", "--help"], cache)
    return time.perf_counter() - start


def beyond_torch(statement: str, cache: str) -> float:
    """Seconds that the statement takes where torch is there already."""
    clock = "from time import perf_counter as now; start = now()"
    return float(run_python(["-c", f"import torch; {clock}; {statement}; print(now() - start)"], cache))


def run(rounds: int) -> list[Row]:
    """Seconds, not ratios: these targets are what a person notices."""
    statements = ("import creditscope", "from creditscope import diagnose")
    taken: dict[str, list[float]] = {name: [] for name in ("creditscope --help", *statements)}
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(rounds + 1):
            taken["creditscope --help"].append(start_up(cache))
            for statement in statements:
                taken[statement].append(beyond_torch(statement, cache))
    group = "Start-up (seconds)"
    rows = []
    for name, (_, *found) in taken.items():  # the first one filled the cache
        against = "in all" if name.endswith("help") else "after `import torch`"
        target = {"creditscope --help": HELP_SECONDS, "import creditscope": IMPORT_SECONDS}.get(name)
        rows.append(Row(group, name, against, min(found), statistics.median(found), target))
    return rows
