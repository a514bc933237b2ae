"""What `diagnose` costs beside plain training code: peak memory and time, as ratios to forward + backward in the same run.

    OMP_NUM_THREADS=1 python benchmarks/bench_diagnose.py [--rounds 5] [--json FILE]

Peak memory: bytes of tensors allocated on top of what is there before (torch's profiler), one batch of 128. Time: processor
time of one thread over 8 batches of 128; the two are run in turn, and the best and the median of the rounds are compared.
"Linear in L": seconds per block at L = 64 over seconds per block at L = 16, next to the same of plain code.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creditscope import diagnose
from creditscope.credit import BP, DFA
from creditscope.models import ResMLP
from creditscope.training.build import build_stream

DEPTHS, WIDTH, INPUTS, CLASSES, BATCH, BATCHES = (4, 16, 64), 256, 3072, 10, 128, 8
MEMORY_BOUND, TIME_BOUND = 1.2, 1.5
Batches = list[tuple[Tensor, Tensor]]


def plain(model: nn.Module, batches: Batches) -> None:
    """What a training loop does before its optimiser steps."""
    for x, y in batches:
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
    model.zero_grad(set_to_none=True)


def peak_bytes(call: Callable[[], None], first: bool = True) -> int:
    """The largest sum of tensor bytes alive at once, beyond those alive at the start. first: call it once before."""
    if first:
        call()  # what is set up once is no part of it
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    changes = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]  # type: ignore[union-attr]
    alive = peak = 0
    for event in sorted(changes, key=lambda e: e.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return peak


def seconds(call: Callable[[], None]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def prepared(
    depth: int, how: str, credit: str, width: int = WIDTH, batches: int = BATCHES
) -> tuple[Batches, Callable[[Batches], None], Callable[[Batches], None]]:
    """(batches, plain forward + backward over batches, diagnose over them) of one network."""
    torch.manual_seed(0)
    model = ResMLP(INPUTS, CLASSES, width=width, depth=depth)
    data = [(torch.randn(BATCH, INPUTS), torch.randint(0, CLASSES, (BATCH,))) for _ in range(batches)]
    rule = {"none": None, "bp": BP(), "dfa": DFA()}[credit]
    if rule is not None:
        rule.setup(build_stream(model, data[0][0][:3]), CLASSES, torch.Generator().manual_seed(0))
    blocks = "blocks.*" if how == "hooks" else None

    def ours(batches: Batches) -> None:
        diagnose(model, batches, credit=rule, blocks=blocks)

    return data, partial(plain, model), ours


def measured(
    depth: int, how: str, credit: str, rounds: int, width: int = WIDTH, batches: int = BATCHES
) -> dict[str, Any]:
    data, passes, ours = prepared(depth, how, credit, width, batches)
    memory = [peak_bytes(lambda: passes(data[:1])), peak_bytes(lambda: ours(data[:1]))]
    pairs = [(seconds(lambda: passes(data)), seconds(lambda: ours(data))) for _ in range(rounds + 1)][1:]
    theirs, own = zip(*pairs, strict=True)
    return {
        "depth": depth,
        "stream": how,
        "credit": credit,
        "plain_bytes": memory[0],
        "memory_ratio": memory[1] / memory[0],
        "plain_seconds": min(theirs),
        "seconds": min(own),
        "time_ratio_best": min(own) / min(theirs),
        "time_ratio_median": statistics.median(own) / statistics.median(theirs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print(f"{'stream':<10} {'credit':<6} {'L':>3} {'memory':>8} {'time best':>10} {'median':>7}")
    for how in ("interface", "hooks"):
        for credit in ("none", "bp", "dfa"):
            for depth in DEPTHS:
                row = measured(depth, how, credit, options.rounds)
                rows.append(row)
                print(
                    f"{how:<10} {credit:<6} {depth:>3} {row['memory_ratio']:>8.3f} {row['time_ratio_best']:>10.3f} "
                    f"{row['time_ratio_median']:>7.3f}",
                    flush=True,
                )
            per_block = [[row[key] / row["depth"] for row in rows[-2:]] for key in ("seconds", "plain_seconds")]
            ours, theirs = (deep / shallow for shallow, deep in per_block)
            rows[-1] |= {"per_block_64_over_16": ours, "plain_per_block_64_over_16": theirs}
            print(f"{how:<10} {credit:<6} per block, L = 64 over L = 16: {ours:.2f} (plain {theirs:.2f})", flush=True)
    worst = {key: max(row[key] for row in rows) for key in ("memory_ratio", "time_ratio_best")}
    holds = worst["memory_ratio"] <= MEMORY_BOUND and worst["time_ratio_best"] <= TIME_BOUND
    print(
        f"worst: memory {worst['memory_ratio']:.3f} (bound {MEMORY_BOUND}), time {worst['time_ratio_best']:.3f} "
        f"(bound {TIME_BOUND}): {'holds' if holds else 'FAILS'}"
    )
    text = json.dumps({"torch": torch.__version__, "batch": BATCH, "width": WIDTH, "rows": rows}, indent=1)
    if options.json:
        options.json.write_text(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
