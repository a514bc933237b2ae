"""BioTorch's layers in an MLP, trained by a plain loop, unmodified: python board/recipes/biotorch_layers.py [OUT] [PACKAGES]

PACKAGES is where BioTorch lies: pip install --no-deps --target PACKAGES biotorch==0.0.16 (it names a version of torch that is
gone; its models and data sets need torchvision and are not used here). The network is a plain chain on the embedded data set:
embedding, four hidden layers, head, all of BioTorch's Linear. Null: the same loop with the hidden layers frozen. Credit: what
their backward pass brings to each state, against the gradients of an ordinary twin. Some minutes on one core.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from common import ROOT, out_of, put
from torch import Tensor, nn

from creditscope import certify, credit_from_grads, diagnose
from creditscope.data import load_dataset
from creditscope.data.dataset import eval_batches, profile_batches

WIDTH, DEPTH, EPOCHS, BATCH, RATE = 64, 4, 8, 128, 2e-3
SEEDS = (0, 1, 2)
KINDS = {"fa": "FA", "dfa": "DFA", "usf": "sign symmetry uSF", "frsf": "sign symmetry frSF"}
BLOCKS = [f"blocks.{k}" for k in range(DEPTH)]


def layer(kind: str) -> Any:
    return import_module(f"biotorch.layers.{kind}").Linear


class Chain(nn.Module):
    """x -> Linear, GELU -> four times (Linear, GELU) -> Linear."""

    def __init__(self, kind: str, n_in: int, n_classes: int) -> None:
        super().__init__()

        def linear(a: int, b: int) -> nn.Module:
            if kind == "dfa":
                return layer(kind)(a, b, n_classes, True, {"type": "dfa"})
            return layer(kind)(a, b, True, {"type": kind})

        self.kind = kind
        self.embed = nn.Sequential(linear(n_in, WIDTH), nn.GELU())
        self.blocks = nn.ModuleList(nn.Sequential(linear(WIDTH, WIDTH), nn.GELU()) for _ in range(DEPTH))
        self.head = linear(WIDTH, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        logits = self.head(h)
        if (
            self.kind == "dfa" and logits.requires_grad
        ):  # its layers read the error here; BioTorch's own wrapper puts it there
            logits.register_hook(self.send)
        return logits

    def send(self, error: Tensor) -> None:
        for module in self.modules():
            if hasattr(module, "loss_gradient"):
                module.loss_gradient = error.detach()


def trained(kind: str, data: Any, seed: int, frozen: bool) -> Chain:
    torch.manual_seed(seed)
    model = Chain(kind, data.train_x.shape[1], data.n_classes)
    if frozen:
        model.blocks.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=RATE)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(data.train_y)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data.train_x[batch]), data.train_y[batch]).backward()
            optimizer.step()
    return model.eval()


def accuracy(model: nn.Module, data: Any) -> float:
    with torch.no_grad():
        return float((model(data.test_x).argmax(1) == data.test_y).double().mean())


def update(model: nn.Module, batch: Any) -> None:
    x, y = batch
    model.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()


def main(out: Path, packages: Path) -> None:
    sys.path.insert(0, str(packages))
    warnings.filterwarnings("ignore", message=".*backward hook.*")
    torch.set_num_threads(1)
    data = load_dataset("quadratic")
    for kind, name in KINDS.items():
        networks = [trained(kind, data, seed, frozen=False) for seed in SEEDS]
        found = [accuracy(m, data) for m in networks]
        nulls = [accuracy(trained(kind, data, seed, frozen=True), data) for seed in SEEDS]
        rule = credit_from_grads(
            networks[0], to_exact={layer(kind): lambda m: nn.Linear(m.in_features, m.out_features)}, blocks=BLOCKS
        )
        report = diagnose(
            rule.twin,
            eval_batches(data),
            headline_acc=found,
            network_acc=found[0],
            frozen_baseline_acc={"matched": nulls},
            n_test=len(data.test_y),
            credit=rule,
            blocks=BLOCKS,
            method_name=f"{name} (BioTorch 0.0.16)",
            notes=f"plain GELU network, width {WIDTH}, {DEPTH} hidden layers, {EPOCHS} epochs",
            **profile_batches(data),
        )
        report = report.with_certificate(certify(update, networks[0], (data.test_x[:16], data.test_y[:16]), BLOCKS))
        fields = {
            "method": f"{name}, BioTorch's layers",
            "paper": {
                "title": "Sanfiz and Akrout: Benchmarking the Accuracy and Robustness of Feedback Alignment Algorithms",
                "url": "https://arxiv.org/abs/2108.13446",
                "year": 2021,
            },
            "code": {
                "name": "BioTorch",
                "version": "0.0.16",
                "url": "https://github.com/jsalbert/biotorch",
                "licence": "Apache-2.0",
            },
            "architecture": f"plain GELU network d={WIDTH}, {DEPTH} hidden layers, {EPOCHS} epochs",
            "data": "embedded (quadratic)",
            "claimed": {
                "accuracy": sum(found) / len(found),
                "convention": f"mean over {len(SEEDS)} seeds, test set of 4,000; measured here, not published",
                "source": "the run itself: what accuracy alone would have said",
            },
            "note": "the paper's networks and data sets are others; what is audited here is its code on this network",
        }
        put(
            f"biotorch-{kind}",
            fields,
            [report],
            out,
            seeds=SEEDS,
            nulls={"matched": nulls},
            recipe="python board/recipes/biotorch_layers.py board/entries PACKAGES",
        )


if __name__ == "__main__":
    main(out_of(), Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / ".venv" / "peers")
