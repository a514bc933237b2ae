"""Two commits against each other: python -m benchmarks.commits OLD [NEW] [--rounds 20] [--only "FA none" sb]

OLD and NEW are checkouts (`git worktree add DIR COMMIT`; NEW: this one). Each has a process of its own, and both start anew in
every round: where a process has its memory moves a step by some hundredths. Within a round the two take turns, 16 times each
and about 0.05 s at a time, in an order that is drawn for every turn; the round counts with the median of its 16 ratios. Both
keep the memory that they free: to give it back and ask for it anew costs up to a tenth of a step, at random. A step is one of
ResMLP d=256 L=4, batch 128; `diagnose` is level basic on 8 batches. Per case: the geometric mean over rounds of new / old in
processor time, with its 95 % interval. Exit code 1 where an interval does not exclude a loss of more than 0.03.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

from creditscope.measure.student_t import t_975

BOUND = 1.03
TURNS, TURN = 16, 0.05
KEEP = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**33), "MALLOC_TOP_PAD_": str(2**28)}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
WORKER = """
import json, sys, time
import torch
from benchmarks.steps import BATCH, RULES, our_step, random_cifar
from creditscope import diagnose
from creditscope.training.build import build_model
from creditscope.training.spec import make_spec
torch.set_num_threads(1)
torch.manual_seed(0)
data, x, y = random_cifar(), torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
shape = {"dataset": "cifar10", "width": 256}
cases = {name.removeprefix("ours, "): our_step(make_spec({**shape, **rule}), data, x, y) for name, rule in RULES.items()}
others = {"ep": {}, "sb": {"credit_norm": "rms"}, "cb": {"credit_norm": "rms"}}
cases |= {name: our_step(make_spec({**shape, "method": name, **norm}), data, x, y) for name, norm in others.items()}
model, batches = build_model(make_spec(shape), (3, 32, 32), 10).eval(), [(x + k, y) for k in range(8)]
cases["diagnose"] = lambda: diagnose(model, batches)
print(json.dumps(list(cases)), flush=True)
for line in sys.stdin:
    name, times = json.loads(line)
    start = time.process_time()
    for _ in range(times):
        cases[name]()
    print((time.process_time() - start) / times, flush=True)
"""


class Checkout:
    """A process that runs the cases of one checkout when asked."""

    def __init__(self, root: Path) -> None:
        path = os.pathsep.join([str(root), str(root / "src")])
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", WORKER],
            cwd=root,
            env={**os.environ, **ONE_THREAD, **KEEP, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.cases: list[str] = json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the process of a checkout ended (see above); are both checkouts whole?")
        return line

    def seconds(self, case: str, times: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([case, times]) + "\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def logarithm(old: Checkout, new: Checkout, case: str) -> float:
    """log(new / old) of one round."""
    times = max(1, int(TURN / old.seconds(case, 2)))
    new.seconds(case, 2)
    logs = []
    for _ in range(TURNS):
        pair = [(old, "old"), (new, "new")]
        random.shuffle(pair)
        found = {name: checkout.seconds(case, times) for checkout, name in pair}
        logs.append(math.log(found["new"] / found["old"]))
    return statistics.median(logs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=Path(__file__).parents[1])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="+", metavar="CASE", help="cases to compare (default: all)")
    options = parser.parse_args()
    logs: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        old, new = Checkout(options.old.resolve()), Checkout(options.new.resolve())
        for case in (case for case in options.only or old.cases if case in old.cases and case in new.cases):
            logs.setdefault(case, []).append(logarithm(old, new, case))
        old.close()
        new.close()
    missed = 0
    print(f"{'case':<16} new / old, 95 % interval (processor time)")
    for case, found in logs.items():
        mean, half = statistics.fmean(found), t_975(len(found) - 1) * statistics.stdev(found) / math.sqrt(len(found))
        ratio, low, high = (math.exp(value) for value in (mean, mean - half, mean + half))
        missed += high > BOUND
        print(
            f"{case:<16} {ratio:.3f} [{low:.3f}, {high:.3f}], {len(found)} rounds  {'holds' if high <= BOUND else 'MISSED'}"
        )
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
