"""`diagnose` against one plain forward + backward over the same batches: time, memory, growth with L."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.bench_diagnose import BATCHES, CLASSES, INPUTS, WIDTH, Batches, measured, plain, prepared
from benchmarks.harness import Row, interleaved, ratio
from creditscope import diagnose
from creditscope.credit import DFA, FA
from creditscope.measure.perturbation import DIRECTIONS
from creditscope.models import ResMLP
from creditscope.training.build import build_stream

FULL = 12.0
SAMPLES, ROWS = 256, 2048
MOVED = "the moved passes of ρ alone"


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
        rows.append(exponent(group, credit, rounds))
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


def exponent(group: str, credit: str, rounds: int) -> Row:
    """How the time grows with L: both depths in turn, so that a slower minute of the machine meets both."""
    cases: dict[str, Callable[[], object]] = {}
    for depth in (16, 64):
        data, passes, ours = prepared(depth, "interface", credit)
        cases |= {f"plain {depth}": partial(passes, data), f"ours {depth}": partial(ours, data)}
    times = interleaved(cases, rounds)
    growth = {who: ratio(group, times, f"{who} 64", f"{who} 16") for who in ("plain", "ours")}
    best, median, theirs = (
        math.log(r, 4) for r in (growth["ours"].best, growth["ours"].median, growth["plain"].median)
    )
    return Row(group, "exponent of the time in L (16 to 64)", "linear", best, median, 1.05, note=f"plain {theirs:.2f}")


def full(rounds: int) -> list[Row]:
    """Level full is quadratic in L by definition: ρ moves the state of every layer and reads the loss behind all later blocks."""
    rows: list[Row] = []
    for depth, rules in ((4, (DFA(), FA())), (8, (DFA(),))):
        torch.manual_seed(0)
        model = ResMLP(INPUTS, CLASSES, width=WIDTH, depth=depth)
        data: Batches = [(torch.randn(128, INPUTS), torch.randint(0, CLASSES, (128,))) for _ in range(BATCHES)]
        cases: dict[str, Callable[[], object]] = {"forward + backward": partial(plain, model, data)}
        for rule in rules:
            rule.setup(build_stream(model, data[0][0][:3]), CLASSES, torch.Generator().manual_seed(0))
            cases[f"level full, {rule.name}"] = partial(diagnose, model, data, credit=rule, level="full")
        cases[MOVED] = partial(moved_passes, copy.deepcopy(model).double().eval())
        times = interleaved(cases, rounds)
        group, target = f"diagnose, level full, L={depth}", FULL if depth == 4 else None
        for name in (f"level full, {rule.name}" for rule in rules):
            rows.append(ratio(group, times, name, "forward + backward", target))
            rows.append(ratio(group, times, name, MOVED))
    return rows


@torch.no_grad()
def moved_passes(model: ResMLP) -> None:
    """What ρ cannot do without: from every layer on, 32 moved states of 256 samples through the blocks behind it, in float64."""
    for layer in range(len(model.blocks) + 1):
        for _ in range(SAMPLES * DIRECTIONS // ROWS):
            h = torch.randn(ROWS, WIDTH, dtype=torch.float64)
            for block in model.blocks[layer:]:
                h = h + block(h)
            model.readout(h)
