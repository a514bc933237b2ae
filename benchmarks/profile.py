"""Where the time of a training step goes: python -m benchmarks.profile [--width 256] [--rounds 8]

Milliseconds of one step by kind of operation, from torch's profiler; the rest of the step, with the profiler's own time, is
Python and autograd. The median over rounds; the cases take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.steps import BATCH, RULES, our_step, plain_step, random_cifar
from creditscope.training.spec import make_spec

STEPS = 10
KINDS = {
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::mv", "aten::addmv_"),
    "AdamW": ("aten::_fused_adamw_",),
    "GELU, LayerNorm, softmax": (
        "aten::gelu", "aten::gelu_backward", "aten::native_layer_norm", "aten::native_layer_norm_backward",
        "aten::_softmax", "aten::_log_softmax", "aten::_log_softmax_backward_data",
    ),
}  # fmt: skip
OTHER, REST, STEP = "other tensor operations", "Python and autograd", "**whole step**"


def by_kind(step: Callable[[], None]) -> dict[str, float]:
    """Milliseconds of one step, by kind of tensor operation."""
    with profile(activities=[ProfilerActivity.CPU]) as made:
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        whole = (time.perf_counter() - start) / STEPS * 1000
    found: dict[str, float] = defaultdict(float)
    for event in made.key_averages():
        if event.key.startswith("aten::"):
            kind = next((kind for kind, names in KINDS.items() if event.key in names), OTHER)
            found[kind] += event.self_cpu_time_total / STEPS / 1000
    return found | {REST: whole - sum(found.values()), STEP: whole}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    shape = {"dataset": "cifar10", "width": options.width}
    data, x, y = random_cifar(), torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    cases: dict[str, Callable[[], None]] = {"plain loop": plain_step(make_spec(shape), x, y)}
    for rule in ("ours, BP", "ours, FA none", "ours, FA rms", "ours, DFA none"):
        cases[rule] = our_step(make_spec({**shape, **RULES[rule]}), data, x, y)
    rounds = [{name: by_kind(step) for name, step in cases.items()} for _ in range(options.rounds + 1)][1:]
    print(f"| ms per step, d={options.width} | {' | '.join(cases)} |\n|{'---|' * (len(cases) + 1)}")
    for kind in (*KINDS, OTHER, REST, STEP):
        row = [statistics.median(r[name][kind] for r in rounds) for name in cases]
        print(f"| {kind} | {' | '.join(f'{v:.2f}' for v in row)} |")


if __name__ == "__main__":
    main()
