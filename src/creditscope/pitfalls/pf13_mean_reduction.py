"""PF13: with a mean-reduced loss ‖g‖ scales as 1/B, so a fixed floor moves with the evaluation batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from creditscope.pitfalls.base import Answer, Facts, Numbers, Spot, clear, found, from_facts
from creditscope.pitfalls.source import (
    AUTOGRAD,
    Scope,
    Source,
    argument,
    is_hidden,
    is_literal,
    keyword,
    last_name,
    method,
    names_in,
    number,
    words,
)

LOSSES = {"cross_entropy", "mse_loss", "nll_loss", "binary_cross_entropy_with_logits", "smooth_l1_loss", "l1_loss"}
LOSS_MODULES = {"CrossEntropyLoss", "MSELoss", "NLLLoss", "BCEWithLogitsLoss", "L1Loss", "SmoothL1Loss"}
FLOOR = {"floor", "eps", "epsilon", "tiny", "threshold", "thresh", "tol"}
SMALL = 1e-4
BATCH = {"len", "shape", "size", "batch", "bs", "B", "n"}
COMPARED = "‖g‖ of a mean-reduced loss is compared with a fixed floor: it falls as 1/B"
FLOOR_VALUE, FLOOR_BATCH = 1e-7, 128


def reproduce() -> Numbers:
    import torch
    import torch.nn.functional as F

    from creditscope.pitfalls.tiny import CLASSES, generator, randn

    rng = generator(13)
    h = randn(1024, 32, rng=rng) * 1e4
    head = randn(32, CLASSES, rng=rng) * 0.05
    y = torch.randint(CLASSES, (1024,), generator=rng)

    def size(reduction: str) -> float:
        """Mean per-sample ‖g‖ over the evaluation batch of 1,024."""
        x = h.clone().requires_grad_()
        loss = F.cross_entropy(F.layer_norm(x, (32,)) @ head, y, reduction=reduction)
        return float(torch.autograd.grad(loss, x)[0].norm(dim=1).mean())

    wrong, right = size("mean"), size("sum") / FLOOR_BATCH
    side, other = ("above" if size > FLOOR_VALUE else "under" for size in (right, wrong))
    return {"wrong": wrong, "right": right, "other": other, "side": side}


def tensors(norms: dict[int, float]) -> str | None:
    """Mean ‖g‖ at two or more evaluation batch sizes: is it ‖g‖ · B that stays, and not ‖g‖?"""
    sizes = sorted(norms)
    if len(sizes) < 2 or min(norms.values()) <= 0:
        return None
    first, last = sizes[0], sizes[-1]
    fall, expected = norms[first] / norms[last], last / first
    if not 0.8 * expected < fall < 1.25 * expected or expected < 1.5:
        return None
    seen = f"‖g‖ falls {fall:.1f}-fold from B = {first} to {last}"
    return f"{seen}: the loss is mean-reduced, compare ‖g‖ · B / 128 with the floor"


def code(source: Source) -> Iterator[Spot]:
    modules = {last_name(t) for s in source.scopes for t, v in source.bindings[s] if _mean_module(v)}
    for scope in source.scopes:
        pairs = source.bindings[scope]
        losses = {last_name(t) for t, v in pairs if isinstance(t, ast.Name) and _mean_loss(v, modules)}
        gradients = _hidden_gradients(source, scope, losses) if losses else set()
        if not gradients:
            continue
        sizes = {t.id: v for t, v in pairs if isinstance(t, ast.Name) and _size_of(source, v, gradients)}
        for node in source.within[scope]:
            if not isinstance(node, ast.Compare) or len(node.comparators) != 1:
                continue
            for size, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
                named = isinstance(size, ast.Name) and size.id in sizes and not _scaled(sizes[size.id])
                if (named or (_size_of(source, size, gradients) and not _scaled(size))) and _is_floor(other):
                    yield source.spot(node, COMPARED)
                    break


def _mean_module(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in LOSS_MODULES and _is_mean(value)


def _is_mean(call: ast.Call) -> bool:
    reduction = keyword(call, "reduction")
    return reduction is None or is_literal(reduction, "mean")


def _mean_loss(value: ast.expr, modules: set[str]) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = last_name(value.func)
    if name in LOSSES:
        return _is_mean(value)
    return name in modules or (isinstance(value.func, ast.Call) and _mean_module(value.func))


def _hidden_gradients(source: Source, scope: Scope, losses: set[str]) -> set[str]:
    """Names of gradients of such a loss with respect to hidden states; "x.grad" for those read from .grad."""
    names: set[str] = set()
    for target, value in source.bindings[scope]:
        call = value.value if isinstance(value, ast.Subscript) else value
        if isinstance(call, ast.Call) and source.is_call(call, AUTOGRAD):
            loss, at = argument(call, 0, "outputs"), argument(call, 1, "inputs")
            if loss is not None and last_name(loss) in losses and at is not None and is_hidden(at):
                names |= names_in(target)
    for target, value in source.bindings[scope]:  # for g in grads
        if isinstance(target, ast.Name) and isinstance(value, ast.Name | ast.Subscript) and last_name(value) in names:
            names.add(target.id)
    methods = map(method, source.calls_in[scope])
    if any(name == "backward" and owner is not None and last_name(owner) in losses for name, owner in methods):
        names |= {
            f"{last_name(n.value)}.grad"
            for n in source.within[scope]
            if isinstance(n, ast.Attribute) and n.attr == "grad" and is_hidden(n.value)
        }
    return names


def _size_of(source: Source, node: ast.expr, gradients: set[str]) -> bool:
    """Whether an expression holds the norm of one of these gradients."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and source.is_norm(call) and (of := source.measured_by_norm(call)) is not None:
            for inner in ast.walk(of):
                match inner:
                    case ast.Name(id=name) if name in gradients:
                        return True
                    case ast.Attribute(attr="grad", value=x) if f"{last_name(x)}.grad" in gradients:
                        return True
    return False


def _scaled(node: ast.expr) -> bool:
    """Multiplied by a batch size: ‖g‖ * len(x), ‖g‖ * x.shape[0], ‖g‖ * batch_size."""
    for part in ast.walk(node):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult):
            for side in (part.left, part.right):
                name_words = words(last_name(side)) | {last_name(side)}
                if name_words & BATCH or (isinstance(side, ast.Subscript) and last_name(side.value) == "shape"):
                    return True
    return False


def _is_floor(node: ast.expr) -> bool:
    value = number(node)
    if value is not None:
        return 0 < value <= SMALL
    if isinstance(node, ast.BinOp):
        return _is_floor(node.left) or _is_floor(node.right)
    return bool(words(last_name(node)) & FLOOR)


@from_facts
def audit(facts: Facts) -> Answer:
    reduction, ref = facts.convention.reduction, facts.reference
    if not reduction.startswith("sum"):
        return found(f"the reference has reduction {reduction!r}: its size depends on the evaluation batch")
    sizes = ", ".join(map(str, facts.convention.batch_sizes))
    return clear(
        f"‖g_L‖ is {ref.per_sample[-1]:.2g} per sample and {ref.batch_mean_128[-1]:.2g} at B = 128, whatever the "
        f"evaluation batch ({sizes})"
    )
