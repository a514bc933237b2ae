"""Audit a predictive-coding network of FabricPC: `make example-fabricpc`, or python run.py where both are installed.

A chain of four residual nodes is built with FabricPC, trained by its `train`, and judged. Credit: the prediction error
z_mu - z_latent that is left when inference has settled, which is what the weights of a node learn from. Nulls: the same
`train` with the blocks frozen, by predictive coding (matched) and by backpropagation (bp).
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from fabricpc import evaluate, initialize_params, train
from fabricpc.core.activations import GeluActivation, SoftmaxActivation
from fabricpc.core.energy import CrossEntropyEnergy
from fabricpc.core.inference import InferenceSGD, run_inference
from fabricpc.core.topology import Edge
from fabricpc.graph_assembly import TaskMap, graph
from fabricpc.graph_initialization import initialize_graph_state
from fabricpc.nodes import Linear, LinearResidual
from fabricpc.training.trainer import build_clamps

from creditscope.data import load_dataset
from creditscope.integrations.jax import Blocks, diagnose

WIDTH, DEPTH, CLASSES, N_IN = 64, 4, 10, 48
BATCH, EPOCHS = 100, 5
STEPS, STEP_SIZE, LEARNING_RATE = 20, 0.1, 2e-3
HIDDEN = ["stem", *(f"block{k}" for k in range(DEPTH))]
KEY = jax.random.PRNGKey(0)


def network() -> Any:
    """x -> stem -> four residual blocks -> class."""
    nodes = [Linear(shape=(N_IN,), name="x"), Linear(shape=(WIDTH,), activation=GeluActivation(), name="stem")]
    edges = [Edge(source=nodes[0], target=nodes[1].slot("in"))]
    for k in range(DEPTH):
        nodes.append(LinearResidual(shape=(WIDTH,), activation=GeluActivation(), name=f"block{k}"))
        edges += [Edge(source=nodes[-2], target=nodes[-1].slot(slot)) for slot in ("in", "skip")]
    nodes.append(Linear(shape=(CLASSES,), activation=SoftmaxActivation(), energy=CrossEntropyEnergy(), name="class"))
    edges.append(Edge(source=nodes[-2], target=nodes[-1].slot("in")))
    return graph(
        nodes=nodes,
        edges=edges,
        task_map=TaskMap(x=nodes[0], y=nodes[-1]),
        inference=InferenceSGD(eta_infer=STEP_SIZE, infer_steps=STEPS),
    )


GRAPH = network()


def trained(batches: list[Any], frozen: bool, algorithm: str = "pc") -> Any:
    """By FabricPC's own `train`; a frozen block has an optimiser that does not move it."""
    params = initialize_params(GRAPH, KEY)
    still = {name: "still" if frozen and name.startswith("block") else "moves" for name in params.nodes}
    labels = type(params)(
        nodes={n: jax.tree_util.tree_map(lambda _, n=n: still[n], p) for n, p in params.nodes.items()}
    )
    optimizer = optax.multi_transform({"moves": optax.adam(LEARNING_RATE), "still": optax.set_to_zero()}, labels)
    result = train(params, GRAPH, batches, optimizer, {"num_epochs": EPOCHS}, KEY, algorithm=algorithm, verbose=False)
    return result.params


def accuracy(params: Any, batches: list[Any], algorithm: str = "pc") -> float:
    return evaluate(params, GRAPH, batches, {"num_epochs": EPOCHS}, KEY, algorithm=algorithm)["accuracy"]


# ---- what creditscope needs: the network in three parts, and the credit --------------------------------------------


def step(params: Any, name: str, h: Any) -> Any:
    """The prediction of one node from the state below it, by FabricPC's own code."""
    info = GRAPH.nodes[name].node_info
    inputs = dict.fromkeys(info.in_edges, h)
    return info.node_class.predict(params.nodes[name], inputs, SimpleNamespace(z_latent=h), info)[0]


PARTS = Blocks(
    embed=lambda params, x: step(params, "stem", x),
    blocks=[lambda params, h, k=k: step(params, f"block{k}", h) for k in range(DEPTH)],
    readout=lambda params, h: jnp.log(step(params, "class", h)),  # the node gives probabilities
)


@jax.jit
def settled(params: Any, x: Any, y: Any) -> list[Any]:
    """z_mu - z_latent of every hidden node after inference with the label clamped."""
    clamps = build_clamps({"x": x, "y": y}, GRAPH, clamp_target=True)
    state = initialize_graph_state(GRAPH, len(x), KEY, clamps=clamps, params=params)
    state = run_inference(params, state, clamps, GRAPH)
    return [state.nodes[name].z_mu - state.nodes[name].z_latent for name in HIDDEN]


@jax.jit
def own_logits(params: Any, x: Any) -> Any:
    clamps = build_clamps({"x": x}, GRAPH, clamp_target=False)
    return jnp.log(initialize_graph_state(GRAPH, len(x), KEY, clamps=clamps, params=params).nodes["class"].z_mu)


def cut(x: Any, y: Any) -> list[tuple[Any, Any]]:
    x, y = (np.asarray(t) for t in (x, y))
    return [(x[k : k + BATCH], y[k : k + BATCH]) for k in range(0, len(x), BATCH)]


def with_targets(batches: list[tuple[Any, Any]]) -> list[dict[str, Any]]:
    return [{"x": jnp.asarray(x), "y": jax.nn.one_hot(y, CLASSES)} for x, y in batches]


def main() -> None:
    data = load_dataset("quadratic")
    fit, test = cut(data.train_x, data.train_y), cut(data.test_x, data.test_y)
    batches, held_out = with_targets(fit), with_targets(test)
    params, null = trained(batches, frozen=False), trained(batches, frozen=True)
    bp, bp_null = (trained(batches, frozen, "backprop") for frozen in (False, True))
    fresh = initialize_params(GRAPH, jax.random.PRNGKey(1))
    twin = type(params)(nodes={n: fresh.nodes[n] if n.startswith("block") else p for n, p in params.nodes.items()})
    report = diagnose(
        PARTS,
        params,
        test[:11],
        credit=lambda hiddens, logits, y, x: settled(params, x, jax.nn.one_hot(y, CLASSES)),
        model=own_logits,  # the parts are held against the network's own logits
        headline_acc=accuracy(params, held_out),
        network_acc=accuracy(params, held_out),
        frozen_baseline_acc={"matched": accuracy(null, held_out), "bp": accuracy(bp_null, held_out, "backprop")},
        bp_acc=accuracy(bp, held_out, "backprop"),
        n_test=len(data.test_y),
        level="full",
        fit_batches=fit,
        twin=twin,
        method_name="predictive coding (FabricPC 0.6.0)",
        notes=f"residual GELU network, width {WIDTH}, {DEPTH} blocks, {STEPS} inference steps, {EPOCHS} epochs",
    )
    print(report)
    report.to_json(Path(__file__).with_name("report.json"))


if __name__ == "__main__":
    main()
