"""The training step: ours against the plainest correct loop, and against its matrix products timed alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness import Row, interleaved, ratio
from benchmarks.products import BATCH, products, products_alone
from creditscope.data.dataset import Dataset
from creditscope.training.build import build_model
from creditscope.training.loop import _Run
from creditscope.training.spec import RunSpec, make_spec

SHAPES: dict[str, dict[str, Any]] = {
    "ResMLP d=256 L=4": {"width": 256},
    "ResMLP d=512 L=4": {"width": 512},
    "ViT-Mini": {"arch": "vit-mini"},
}
RULES: dict[str, dict[str, Any]] = {
    "ours, BP": {"method": "bp"},
    "ours, FA none": {"method": "fa", "credit_norm": "none"},
    "ours, FA rms": {"method": "fa", "credit_norm": "rms"},
    "ours, DFA none": {"method": "dfa", "credit_norm": "none"},
    "ours, DFA rms": {"method": "dfa", "credit_norm": "rms"},
    "ours, frozen(dfa)": {"method": "dfa", "credit_norm": "none", "train_last": 0},
    "ours, frozen(bp)": {"method": "bp", "train_last": 0},
}
TARGETS = {
    "ours, BP": 1.05,
    "ours, FA none": 1.05,
    "ours, FA rms": 1.05,
    "ours, DFA none": 1.03,
    "ours, DFA rms": 1.03,
    "ours, frozen(dfa)": 0.75,
    "ours, frozen(bp)": 0.90,
}
PRODUCTS = {
    rule: f"its products alone ({rule.removeprefix('ours, ')})"
    for rule in ("ours, BP", "ours, FA none", "ours, DFA none", "ours, frozen(dfa)", "ours, frozen(bp)")
}
GEMM_TARGETS = {"ResMLP d=256 L=4": 1.6, "ResMLP d=512 L=4": 1.35}


def random_cifar(n: int = 2048) -> Dataset:
    """Data of CIFAR-10's shape; what is in them does not matter for a step."""
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=g)
    y = torch.randint(0, 10, (n,), generator=g)
    return Dataset("cifar10", x, y, x, y, 10, (3, 32, 32), True, (0.49, 0.48, 0.45), (0.25, 0.24, 0.26))


def our_step(spec: RunSpec, data: Dataset, x: Tensor, y: Tensor) -> Callable[[], None]:
    run = _Run(spec, data, Path())
    run.model.train()

    def step() -> None:
        run._set_lr(1, 391)
        run.optimizer.zero_grad()
        run.objective.backward(x, y)
        run.optimizer.step()
        run.rule.after_step(run.stream, run.optimizer)

    return step


def plain_step(spec: RunSpec, x: Tensor, y: Tensor) -> Callable[[], None]:
    """The plainest correct loop: model, cross-entropy, backward, fused AdamW."""
    model = build_model(spec, (3, 32, 32), 10).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def run(rounds: int) -> list[Row]:
    rows: list[Row] = []
    data = random_cifar()
    for name, shape in SHAPES.items():
        x = torch.randn(BATCH, 3, 32, 32)
        y = torch.randint(0, 10, (BATCH,))
        base = make_spec({"dataset": "cifar10", **shape})
        cases = {"plain loop": plain_step(base, x, y)}
        cases |= {
            rule: our_step(make_spec({"dataset": "cifar10", **shape, **s}), data, x, y) for rule, s in RULES.items()
        }
        for rule, alone in PRODUCTS.items():
            of = make_spec({"dataset": "cifar10", **shape, **RULES[rule]})
            cases[alone] = products_alone(products(of))
        long = base.arch == "vit-mini"  # half a second for a step
        times = interleaved(cases, (2 if long else 10) * rounds, repeat=1 if long else 2)
        rows += [ratio(name, times, rule, "plain loop", TARGETS[rule]) for rule in RULES]
        for rule, alone in PRODUCTS.items():
            target = GEMM_TARGETS.get(name) if rule == "ours, BP" else None
            rows.append(ratio(name, times, rule, alone, target))
    return rows


def run_bf16(rounds: int) -> list[Row]:
    """bf16 against fp32, the step and one matrix product alone (the bound: no step can gain more than its products)."""
    data, x, y = random_cifar(), torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    cases: dict[str, Callable[[], object]] = {}
    for precision in ("fp32", "bf16"):
        spec = make_spec({"dataset": "cifar10", "width": 512, "precision": precision})
        cases[f"step d=512, {precision}"] = our_step(spec, data, x, y)
    for dtype, precision in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
        a, b = torch.randn(BATCH, 512).to(dtype), torch.randn(512, 512).to(dtype)
        cases[f"product 128x512x512, {precision}"] = lambda a=a, b=b: a @ b  # type: ignore[misc]
    times = interleaved(cases, max(2, rounds // 3))
    return [
        ratio("bf16 on this machine", times, "step d=512, bf16", "step d=512, fp32", 1.3, at_least=True),
        ratio(
            "bf16 on this machine", times, "product 128x512x512, bf16", "product 128x512x512, fp32", None, at_least=True
        ),
    ]
