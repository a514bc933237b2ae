"""PF11: hidden states are normalised before their size is measured, which erases the explosion."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from creditscope.pitfalls.base import Answer, Facts, Numbers, Spot, Tensor, clear, found, from_facts
from creditscope.pitfalls.source import Source, is_hidden, last_name

NORMALISERS = {
    "normalize", "normalise", "l2_normalize", "l2_normalise", "l2norm", "unit_norm", "layer_norm", "rms_norm",
}  # fmt: skip


def reproduce() -> Numbers:
    import torch.nn.functional as F

    from creditscope.pitfalls.tiny import generator, randn

    rng = generator(11)
    h = [randn(64, 32, rng=rng)]
    for _ in range(3):
        h.append(h[-1] + 5 * h[-1] @ randn(32, 32, rng=rng))
    raw = [float(x.norm(dim=1).mean()) for x in h]
    unit = [float(F.normalize(x, dim=1).norm(dim=1).mean()) for x in h]  # creditscope: ignore[PF11]
    wrong, right = unit[-1] / unit[0], raw[-1] / raw[0]
    return {"wrong": wrong, "right": right}


def tensors(hiddens: Sequence[Tensor]) -> str | None:
    """h_0..h_L [B, ...]: whether every sample has one and the same size at every layer."""
    sizes = [h.detach().double().flatten(1).norm(dim=1) for h in hiddens]
    if len(sizes) < 2 or not all(len(s) > 1 and float(s.std()) < 1e-3 * float(s.mean()) for s in sizes):
        return None
    first, last = (f"{float(s.mean()):.3g}" for s in (sizes[0], sizes[-1]))
    return f"every sample has the norm {first} at layer 0 and {last} at the last: the states were normalised"


def code(source: Source) -> Iterator[Spot]:
    for scope in source.scopes:
        assigned = [(t.lineno, t.id, v) for t, v in source.bindings[scope] if isinstance(t, ast.Name)]
        for call in filter(source.is_norm, source.calls_in[scope]):
            of = source.measured_by_norm(call)
            if of is None or any(call is n for above in source.ancestors(call) for n in _divisors(above)):
                continue  # the size by which a state is being divided
            if isinstance(of, ast.Name):
                line, value = _last(assigned, of.id, call.lineno)
                if value is not None and _normalises(source, value):
                    yield source.spot(
                        call, f"{of.id} was normalised in line {line}: its size no longer tells the scale"
                    )
            elif _normalises(source, of):
                yield source.spot(call, "the size of a state that has just been normalised is a constant")


def _divisors(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        yield from ast.walk(node.right)


def _last(assigned: list[tuple[int, str, ast.expr]], name: str, line: int) -> tuple[int, ast.expr | None]:
    """The nearest assignment to a name above a line."""
    before = [(at, value) for at, other, value in assigned if other == name and at < line]
    return before[-1] if before else (0, None)


def _normalises(source: Source, node: ast.expr) -> bool:
    """F.normalize(h), layer_norm(h), h / h.norm(...), with h a hidden state by its name."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        size = [n for n in ast.walk(node.right) if isinstance(n, ast.Call) and source.is_norm(n)]
        return is_hidden(node.left) and any(
            (of := source.measured_by_norm(n)) is not None and last_name(of) == last_name(node.left) for n in size
        )
    if isinstance(node, ast.Call) and last_name(node.func) in NORMALISERS:
        own = source.dotted(node.func).startswith("self.")  # self.layer_norm(h) is part of the network
        return bool(node.args) and not own and is_hidden(node.args[0])
    return False


@from_facts
def audit(facts: Facts) -> Answer:
    scale, widths = facts.scale, facts.stream.widths
    constant = all(
        abs(mean - median) <= 1e-3 * mean and min(abs(mean - 1), abs(mean - width**0.5)) <= 1e-2 * mean
        for mean, median, width in zip(scale.mean, scale.median, widths, strict=True)
    )
    if constant:
        return found("‖h_l‖ is 1 or √d for every sample at every layer: the states were normalised before measuring")
    return clear(
        f"‖h_l‖ varies over samples and layers (raw norms); growth {scale.growth:.3g}, total {scale.total_growth:.3g}"
    )
