"""BioTorch's layers and ours on the same plain MLP: 9 linear layers, d=256, batch 128, the same optimiser.

Each as it is used: theirs with torch's fused AdamW, ours with our own (the same kernel); one row gives them ours. On a plain
stream our FA is a_l = B_l a_(l+1), without the derivative of the ReLU, which theirs applies (a pass over the state per layer).

BioTorch is no dependency: `pip install --no-deps --target DIR biotorch` and DIR on the PYTHONPATH; without it this part is
left out with a message.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.harness import Row, interleaved, ratio
from benchmarks.products import Product, back, products_alone, weights
from creditscope.credit.adamw import AdamW
from creditscope.credit.registry import make_rule
from creditscope.models.parts import FlatLinear, StreamModel
from creditscope.training.build import build_stream
from creditscope.training.objective import Objective

BATCH, INPUTS, WIDTH, LAYERS, CLASSES = 128, 3072, 256, 9, 10
BOUND = "products and AdamW alone"
SAME = "BioTorch, FA, with our optimiser"


class PlainMLP(StreamModel):
    """Linear, then ReLU + Linear as stages, then ReLU + head: 9 linear layers seen as a plain stream."""

    stream_kind = "plain"

    def __init__(self) -> None:
        super().__init__()
        self.embed = FlatLinear(INPUTS, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, WIDTH)) for _ in range(LAYERS - 2))
        self.out_ln = nn.ReLU()
        self.out_head = nn.Linear(WIDTH, CLASSES)


def same_network() -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(INPUTS, WIDTH)]
    for _ in range(LAYERS - 2):
        layers += [nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(WIDTH, CLASSES))


def theirs(mode: str, x: Tensor, y: Tensor, our_optimiser: bool = False) -> Callable[[], None]:
    from biotorch.module.biomodule import BioModule

    model = BioModule(copy.deepcopy(same_network()), mode=mode, output_dim=CLASSES).train()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    optimizer = (
        AdamW(trained, lr=1e-3, weight_decay=0.01)
        if our_optimiser
        else torch.optim.AdamW(trained.values(), lr=1e-3, weight_decay=0.01, fused=True)
    )

    def step() -> None:
        optimizer.zero_grad()
        out = model(x, targets=y, loss_function=F.cross_entropy) if mode == "dfa" else model(x)
        F.cross_entropy(out, y).backward()
        optimizer.step()

    return step


def ours(method: str, x: Tensor, y: Tensor) -> Callable[[], None]:
    model = PlainMLP().train()
    stream = build_stream(model, x[:3])
    rule = make_rule(method, {})
    rule.setup(stream, CLASSES, torch.Generator().manual_seed(0))
    norm, site = (None, None) if method == "bp" else ("none", "output")
    objective = Objective(stream, rule, norm, site, 0.0, 0)
    optimizer = AdamW(dict(model.named_parameters()), lr=1e-3, weight_decay=0.01)

    def step() -> None:
        optimizer.zero_grad()
        objective.backward(x, y)
        optimizer.step()

    return step


def bound() -> Callable[[], None]:
    """Nothing but the matrix products of an FA step and AdamW."""
    first, *rest = [(1, BATCH, INPUTS, WIDTH), *[(1, BATCH, WIDTH, WIDTH)] * (LAYERS - 2), (1, BATCH, WIDTH, CLASSES)]
    shapes: list[Product] = [first, *rest, weights(first), *map(weights, rest), *map(back, rest)]
    products = products_alone(shapes)
    params = dict(PlainMLP().named_parameters())
    for p in params.values():
        p.grad = torch.randn_like(p)
    optimizer = AdamW(params, lr=1e-3, weight_decay=0.01)

    def step() -> None:
        products()
        optimizer.step()

    return step


def run(rounds: int) -> list[Row]:
    if find_spec("biotorch") is None:
        print("peers: BioTorch is not there, its comparison is left out (see benchmarks/peers.py)")
        return []
    x, y = torch.randn(BATCH, INPUTS), torch.randint(0, CLASSES, (BATCH,))
    cases = {f"BioTorch, {m.upper()}": theirs(m, x, y) for m in ("fa", "dfa")}
    cases |= {f"ours, {m.upper()}": ours(m, x, y) for m in ("bp", "fa", "dfa")}
    cases[SAME] = theirs("fa", x, y, our_optimiser=True)
    cases[BOUND] = bound()
    times = interleaved(cases, 10 * rounds, repeat=2)
    group = "9-layer MLP d=256, against BioTorch"
    return [
        ratio(group, times, "ours, FA", "BioTorch, FA", 1.05, at_least=True),
        ratio(group, times, "ours, FA", SAME, at_least=True),
        ratio(group, times, BOUND, "BioTorch, FA", at_least=True),
        ratio(group, times, "ours, DFA", "BioTorch, DFA", 1.15, at_least=True),
        ratio(group, times, "BioTorch, FA", "ours, BP"),
        ratio(group, times, "BioTorch, DFA", "ours, BP"),
    ]
