"""`diagnose` against one plain forward + backward over the same batches: time, memory, growth with L."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.bench_diagnose import BATCHES, CLASSES, INPUTS, WIDTH, Batches, measured, plain
from benchmarks.harness import Row, interleaved, ratio
from creditscope import diagnose
from creditscope.credit import DFA, FA
from creditscope.models import ResMLP
from creditscope.training.build import build_stream

FULL = 12.0


def run(rounds: int) -> list[Row]:
    rows: list[Row] = []
    for credit in ("none", "dfa"):
        found = [measured(depth, "interface", credit, rounds) for depth in (4, 16, 64)]
        group = f"diagnose, level basic, credit {credit}"
        for f in found:
            name = f"L={f['depth']}"
            rows.append(
                Row(group, f"time, {name}", "forward + backward", f["time_ratio_best"], f["time_ratio_median"], 1.5)
            )
            rows.append(
                Row(group, f"peak memory, {name}", "forward + backward", f["memory_ratio"], f["memory_ratio"], 1.2)
            )
        slope = math.log(found[2]["seconds"] / found[1]["seconds"]) / math.log(4)
        theirs = math.log(found[2]["plain_seconds"] / found[1]["plain_seconds"]) / math.log(4)
        rows.append(
            Row(group, "exponent of the time in L (16 to 64)", "linear", slope, slope, 1.05, note=f"plain {theirs:.2f}")
        )
    group = "diagnose, level basic, credit dfa, L=4"
    for name, changed in (
        ("d=64", {"width": 64}),
        ("d=1024", {"width": 1024}),
        ("2 batches", {"batches": 2}),
        ("32 batches", {"batches": 32}),
    ):
        f = measured(4, "interface", "dfa", rounds, **changed)
        rows.append(
            Row(group, f"time, {name}", "forward + backward", f["time_ratio_best"], f["time_ratio_median"], None)
        )
    return rows + full(rounds)


def full(rounds: int) -> list[Row]:
    torch.manual_seed(0)
    model = ResMLP(INPUTS, CLASSES, width=WIDTH, depth=4)
    data: Batches = [(torch.randn(128, INPUTS), torch.randint(0, CLASSES, (128,))) for _ in range(BATCHES)]
    cases: dict[str, Callable[[], object]] = {"forward + backward": lambda: plain(model, data)}
    for rule in (DFA(), FA()):
        rule.setup(build_stream(model, data[0][0][:3]), CLASSES, torch.Generator().manual_seed(0))
        cases[f"level full, {rule.name}"] = partial(diagnose, model, data, credit=rule, level="full")
    times = interleaved(cases, rounds)
    group = "diagnose, level full, L=4"
    return [ratio(group, times, name, "forward + backward", FULL) for name in cases if name != "forward + backward"]
