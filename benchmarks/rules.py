"""The training step of every rule: against plain backpropagation, and against the matrix products it cannot do without.

ResMLP d=256 L=4, batch 128, all settings at their defaults. A bound counts products only: norms, activations, draws and the
optimiser are what stands between it and the step.
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.harness import Row, interleaved, ratio
from benchmarks.products import BATCH, CLASSES, INPUTS, Product, back, products, products_alone, weights
from benchmarks.steps import our_step, plain_step, random_cifar
from creditscope.credit.registry import all_rules, make_rule
from creditscope.training.spec import RunSpec, make_spec

D, L = 256, 4
SQUARE: Product = (1, BATCH, D, D)
HEAD: Product = (1, BATCH, D, CLASSES)
EMBED: Product = (1, BATCH, INPUTS, D)
FEEDBACK: Product = (1, BATCH, CLASSES, D)


def bound(name: str, spec: RunSpec) -> list[Product] | None:
    """The products of one step; None where it is not counted (the bridges' networks, random draws)."""
    bp, dfa = (products(make_spec({"dataset": "cifar10", **m})) for m in BASES)
    o: Any = make_rule(name).options
    blocks = [SQUARE] * (2 * L)
    through = [*blocks, *map(back, blocks), HEAD, back(HEAD)]  # one gradient of an energy: forward and back
    local = [p for p in dfa if p != FEEDBACK]
    learned = [*blocks, *map(weights, blocks), *[SQUARE] * L]  # the blocks once more, at other states
    passes = {
        "dfa": dfa, "sdfa": dfa, "drtp": dfa, "sparse-dfa": dfa, "fa": products(spec) if name == "fa" else [],
        **dict.fromkeys(("bp", "fa-weights", "usf", "brsf", "frsf", "kp"), bp),
        "greedy": [*local, *[HEAD, weights(HEAD), back(HEAD)] * L],
        "dfa-sublayers": [EMBED, *blocks, HEAD, weights(EMBED), weights(HEAD), *map(weights, blocks), *[FEEDBACK] * (3 * L + 1)],
        "pepita": [EMBED, *blocks, (1, BATCH, CLASSES, INPUTS), *local],
    }  # fmt: skip
    if name in passes:
        return passes[name]
    if name == "wm":
        phase: Product = (1, o.samples, D, D)
        return [*bp, *[phase, weights(phase)] * (2 * L)]
    if name in ("pc", "ep"):
        return [EMBED, *blocks, HEAD, weights(EMBED), weights(HEAD), *through * o.steps, *learned]
    if name == "epc":
        return [EMBED, *blocks, HEAD, weights(EMBED), weights(HEAD), *through * (o.steps + 1), *learned]
    if name == "dtp":
        inverse: Product = (1, BATCH, D, o.width)
        trained = [inverse, inverse, weights(inverse), weights(inverse), back(inverse)]
        return [*local, *blocks, *trained * L, *[inverse] * (4 * L)]
    above = L * (L + 1)  # products above each of the layers 0..L-1
    if name == "fgrad":
        return [*local, *[SQUARE, SQUARE] * above, *[HEAD, HEAD] * (L + 1)]
    if name == "nodepert":
        return [*local, *[SQUARE] * above, *[HEAD] * (L + 1)]
    if name == "ff":
        double = [(b, 2 * m, k, n) for b, m, k, n in (EMBED, *blocks)]
        inner = [(1, 2 * BATCH, D, D)] * L
        return [EMBED, *blocks, HEAD, weights(HEAD), *double, *map(weights, double), *inner]
    return None


BASES: tuple[dict[str, Any], ...] = ({"method": "bp"}, {"method": "dfa", "credit_norm": "none"})


def run(rounds: int) -> list[Row]:
    data, x, y = random_cifar(), torch.randn(BATCH, 3, 32, 32), torch.randint(0, CLASSES, (BATCH,))
    group, plain = "ResMLP d=256 L=4, every rule", "plain BP"
    rows: list[Row] = []
    base = make_spec({"dataset": "cifar10"})
    for name, rule in all_rules().items():
        spec = make_spec({"dataset": "cifar10", "method": name, **({"credit_norm": "none"} if rule.uses_norm else {})})
        case, cases = f"ours, {name}", {plain: plain_step(base, x, y)}
        cases[case] = our_step(spec, data, x, y)
        shapes = bound(name, spec)
        if shapes is not None:
            cases["its products alone"] = products_alone(shapes)
        times = interleaved(cases, max(3, rounds), repeat=2)
        rows.append(ratio(group, times, case, plain))
        if shapes is not None:
            rows.append(ratio(group, times, case, "its products alone"))
    return rows
