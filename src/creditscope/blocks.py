"""Blocks of an unmodified module: which modules are meant, the state that enters and leaves one, whether it has a skip."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from creditscope.errors import CreditscopeError

LINEAR_MAPS = ("addmm", "mm", "bmm", "convolution", "linear", "attention", "embedding", "einsum", "matmul", "mv")
"""Autograd nodes that mix features: a skip connection passes none of them."""


def resolve_blocks(model: nn.Module, blocks: Any) -> list[tuple[str, nn.Module]]:
    """Names or patterns ("encoder.layers.*"), modules, or a container of modules -> [(name, module)] in model order."""
    named = dict(model.named_modules())
    names_of = {id(module): name for name, module in named.items()}
    if not isinstance(blocks, str | Iterable):
        raise CreditscopeError(f"blocks is a {type(blocks).__name__}; give module names, patterns or modules")
    wanted = [blocks] if isinstance(blocks, str) else list(blocks)
    if not wanted:
        raise CreditscopeError("blocks is empty; name at least one block, for example blocks='layers.*'")
    found: list[tuple[str, nn.Module]] = []
    for item in wanted:
        if isinstance(item, nn.Module):
            if id(item) not in names_of:
                raise CreditscopeError(f"a block of type {type(item).__name__} is not a part of the model")
            found.append((names_of[id(item)], item))
            continue
        if not isinstance(item, str):
            raise CreditscopeError(f"a block is given as {type(item).__name__}; give module names, patterns or modules")
        matches = [name for name in named if name and fnmatch.fnmatchcase(name, item)]
        if not matches:
            near = ", ".join([name for name, _ in model.named_children()][:6])
            raise CreditscopeError(f"no module is named {item!r}; the model's children are: {near}")
        outermost = [n for n in matches if not any(n.startswith(m + ".") for m in matches)]
        found += [(name, named[name]) for name in outermost]
    unique: dict[int, tuple[str, nn.Module]] = {}
    for name, module in found:
        unique.setdefault(id(module), (name, module))
    return list(unique.values())


def first_tensor(args: Sequence[Any], kwargs: dict[str, Any], name: str) -> Tensor:
    """The state that enters a block: its first floating-point tensor argument."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor) and value.is_floating_point():
            return value
    raise CreditscopeError(
        f"block {name!r} was called without a floating-point tensor; name blocks that take the stream"
    )


def replace_first(args: Sequence[Any], kwargs: dict[str, Any], new: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for k, value in enumerate(args):
        if isinstance(value, Tensor) and value.is_floating_point():
            return (*args[:k], new, *args[k + 1 :]), kwargs
    key = next(k for k, v in kwargs.items() if isinstance(v, Tensor) and v.is_floating_point())
    return tuple(args), {**kwargs, key: new}


def tensor_of(out: Any, name: str) -> Tensor:
    """The state that leaves a block: its output, or the first element of a tuple."""
    if isinstance(out, tuple | list) and out:
        out = out[0]
    if not isinstance(out, Tensor):
        raise CreditscopeError(
            f"block {name!r} returns {type(out).__name__}; it must return a tensor (or a tuple with one first)"
        )
    return out


def replace_output(out: Any, new: Tensor) -> Any:
    if isinstance(out, Tensor):
        return new
    return type(out)((new, *out[1:]))


def has_skip(out: Tensor, leaf: Tensor) -> bool:
    """Is there a way from `leaf` to `out` that passes an addition and no map that mixes features?"""
    seen: set[tuple[Any, bool]] = set()
    stack: list[tuple[Any, bool]] = [(out.grad_fn, False)]
    while stack:
        node, added = stack.pop()
        if node is None or (node, added) in seen:
            continue
        seen.add((node, added))
        if getattr(node, "variable", None) is leaf:
            if added:
                return True
            continue
        name = node.name().lower().removesuffix("0").removesuffix("backward")
        if any(word in name for word in LINEAR_MAPS):
            continue
        stack += [(parent, added or name == "add") for parent, _ in node.next_functions]
    return False
