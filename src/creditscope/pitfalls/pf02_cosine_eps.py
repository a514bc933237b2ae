"""PF02: the eps of a library cosine replaces the size of a small gradient, so the cosine shrinks with it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from creditscope.pitfalls.base import (
    NO_COSINE,
    Answer,
    Facts,
    Numbers,
    Spot,
    Tensor,
    clear,
    found,
    from_facts,
    times,
    unknown,
)
from creditscope.pitfalls.source import COSINES, Source, argument, last_name, number, stars

EPS = 1e-8
"""Default eps of F.cosine_similarity and nn.CosineSimilarity."""
MODULES = {"torch.nn.CosineSimilarity"}


def reproduce() -> Numbers:
    import torch.nn.functional as F

    from creditscope.pitfalls.tiny import cosine, generator, randn, with_cosine

    rng = generator(2)
    g = randn(128, 64, rng=rng)
    a = with_cosine(g, 0.5, rng)
    g = g / g.square().sum(1, keepdim=True).sqrt() * 1e-10
    wrong = float(F.cosine_similarity(a, g, dim=1).mean())  # creditscope: ignore[PF02]
    right = float(cosine(a, g).mean())
    return {"wrong": wrong, "right": right, "clamped": g[0].norm().item()}


def tensors(a: Tensor, g: Tensor, eps: float = EPS) -> str | None:
    """a, g [B, d]: how many samples have a vector within 10 × eps of zero (zero itself is PF14)."""
    import torch

    sizes = torch.stack([t.detach().double().flatten(1).norm(dim=1) for t in (a, g)])
    near = ((sizes > 0) & (sizes < 10 * eps)).any(0)
    if not bool(near.any()):
        return None
    count = f"{int(near.sum())} of {len(near)} samples have a vector shorter than {10 * eps:.0e}"
    return f"{count}: eps {eps:.0e} shrinks their cosine"


def code(source: Source) -> Iterator[Spot]:
    modules = {
        last_name(target)
        for scope in source.scopes
        for target, value in source.bindings[scope]
        if _clamping_module(source, value)
    }
    for call in source.calls:
        if stars(call):
            continue
        if source.is_call(call, COSINES):
            if not _clamps(argument(call, 3, "eps")):
                continue
            name = last_name(call.func)
        elif _clamping_module(source, call.func) or (
            isinstance(call.func, ast.Name | ast.Attribute) and last_name(call.func) in modules
        ):
            name = "nn.CosineSimilarity"
        else:
            continue
        scope = source.scope_of(call)
        pair = [argument(call, 0, "x1"), argument(call, 1, "x2")]
        if any(x is not None and source.is_gradient(x, scope) for x in pair):
            what = f"{name} on a gradient with eps {EPS:.0e}: below that size the cosine is not an angle"
            yield source.spot(call, what)


def _clamping_module(source: Source, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and source.is_call(node, MODULES) and _clamps(argument(node, 1, "eps"))


def _clamps(eps: ast.expr | None) -> bool:
    """No eps given, or a number that is as large as the default; a name is the user's own choice."""
    if eps is None:
        return True
    value = number(eps)
    return value is not None and value >= EPS


@from_facts
def audit(facts: Facts) -> Answer:
    if facts.alignment is None or facts.aggregate is None:
        return NO_COSINE
    smallest = min(facts.reference.batch_mean_128)
    raw, clamped = facts.aggregate.headline, facts.aggregate.clamped_128
    shown = (
        f"Γ is {raw:+.3g} without a clamp and {clamped:+.3g} with eps 1e-8"
        if raw is not None and clamped is not None
        else "Γ is not measurable"
    )
    if smallest < facts.alignment.floor:
        return found(f"‖g_l‖ / 128 falls to {smallest:.2g}, under the floor {facts.alignment.floor:.0e}: {shown}")
    if raw is not None and clamped is not None and abs(raw) > 0.01 and times(raw, clamped) > 1.1:
        return found(f"the clamp changes the cosine at batch 128: {shown}")
    if "no eps" not in facts.convention.cosine_dtype:
        return unknown(f"the cosine was taken in {facts.convention.cosine_dtype}: whether it was clamped is not said")
    return clear(f"the smallest ‖g_l‖ / 128 is {smallest:.2g}, above the floor {facts.alignment.floor:.0e}; {shown}")
