"""PF03: the reference gradient underflows in float16 (bfloat16 keeps it)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from creditscope.pitfalls.base import Answer, Facts, Numbers, Spot, Tensor, clear, found, from_facts
from creditscope.pitfalls.source import (
    AUTOGRAD,
    COSINES,
    Scope,
    Source,
    argument,
    is_literal,
    keyword,
    last_name,
    method,
    words,
)

HALF = {"torch.float16", "torch.half"}
AUTOCASTS = {"torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast_mode.autocast"}


def reproduce() -> Numbers:
    import torch

    from creditscope.pitfalls.tiny import generator

    # a stream whose states have grown: behind a terminal LayerNorm the gradient falls as 1/‖h‖, and as 1/B
    rng = generator(3)
    h = (torch.randn(128, 64, generator=rng) * 2e6).requires_grad_()
    head = torch.randn(64, 10, generator=rng) / 8
    y = torch.randint(10, (128,), generator=rng)
    loss = torch.nn.functional.cross_entropy(torch.nn.functional.layer_norm(h, (64,)) @ head, y)
    (g,) = torch.autograd.grad(loss, h)
    right = float(g.norm(dim=1).mean())
    wrong = float(g.half().float().norm(dim=1).mean())  # creditscope: ignore[PF03]
    bf16 = float(g.bfloat16().float().norm(dim=1).mean())
    return {"wrong": wrong, "right": right, "bf16": bf16}


def tensors(g: Tensor) -> str | None:
    """Whether a gradient loses entries, or most of its size, in float16; or was taken there."""
    import torch

    g = g.detach()
    zeros = float((g == 0).double().mean())
    if g.dtype == torch.float16:
        finding = f"the gradient was taken in float16 and {zeros:.0%} of its entries are zero; take it in float32"
        return finding if zeros > 0 else None
    before = g.double()
    lost = float(((before.half() == 0) & (before != 0)).double().mean())  # creditscope: ignore[PF03]
    return f"{lost:.0%} of the entries would be zero in float16; keep float32 or bfloat16" if lost > 0.01 else None


def code(source: Source) -> Iterator[Spot]:
    for scope in source.scopes:
        measures = [c for c in source.calls_in[scope] if _measures(source, c, scope)]
        losses: set[str] = set()
        for node in source.within[scope]:
            if isinstance(node, ast.With | ast.AsyncWith) and (cast := _half_autocast(source, node)):
                inside = {id(n) for statement in node.body for n in ast.walk(statement)}
                if at := next((c.lineno for c in measures if id(c) in inside), None):
                    yield source.spot(cast, f"float16 autocast around the gradient measurement in line {at}")
                else:
                    losses |= _assigned(node.body)
        for call in source.calls_in[scope]:
            of = call.args[0] if call.args else None
            if source.is_call(call, AUTOGRAD) and isinstance(of, ast.Name) and of.id in losses:
                yield source.spot(call, f"{of.id} was computed under float16 autocast: so is its gradient")
            owner = method(call)[1]
            if owner is not None and _casts_to_half(source, call):
                if source.is_gradient(owner, scope):
                    yield source.spot(call, "a gradient is cast to float16")
                elif measures and _is_network(owner, scope, source):
                    yield source.spot(call, f"{last_name(owner)} is in float16 where gradients are measured")


def _half_autocast(source: Source, node: ast.With | ast.AsyncWith) -> ast.Call | None:
    for item in node.items:
        call = item.context_expr
        if not isinstance(call, ast.Call) or not source.is_call(call, AUTOCASTS):
            continue
        if is_literal(keyword(call, "enabled"), False):
            continue
        cuda = "cuda" in source.dotted(call.func)
        device = None if cuda else argument(call, 0, "device_type")
        dtype = argument(call, 1, "dtype") if not cuda else keyword(call, "dtype")
        if dtype is not None:
            if source.dotted(dtype) in HALF:
                return call
        elif cuda or (isinstance(device, ast.Constant) and str(device.value).startswith("cuda")):
            return call  # the default of a cuda autocast is float16
    return None


def _measures(source: Source, call: ast.Call, scope: Scope) -> bool:
    """Takes a gradient to look at it: autograd.grad, or the size or cosine of a gradient. Training calls .backward()."""
    if source.is_call(call, AUTOGRAD):
        return "scaler" not in words(ast.unparse(call.args[0])) if call.args else True
    if source.is_call(call, COSINES):
        return any(source.is_gradient(a, scope) for a in call.args[:2])
    if source.is_norm(call):
        of = source.measured_by_norm(call)
        return of is not None and source.is_gradient(of, scope)
    return False


def _assigned(body: list[ast.stmt]) -> set[str]:
    return {
        target.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and "loss" in words(target.id)
    }


def _casts_to_half(source: Source, call: ast.Call) -> bool:
    given = [*call.args, *(k.value for k in call.keywords)]
    name, _ = method(call)
    return (name == "half" and not given) or (name in ("to", "type") and any(source.dotted(v) in HALF for v in given))


def _is_network(node: ast.expr, scope: Scope, source: Source) -> bool:
    """A name that is also called, or asked for its parameters, in the same scope."""
    name = last_name(node)
    if not name or isinstance(node, ast.Call | ast.Subscript):
        return False
    for call in source.calls_in[scope]:
        asked, owner = method(call)
        if isinstance(call.func, ast.Name | ast.Attribute) and last_name(call.func) == name and call.args:
            return True
        if asked in ("parameters", "named_parameters") and owner is not None and last_name(owner) == name:
            return True
    return False


@from_facts
def audit(facts: Facts) -> Answer:
    dtype = facts.convention.dtype
    zero = max(facts.reference.zero_samples, default=0)
    if dtype == "float16":
        return found(f"the reference was taken in float16; {zero} samples have an exactly zero gradient at some layer")
    return clear(f"the reference was taken in {dtype}, whose range holds gradients far under the floor")
