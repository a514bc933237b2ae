"""Questions to autograd's graph: which tensor depends on which, and by which kind of path. Values play no part in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from creditscope.stream.blocks import Path, tensors_in

LINEAR_MAPS = ("addmm", "mm", "bmm", "convolution", "linear", "attention", "embedding", "einsum", "matmul", "mv")
"""Autograd nodes that mix features: a skip connection passes none of them."""
NORMS = ("layernorm", "layer_norm", "batchnorm", "batch_norm", "groupnorm", "group_norm", "rmsnorm", "rms_norm", "div")
"""A state that has passed one is another state."""
REDUCTIONS = (
    "norm",
    "linalgvectornorm",
    "sum",
    "mean",
    "max",
    "min",
    "amax",
    "amin",
    "prod",
    "logsumexp",
    "std",
    "var",
)
"""A state that has passed one is no longer a state."""
ADDITIONS = ("add", "sub", "rsub", "addcmul", "addcdiv", "lerp")
"""Autograd nodes that join a branch to the stream."""
ADDED_INTO = ("indexadd", "scatteradd")
"""Autograd nodes that add to a part of their first input: a join where that comes from the network, not where it is zeros."""
ADDED_TO = ("addmm", "addmv", "addr", "addbmm", "baddbmm")
"""Autograd nodes that add a product to their first input; what is multiplied is mixed."""

NO_JOINS: Mapping[Any, bool] = {}

Edge = tuple[Any, int]
"""(node, number of its output): a tensor as the graph knows it."""


def edge_of(t: Tensor) -> Edge:
    """The place of a tensor in the graph, as it is now (a write in place gives it another one)."""
    edge = get_gradient_edge(t)
    return edge.node, edge.output_nr


def edges_in(tree: Any) -> dict[Path, Edge]:
    """The places of all tensors of a tree that have one (a view made inside somebody's autograd function has none yet)."""
    return {
        path: edge_of(t)
        for path, t in tensors_in(tree)
        if t.requires_grad and (t.grad_fn is not None or not t._is_view())
    }


def reaches(start: Edge, targets: Iterable[Edge], avoid: Iterable[Edge] = ()) -> bool:
    """Does a path lead back from `start` to one of `targets` that passes none of `avoid`?"""
    wanted, closed = set(targets), set(avoid)
    stack, seen = [start], {start}
    while stack:
        edge = stack.pop()
        if edge in closed:
            continue
        if edge in wanted:
            return True
        for parent, k in edge[0].next_functions:
            if parent is not None and (parent, k) not in seen:
                seen.add((parent, k))
                stack.append((parent, k))
    return False


def has_skip(out: Edge, state: Edge, joins: Mapping[Any, bool] = NO_JOINS) -> bool:
    """Does a path lead from `out` back to `state` that passes an addition and no map that mixes features?

    joins: nodes that write to a part of a tensor and keep what was there: do they add to it?
    """
    return _unmixed(out, state, (), added=False, joins=joins)


def is_carried(out: Edge, state: Edge, avoid: Iterable[Edge], changed: bool = False) -> bool:
    """Does a path lead from `out` back to `state` that passes no map that mixes features and none of `avoid`?

    changed: norms and divisions are let pass, after which the state is another one.
    """
    return _unmixed(out, state, avoid, added=True, blocking=LINEAR_MAPS if changed else (*LINEAR_MAPS, *NORMS))


def _unmixed(
    out: Edge,
    state: Edge,
    avoid: Iterable[Edge],
    added: bool,
    blocking: tuple[str, ...] = LINEAR_MAPS,
    joins: Mapping[Any, bool] = NO_JOINS,
) -> bool:
    closed = set(avoid)
    stack, seen = [(out, added, False)], {(out, added, False)}
    while stack:
        edge, added, held = stack.pop()  # held: the path goes on in the tensor to a part of which something was added
        if edge == state:
            if added:
                return True
            continue
        name = edge[0].name().lower().rstrip("0123456789").removesuffix("backward")
        product = name in ADDED_TO
        if edge in closed or name in REDUCTIONS or (not product and any(word in name for word in blocking)):
            continue
        into = (name in ADDED_INTO or joins.get(edge[0], False)) and edge[0].next_functions[0][0] is not None
        joined = added or product or name in ADDITIONS or into
        written = name.endswith("copyslices")
        if written and held and edge[0] not in joins:
            continue  # what was written over it may be all of it
        for i, (parent, k) in enumerate(edge[0].next_functions[: 1 if product or (written and held) else None]):
            if i == 0 and name.endswith("copybackwards") and len(edge[0].next_functions) > 1:
                continue  # the old value of a tensor that is written over
            item = ((parent, k), joined, held or (i == 0 and edge[0] in joins))
            if parent is not None and item not in seen:
                seen.add(item)
                stack.append(item)
    return False
