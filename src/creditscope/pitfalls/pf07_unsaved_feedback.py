"""PF07: feedback matrices or auxiliary networks are not saved; a reloaded method measures backpropagation against itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from creditscope.pitfalls.base import Answer, Evidence, Numbers, Spot, clear, found, nn
from creditscope.pitfalls.source import Source, keyword, last_name, method, stars, words

FEEDBACK = {"feedback", "feedbacks", "fb", "fbs", "fbk"}
RANDOM = {
    "randn", "rand", "randint", "randn_like", "rand_like", "normal", "empty", "uniform", "xavier_uniform_",
    "orthogonal_",
}  # fmt: skip
TENSOR_MODULES = ("torch.", "numpy.random.")
KEEPERS = {
    "state_dict", "get_extra_state", "state", "__getstate__", "_save_to_state_dict", "save", "save_checkpoint",
}  # fmt: skip
SAVED_BY_TORCH = ("_parameters", "_buffers", "_modules")
SAVES = {"torch.save", "safetensors.torch.save_file", "safetensors.torch.save_model"}


def reproduce() -> Numbers:
    import torch
    from torch import nn

    from creditscope.pitfalls.tiny import cosine, generator

    rng = generator(7)

    class Net(nn.Module):
        """One layer with a feedback matrix that is a plain attribute."""

        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Parameter(torch.randn(16, 4, generator=rng, dtype=torch.float64))
            self.feedback: torch.Tensor | None = None

        def credit(self, e: torch.Tensor) -> torch.Tensor:
            # the usual fall-back: without a feedback matrix the exact gradient is used
            return e @ (self.head.T if self.feedback is None else self.feedback)

    trained = Net()
    trained.feedback = torch.randn(4, 16, generator=rng, dtype=torch.float64)
    reloaded = Net()
    reloaded.load_state_dict(trained.state_dict())  # strict, and it does not complain
    e = torch.randn(128, 4, generator=rng, dtype=torch.float64)
    with torch.no_grad():
        g = e @ trained.head.T
        wrong = float(cosine(reloaded.credit(e), g).mean())
        right = float(cosine(trained.credit(e), g).mean())
    return {"wrong": wrong, "right": right}


def tensors(module: nn.Module) -> str | None:
    """Tensors that a module keeps as plain attributes (also in lists and dicts): state_dict() leaves them out."""
    names = []
    for prefix, part in module.named_modules():
        own = [name for name in vars(part) if name not in SAVED_BY_TORCH and not name.endswith("_hooks")]
        left_out = [name for name in own if _holds_tensor(vars(part)[name])]
        left_out += [f"{name} (non-persistent buffer)" for name in sorted(part._non_persistent_buffers_set)]
        names += [f"{prefix}.{name}" if prefix else name for name in left_out]
    finding = f"state_dict() leaves out {', '.join(names)}; register them as buffers or save them beside it"
    return finding if names else None


def _holds_tensor(value: Any) -> bool:
    from torch import Tensor

    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(v, Tensor) for v in values)


def code(source: Source) -> Iterator[Spot]:
    """A state_dict is saved in a file whose feedback matrices are plain attributes (or names) and are saved nowhere."""
    saves = [c for c in source.calls if source.is_call(c, SAVES) and c.args and not stars(c)]
    partial = [c for c in saves if "state_dict" in _names_in(_saved(source, c))]
    owned = dict(_feedback(source)) if partial else {}
    if not owned:
        return
    kept = set().union(*(_names_in(_saved(source, c)) for c in saves)) | _kept_by_methods(source)
    lost = sorted(name for name in owned if name not in kept)
    if lost:
        where = ", ".join(f"{name} (line {owned[name]})" for name in lost)
        for call in partial:
            yield source.spot(call, f"state_dict() is saved without the feedback matrices {where}")


def _saved(source: Source, call: ast.Call) -> list[ast.expr]:
    """What is written: the first argument, and where it is a plain name, all that was assigned to it in the scope."""
    first = call.args[0]
    if not isinstance(first, ast.Name):
        return [first]
    scope = source.scope_of(call)
    values: list[ast.expr] = [value for target, value in source.bindings[scope] if last_name(target) == first.id]
    for other in source.calls_in[scope]:  # content.update(B=...)
        name, owner = method(other)
        if name == "update" and owner is not None and last_name(owner) == first.id:
            values += [*other.args, *(k.value for k in other.keywords)]
    return [first, *values]


def _names_in(values: list[ast.expr]) -> set[str]:
    nodes = (node for value in values for node in ast.walk(value))
    return {last_name(node) for node in nodes if isinstance(node, ast.Name | ast.Attribute)}


def _feedback(source: Source) -> Iterator[tuple[str, int]]:
    """(name, line) of feedback matrices that no state_dict holds."""
    registered = {
        str(call.args[0].value)
        for call in source.calls
        if last_name(call.func) in ("register_buffer", "register_parameter")
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }
    about = {"feedback", "alignment", "dfa", "fa"} & {w for line in source.lines for w in words(line)}
    for scope in source.scopes:
        for target, value in source.bindings[scope]:
            name = last_name(target) if isinstance(target, ast.Name | ast.Attribute) else ""
            if not name or name in registered or not _draws(source, value):
                continue
            own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
            plain_b = name in ("B", "Bs") or name.startswith("B_")
            if words(name) & FEEDBACK or (plain_b and (own or about)):
                yield name, target.lineno


def _draws(source: Source, value: ast.expr) -> bool:
    """Random tensors, alone or in a list, that are neither parameters nor redrawn from a seed of their own."""
    match value:
        case ast.ListComp(elt=inner) | ast.DictComp(value=inner):
            return _draws(source, inner)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return bool(items) and all(_draws(source, item) for item in items)
        case ast.BinOp(left=left, right=right):
            return _draws(source, left) or _draws(source, right)
        case ast.Call(func=function) if (name := source.dotted(function)).startswith(TENSOR_MODULES):
            return name.rsplit(".", 1)[-1] in RANDOM and keyword(value, "generator") is None
        case ast.Call(func=ast.Attribute(value=inner)):  # torch.randn(...).to(device)
            return _draws(source, inner)
    return False


def _kept_by_methods(source: Source) -> set[str]:
    """Attributes that a class hands out itself: state_dict, get_extra_state, state, __getstate__ of its own."""
    nodes = (node for function in source.functions if function.name in KEEPERS for node in ast.walk(function))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def audit(evidence: Evidence) -> Answer:
    from creditscope import CreditRule

    method = evidence.spec.method
    if evidence.rule.is_exact:
        return clear("backpropagation has no state of its own")
    if evidence.rule.state is CreditRule.state and not (evidence.rule.numbers or evidence.rule.tensors):
        return clear(f"rule {method!r} owns no tensors")
    if evidence.credit is None:
        return found(f"credit.safetensors is missing or unreadable: the state of {method!r} cannot be measured again")
    if not evidence.credit:
        return found(f"credit.safetensors is empty although {method!r} owns tensors")
    facts = evidence.facts
    if facts is not None and facts.alignment is not None:
        cosines = [c for c in facts.alignment.mean[:-1] if c is not None]
        if cosines and all(abs(c - 1) < 1e-9 for c in cosines):
            same = "the reference was measured against itself"
            return found(f"every layer has a cosine of 1 although the rule is {method!r}: {same}")
    count = sum(t.numel() for t in evidence.credit.values())
    return clear(f"credit.safetensors holds the state of {method!r} ({count:,} numbers)")
