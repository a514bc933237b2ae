"""PF14: zero vectors are scored as perfect alignment, cos(0, 0) = 1."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from creditscope.pitfalls.base import NO_COSINE, Answer, Facts, Numbers, Spot, Tensor, clear, found, from_facts
from creditscope.pitfalls.source import COSINES, Source, argument, last_name, method, number, words

COSINE = {"cos", "cosine", "cosines", "cossim", "coss", "alignment", "alignments", "gamma", "gammas", "angle"}
NOT_COSINE = {"lr", "schedule", "scheduler", "annealing", "decay", "weight", "weights", "pos", "sin", "freq", "freqs"}
SET_TO_ONE = "a cosine is set to 1 where a vector is zero"
ZERO = {"zero", "zeros", "nan", "isnan", "dead", "empty", "degenerate", "isclose", "norm", "norms", "both"}


def reproduce() -> Numbers:
    import torch

    from creditscope.pitfalls.tiny import cosine, generator, randn, with_cosine

    rng = generator(14)
    g = randn(100, 32, rng=rng)
    a = with_cosine(g, 0.1, rng)
    g[:60] = 0  # samples that the network already fits exactly, or whose units are dead
    a[:60] = 0
    cos = cosine(a, g)
    wrong = float(torch.nan_to_num(cos, nan=1.0).mean())  # creditscope: ignore[PF14]
    right = float(cos.nanmean())
    return {"wrong": wrong, "right": right, "counted": int(cos.isfinite().sum())}


def tensors(a: Tensor, g: Tensor) -> str | None:
    """a, g [B, d]: samples whose cosine does not exist."""
    zero = (a.detach().flatten(1) == 0).all(1) | (g.detach().flatten(1) == 0).all(1)
    count = f"{int(zero.sum())} of {len(zero)} samples have a zero vector"
    return f"{count}: count them as not measurable, never as 0 or 1" if bool(zero.any()) else None


def code(source: Source) -> Iterator[Spot]:
    if not any(word in line.lower() for line in source.lines for word in ("cos", "align", "gamma", "angle")):
        return
    for scope in source.scopes:
        cosines = {t.id for t, v in source.bindings[scope] if isinstance(t, ast.Name) and _from_cosine(source, v)}
        for node in source.within[scope]:
            match node:
                case ast.Call() if (value := _nan_to(source, node, cosines)) is not None:
                    yield source.spot(node, f"an undefined cosine is replaced by {value:g}")
                case ast.Call() if _where_one(source, node, cosines):
                    yield source.spot(node, SET_TO_ONE)
                case (
                    ast.Assign(targets=[ast.Subscript(value=x, slice=test), *_], value=one)
                    | ast.IfExp(test=test, body=one, orelse=x)
                ) if _is_one(one) and _is_cosine(source, x, cosines) and _about_zero(test):
                    yield source.spot(node, SET_TO_ONE)
                case ast.If(test=test, body=[*_, ast.Return(value=one) as last]) if _is_one(one):
                    if isinstance(scope, ast.FunctionDef) and _cosine_word(scope.name) and _is_zero_test(test):
                        yield source.spot(last, "the cosine of zero vectors is returned as 1")


def _from_cosine(source: Source, value: ast.expr) -> bool:
    return any(source.is_call(n, COSINES) for n in ast.walk(value) if isinstance(n, ast.Call))


def _is_cosine(source: Source, node: ast.expr, cosines: set[str]) -> bool:
    match node:
        case ast.Call() if source.is_call(node, COSINES):
            return True
        case ast.Call() if source.dotted(node.func).startswith(("torch.", "math.", "numpy.")):
            return False  # torch.cos is a function of an angle
        case ast.Call(func=ast.Attribute(attr="mean" | "clone" | "detach" | "float", value=inner)):
            return _is_cosine(source, inner, cosines)
        case ast.Name(id=name) if name in cosines:
            return True
        case ast.Call() | ast.Name() | ast.Attribute() | ast.Subscript():
            return _cosine_word(last_name(node))
    return False


def _cosine_word(name: str) -> bool:
    name_words = words(name)
    return bool(name_words & COSINE) and not name_words & NOT_COSINE


def _is_one(node: ast.expr | None) -> bool:
    match node:
        case ast.Call(args=[first, *_]) if last_name(node) == "tensor":
            return number(first) == 1
        case ast.Call():
            return last_name(node) in ("ones_like", "ones")
    return number(node) == 1


def _nan_to(source: Source, call: ast.Call, cosines: set[str]) -> float | None:
    """The number that an undefined cosine becomes: 1, or 0 where nobody said so; None: neither."""
    if last_name(call) not in ("nan_to_num", "nan_to_num_"):
        return None
    value, nan = argument(call, 0, "input", "x"), argument(call, 1, "nan")
    if method(call)[1] is not None and not source.dotted(call.func).startswith(("torch.", "numpy.")):
        value, nan = method(call)[1], argument(call, 0, "nan")
    if value is None or not _is_cosine(source, value, cosines):
        return None
    return 0.0 if nan is None else 1.0 if number(nan) == 1 else None


def _where_one(source: Source, call: ast.Call, cosines: set[str]) -> bool:
    """torch.where(zero, 1, cos), cos.masked_fill(zero, 1)."""
    match last_name(call), call.args, method(call)[1]:
        case "where", [test, yes, no], _:
            pairs = [(yes, no), (no, yes)]
        case "masked_fill" | "masked_fill_", [test, value], ast.expr() as owner:
            pairs = [(value, owner)]
        case _:
            return False
    return _about_zero(test) and any(_is_one(one) and _is_cosine(source, x, cosines) for one, x in pairs)


def _about_zero(node: ast.AST) -> bool:
    """A condition that speaks of zero or undefined vectors (and not, for example, of cos > 1)."""
    for part in ast.walk(node):
        if isinstance(part, ast.Compare) and any(number(c) == 0 for c in [part.left, *part.comparators]):
            return True
        if isinstance(part, ast.Name | ast.Attribute) and words(last_name(part)) & ZERO:
            return True
    return False


def _is_zero_test(node: ast.expr) -> bool:
    """Both vectors zero: `na == 0 and nb == 0`, `not a.any() and ...`."""
    return _about_zero(node) or any(isinstance(n, ast.Attribute) and n.attr == "any" for n in ast.walk(node))


@from_facts
def audit(facts: Facts) -> Answer:
    if facts.alignment is None:
        return NO_COSINE
    n, zero = facts.convention.n_samples, facts.reference.zero_samples
    for layer, (z, counted) in enumerate(zip(zero, facts.alignment.measurable, strict=True)):
        if counted > n - z:
            return found(
                f"layer {layer}: {z} of {n:,} samples have a zero gradient and {counted:,} were given a cosine"
            )
    if silent := [layer for layer, size in enumerate(facts.alignment.credit_norm) if size == 0]:
        return found(f"the credit is exactly zero at layers {', '.join(map(str, silent))}: there is nothing to align")
    left_out = sum(n - counted for counted in facts.alignment.measurable)
    return clear(
        f"{left_out} cosines with a zero or non-finite vector were left out and counted; none was set to 0 or 1"
    )
