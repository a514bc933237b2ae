"""Audit a predictive-coding network of pcx: `make example-pcx`, or python run.py where pcx and creditscope are installed.

A residual network of four blocks is built with pcx, trained by its own loop (states relaxed by gradient descent on the energy,
then one step of the weights), and judged. Credit: what the weights of a layer learn from, the prediction error u - h that is left
when the states have settled. Null: the same loop with the blocks frozen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pcx as px
import pcx.functional as pxf
import pcx.nn as pxnn
import pcx.predictive_coding as pxc
import pcx.utils as pxu

from creditscope.data import load_dataset
from creditscope.integrations.jax import Blocks, diagnose

WIDTH, DEPTH, CLASSES = 64, 4, 10
BATCH, EPOCHS = 100, 5
STEPS, STEP_SIZE, LEARNING_RATE = 12, 0.1, 2e-3


class ResidualPC(pxc.EnergyModule):
    """h_0 = gelu(W x), h_{l+1} = h_l + gelu(W_l h_l), logits = V h_L; one vode for each state and one for the output."""

    def __init__(self, n_in: int) -> None:
        super().__init__()
        self.embed = pxnn.Linear(n_in, WIDTH)
        self.blocks = [pxnn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)]
        self.head = pxnn.Linear(WIDTH, CLASSES)
        self.vodes = [pxc.Vode() for _ in range(DEPTH + 1)] + [pxc.Vode(pxc.ce_energy)]
        self.vodes[-1].h.frozen = True

    def __call__(self, x: Any, y: Any) -> Any:
        h = self.vodes[0](jax.nn.gelu(self.embed(x)))
        for block, vode in zip(self.blocks, self.vodes[1:-1], strict=True):
            h = vode(h + jax.nn.gelu(block(h)))
        self.vodes[-1](self.head(h))
        if y is not None:
            self.vodes[-1].set("h", y)
        return self.vodes[-1].get("u")


# ---- the training loop of pcx: its tutorials' ----------------------------------------------------------------------


@pxf.vmap(pxu.M(pxc.VodeParam | pxc.VodeParam.Cache).to((None, 0)), in_axes=(0, 0), out_axes=0)
def forward(x: Any, y: Any, *, model: ResidualPC) -> Any:
    return model(x, y)


@pxf.vmap(pxu.M(pxc.VodeParam | pxc.VodeParam.Cache).to((None, 0)), in_axes=(0,), out_axes=(None, 0), axis_name="batch")
def energy(x: Any, *, model: ResidualPC) -> Any:
    logits = model(x, None)
    return jax.lax.psum(model.energy(), "batch"), logits


def settle(x: Any, y: Any, model: ResidualPC, optim_h: Any) -> None:
    """Put the states where the forward pass has them, clamp the output to y, and relax."""
    with pxu.step(model, pxc.STATUS.INIT, clear_params=pxc.VodeParam.Cache):
        forward(x, y, model=model)
    optim_h.init(pxu.M_hasnot(pxc.VodeParam, frozen=True)(model))
    for _ in range(STEPS):
        with pxu.step(model, clear_params=pxc.VodeParam.Cache):
            _, g = pxf.value_and_grad(pxu.M_hasnot(pxc.VodeParam, frozen=True).to([False, True]), has_aux=True)(energy)(
                x, model=model
            )
        optim_h.step(model, g["model"])
    optim_h.clear()


@pxf.jit()
def train_on_batch(x: Any, y: Any, *, model: ResidualPC, optim_w: Any, optim_h: Any) -> None:
    model.train()
    settle(x, y, model, optim_h)
    with pxu.step(model, clear_params=pxc.VodeParam.Cache):
        _, g = pxf.value_and_grad(pxu.M(pxnn.LayerParam).to([False, True]), has_aux=True)(energy)(x, model=model)
    optim_w.step(model, g["model"], scale_by=1 / x.shape[0])


@pxf.jit()
def predict(x: Any, *, model: ResidualPC) -> Any:
    model.eval()
    with pxu.step(model, pxc.STATUS.INIT, clear_params=pxc.VodeParam.Cache):
        return forward(x, None, model=model)


@pxf.jit()
def errors(x: Any, y: Any, *, model: ResidualPC, optim_h: Any) -> Any:
    """u - h of every hidden vode when the states have settled: what the weights below it learn from."""
    model.train()
    settle(x, y, model, optim_h)
    with pxu.step(model, clear_params=pxc.VodeParam.Cache):
        energy(x, model=model)
        return [vode.get("u") - vode.get("h") for vode in model.vodes[:-1]]


def trained(batches: list[tuple[Any, Any]], frozen: bool, seed: int) -> ResidualPC:
    px.RKG.seed(seed)
    model = ResidualPC(batches[0][0].shape[1])
    predict(batches[0][0], model=model)
    optim_h = pxu.Optim(lambda: optax.sgd(STEP_SIZE))
    for block in model.blocks if frozen else ():
        block.nn.weight.frozen = block.nn.bias.frozen = True
    optim_w = pxu.Optim(lambda: optax.adam(LEARNING_RATE), pxu.M_hasnot(pxnn.LayerParam, frozen=True)(model))
    for epoch in range(EPOCHS):
        for k in np.random.default_rng(epoch).permutation(len(batches)):
            x, y = batches[k]
            train_on_batch(x, jax.nn.one_hot(y, CLASSES), model=model, optim_w=optim_w, optim_h=optim_h)
    return model


# ---- what creditscope needs: the weights, and the network in three parts -------------------------------------------


def weights(model: ResidualPC) -> dict[str, Any]:
    layers = {"embed": model.embed, "head": model.head, **{f"block{k}": b for k, b in enumerate(model.blocks)}}
    return {name: (layer.nn.weight.get(), layer.nn.bias.get()) for name, layer in layers.items()}


def linear(w: dict[str, Any], name: str, h: Any) -> Any:
    return h @ w[name][0].T + w[name][1]


PARTS = Blocks(
    embed=lambda w, x: jax.nn.gelu(linear(w, "embed", x)),
    blocks=[lambda w, h, k=k: h + jax.nn.gelu(linear(w, f"block{k}", h)) for k in range(DEPTH)],
    readout=lambda w, h: linear(w, "head", h),
)


def accuracy(model: ResidualPC, batches: list[tuple[Any, Any]]) -> float:
    return float(np.mean([(np.asarray(predict(x, model=model)).argmax(1) == y).mean() for x, y in batches]))


def cut(x: Any, y: Any) -> list[tuple[Any, Any]]:
    x, y = (np.asarray(t) for t in (x, y))
    return [(x[k : k + BATCH], y[k : k + BATCH]) for k in range(0, len(x), BATCH)]


def main() -> None:
    data = load_dataset("quadratic")
    train, test = cut(data.train_x, data.train_y), cut(data.test_x, data.test_y)
    model, null = trained(train, frozen=False, seed=0), trained(train, frozen=True, seed=0)
    px.RKG.seed(1)
    fresh = weights(ResidualPC(test[0][0].shape[1]))
    optim_h = pxu.Optim(lambda: optax.sgd(STEP_SIZE))
    report = diagnose(
        PARTS,
        weights(model),
        test[:11],
        credit=lambda hiddens, logits, y, x: errors(x, jax.nn.one_hot(y, CLASSES), model=model, optim_h=optim_h),
        model=lambda w, x: predict(x, model=model),  # the parts are held against the network's own logits
        headline_acc=accuracy(model, test),
        network_acc=accuracy(model, test),
        frozen_baseline_acc={"matched": accuracy(null, test)},
        n_test=len(data.test_y),
        level="full",
        fit_batches=train,
        twin={name: fresh[name] if name.startswith("block") else w for name, w in weights(model).items()},
        method_name="predictive coding (pcx 0.6.3)",
        notes=f"residual GELU network, width {WIDTH}, {DEPTH} blocks, {STEPS} inference steps, {EPOCHS} epochs",
    )
    print(report)
    report.to_json(Path(__file__).with_name("report.json"))


if __name__ == "__main__":
    main()
