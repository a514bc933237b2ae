"""PF01: x.norm(-1) is the L_{-1} norm of the whole tensor, not the norm over the last axis."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from creditscope.pitfalls.base import Answer, Facts, Numbers, Spot, Tensor, clear, from_facts, unknown
from creditscope.pitfalls.source import NORMS, Scope, Source, argument, keyword, last_name, looped, number, stars, words


def reproduce() -> Numbers:
    import torch

    h = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))
    wrong = float(h.norm(-1))  # creditscope: ignore[PF01]
    right = float(h.norm(dim=-1).mean())
    return {"wrong": wrong, "right": right}


def tensors(x: Tensor, reported: float) -> str | None:
    """Whether a reported size of x is the L_{-1} norm of the whole tensor instead of the mean norm over the last axis."""
    import math

    wrong = float(x.double().norm(p=-1))
    right = float(x.double().norm(dim=-1).mean())
    if not math.isclose(reported, wrong, rel_tol=1e-3) or math.isclose(reported, right, rel_tol=1e-3):
        return None
    return f"{reported:.3g} is the L_-1 norm of the whole tensor; the mean L2 norm over the last axis is {right:.3g}"


STATES = {"hs", "hiddens", "states", "activations", "credits"}
"""Words of a name that stands for a list of tensors, one per layer: a row of one tensor `hidden` is one sample."""


def _each_state(source: Source, scope: Scope) -> set[str]:
    """Names of this scope that run over a list of hidden states or credit; the values of a dictionary may be weights."""
    return {
        target.id
        for node in source.within[scope]
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)
        for target, over in looped(node.target, node.iter)
        if isinstance(target, ast.Name) and _list_of_states(over)
    }


def _list_of_states(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return _list_of_states(node.value)
    return isinstance(node, ast.Name | ast.Attribute) and bool(words(last_name(node)) & STATES)


def code(source: Source) -> Iterator[Spot]:
    """A negative whole number in the place of p, and no dim; or neither, for each of several states: `[h.norm() for h in hs]`."""
    for scope in source.scopes:
        each = _each_state(source, scope)
        for call in source.calls_in[scope]:
            yield from _norm(source, call, each)


def _norm(source: Source, call: ast.Call, each: set[str]) -> Iterator[Spot]:
    name = source.dotted(call.func)
    if stars(call):
        return
    if name in NORMS:
        p, dim, of = argument(call, 1), argument(call, 2, "dim", "axis"), argument(call, 0, "input", "x", "A")
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "norm":
        p, dim, of = argument(call, 0), argument(call, 1, "dim", "axis"), call.func.value
    else:
        return
    value = number(p)
    if isinstance(value, int) and value < 0 and dim is None and keyword(call, "p") is None:
        yield source.spot(call, f"{value} is p here: this is one L_{value} norm of the whole tensor")
    elif isinstance(of, ast.Name) and of.id in each and p is None and dim is None and not keyword(call, "p"):
        yield source.spot(call, f"one norm of the whole tensor {of.id}, not one per sample")


@from_facts
def audit(facts: Facts) -> Answer:
    if any(mean != median for mean, median in zip(facts.scale.mean, facts.scale.median, strict=True)):
        return clear(
            "‖h_l‖ is taken per sample over all its features; mean and median over samples differ, which they could not if one "
            "norm of a whole tensor stood for every sample"
        )
    return unknown(
        "mean and median ‖h_l‖ over samples are equal at every layer: one norm of a whole tensor in place of every sample's "
        "would look the same"
    )
