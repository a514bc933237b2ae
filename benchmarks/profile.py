"""Where the time of a training step goes: python -m benchmarks.profile [--width 256] [--rounds 8]

Milliseconds of one step by kind of operation, from torch's profiler; `Python and autograd` is the rest of the step's time
without the profiler. The median over rounds; the cases take turns.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.harness import interleaved
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
OTHER, REST = "other tensor operations", "Python and autograd"


def by_kind(step: Callable[[], None]) -> dict[str, float]:
    """Milliseconds of one step, by kind of tensor operation."""
    with profile(activities=[ProfilerActivity.CPU]) as made:
        for _ in range(STEPS):
            step()
    found: dict[str, float] = defaultdict(float)
    for event in made.key_averages():
        if event.key.startswith("aten::"):
            kind = next((kind for kind, names in KINDS.items() if event.key in names), OTHER)
            found[kind] += event.self_cpu_time_total / STEPS / 1000
    return found


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
    times = interleaved(cases, 10 * options.rounds, repeat=2)
    rounds = [{name: by_kind(step) for name, step in cases.items()} for _ in range(options.rounds)]
    print(f"| ms per step, d={options.width} | {' | '.join(cases)} |\n|{'---|' * (len(cases) + 1)}")
    total = {name: 1000 * statistics.median(times[name].rounds) for name in cases}
    left = dict(total)
    for kind in (*KINDS, OTHER):
        row = {name: statistics.median(r[name][kind] for r in rounds) for name in cases}
        left = {name: left[name] - row[name] for name in cases}
        print(f"| {kind} | {' | '.join(f'{v:.2f}' for v in row.values())} |")
    print(f"| {REST} | {' | '.join(f'{v:.2f}' for v in left.values())} |")
    print(f"| **step** | {' | '.join(f'{v:.2f}' for v in total.values())} |")


if __name__ == "__main__":
    main()
