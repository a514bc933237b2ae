"""PF14: zero vectors are scored as perfect alignment, cos(0, 0) = 1."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from creditscope.pitfalls.base import Answer, Facts, Reproduction, Spot, Tensor, clear, found, from_facts, unknown
from creditscope.pitfalls.source import COSINES, Source, argument, last_name, number, words

TITLE = "zero vectors scored as aligned"
WHY = "A zero vector has no direction; setting cos(0, 0) = 1 turns dead units and vanished gradients into perfect alignment."
FIX = "Leave such samples out, count them, and report the count beside the mean (nan, nanmean)."

COSINE = {"cos", "cosine", "cosines", "cossim", "coss", "alignment", "alignments", "gamma", "gammas", "angle"}
NOT_COSINE = {"lr", "schedule", "scheduler", "annealing", "decay", "weight", "weights", "pos", "sin", "freq", "freqs"}
ZERO = {"zero", "zeros", "nan", "isnan", "dead", "empty", "degenerate", "isclose", "norm", "norms", "both"}


def reproduce() -> Reproduction:
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
    sentence = (
        f"with cos(0, 0) set to 1 the mean is {wrong:.3f}; the {int(cos.isfinite().sum())} samples that can be "
        f"measured have {right:.3f}"
    )
    return Reproduction("mean cosine(a, g), 60 of 100 samples with a = g = 0", wrong, right, sentence)


def tensors(a: Tensor, g: Tensor) -> str | None:
    """a, g [B, d]: samples whose cosine does not exist."""
    zero = (a.detach().flatten(1) == 0).all(1) | (g.detach().flatten(1) == 0).all(1)
    if bool(zero.any()):
        return (
            f"{int(zero.sum())} of {len(zero)} samples have a zero vector: count them as not measurable, never as 0 "
            "or 1"
        )
    return None


def code(source: Source) -> Iterator[Spot]:
    if not any(word in line.lower() for line in source.lines for word in ("cos", "align", "gamma", "angle")):
        return
    for scope in source.scopes:
        cosines = {t.id for t, v in source.bindings(scope) if isinstance(t, ast.Name) and _from_cosine(source, v)}
        for node in source.within(scope):
            if isinstance(node, ast.Call):
                name = last_name(node.func)
                if name in ("nan_to_num", "nan_to_num_") and _nan_to_one(source, node, cosines):
                    yield source.spot(node, "an undefined cosine is replaced by 1")
                elif name in ("where", "masked_fill", "masked_fill_") and _where_one(source, node, cosines):
                    yield source.spot(node, "a cosine is set to 1 where a vector is zero")
            elif isinstance(node, ast.Assign) and _is_one(source, node.value):
                target = node.targets[0]
                if (
                    isinstance(target, ast.Subscript)
                    and _is_cosine(source, target.value, cosines)
                    and _about_zero(target.slice)
                ):
                    yield source.spot(node, "a cosine is set to 1 where a vector is zero")
            elif isinstance(node, ast.IfExp) and _about_zero(node.test):
                if _is_one(source, node.body) and _is_cosine(source, node.orelse, cosines):
                    yield source.spot(node, "a cosine is set to 1 where a vector is zero")
            elif isinstance(node, ast.If) and isinstance(scope, ast.FunctionDef) and _cosine_word(scope.name):
                last = node.body[-1]
                if isinstance(last, ast.Return) and _is_one(source, last.value) and _is_zero_test(node.test):
                    yield source.spot(last, "the cosine of zero vectors is returned as 1")


def _from_cosine(source: Source, value: ast.expr) -> bool:
    return any(source.is_call(n, COSINES) for n in ast.walk(value) if isinstance(n, ast.Call))


def _is_cosine(source: Source, node: ast.expr, cosines: set[str]) -> bool:
    if isinstance(node, ast.Call):
        if source.is_call(node, COSINES):
            return True
        name = source.dotted(node.func)
        if name.startswith(("torch.", "math.", "numpy.")):
            return False  # torch.cos is a function of an angle
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("mean", "clone", "detach", "float"):
            return _is_cosine(source, node.func.value, cosines)
        return _cosine_word(last_name(node.func))
    if isinstance(node, ast.Name) and node.id in cosines:
        return True
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and _cosine_word(last_name(node))


def _cosine_word(name: str) -> bool:
    name_words = words(name)
    return bool(name_words & COSINE) and not name_words & NOT_COSINE


def _is_one(source: Source, node: ast.expr | None) -> bool:
    if number(node) == 1:
        return True
    return isinstance(node, ast.Call) and (
        last_name(node.func) in ("ones_like", "ones")
        or (last_name(node.func) == "tensor" and bool(node.args) and number(node.args[0]) == 1)
    )


def _nan_to_one(source: Source, call: ast.Call, cosines: set[str]) -> bool:
    method = isinstance(call.func, ast.Attribute) and not source.dotted(call.func).startswith(("torch.", "numpy."))
    if method and isinstance(call.func, ast.Attribute):
        value: ast.expr | None = call.func.value
        nan = argument(call, 0, "nan")
    else:
        value, nan = argument(call, 0, "input", "x"), argument(call, 1, "nan")
    return value is not None and number(nan) == 1 and _is_cosine(source, value, cosines)


def _where_one(source: Source, call: ast.Call, cosines: set[str]) -> bool:
    if last_name(call.func) == "where":
        if len(call.args) != 3:
            return False
        test, yes, no = call.args
        pair = (_is_one(source, yes) and _is_cosine(source, no, cosines)) or (
            _is_one(source, no) and _is_cosine(source, yes, cosines)
        )
        return pair and _about_zero(test)
    if not isinstance(call.func, ast.Attribute) or len(call.args) != 2:
        return False
    return _is_cosine(source, call.func.value, cosines) and _is_one(source, call.args[1]) and _about_zero(call.args[0])


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
        return unknown("no cosine was measured")
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
