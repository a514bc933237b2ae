"""Blocks of an unmodified module: which modules are meant, and the tensors that a call of one takes and gives."""

from __future__ import annotations

import copy
import dataclasses
import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from creditscope.errors import CreditscopeError, with_article

WRAPPERS = ("module.", "_orig_mod.")
"""What DataParallel and torch.compile put before the names of the module inside, which is the one that is measured."""
Path = tuple[int | str, ...]
"""Where a tensor stands in the arguments (a position or a keyword first) or in the output of a call; () is the output itself."""


def resolve_blocks(model: nn.Module, blocks: Any) -> list[tuple[str, nn.Module]]:
    """Names or patterns ("encoder.layers.*"), modules, or a container of modules -> [(name, module)] in model order."""
    named = dict(model.named_modules())
    names_of = {id(module): name for name, module in named.items()}
    if not isinstance(blocks, str | Iterable):
        raise CreditscopeError(f"blocks is {with_article(blocks)}; give module names, patterns or modules")
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
        for wrapper in WRAPPERS:
            if not matches and item.startswith(wrapper):
                matches = [name for name in named if name and fnmatch.fnmatchcase(name, item.removeprefix(wrapper))]
        if not matches:
            parent = item
            while parent not in named:  # the deepest part of it that is there; "" is the model
                parent = parent.rpartition(".")[0]
            children = [f"{parent}.{name}".strip(".") for name, _ in named[parent].named_children()]
            near = ", ".join(children[:6]) + (", ..." if len(children) > 6 else "")
            whose = f"{parent} has" if parent else "the model's children are:"
            raise CreditscopeError(f"no module is named {item!r}; {whose} {near or 'no parts'}")
        outermost = [n for n in matches if not any(n.startswith(m + ".") for m in matches)]
        found += [(name, named[name]) for name in outermost]
    unique: dict[int, tuple[str, nn.Module]] = {}
    for name, module in found:
        unique.setdefault(id(module), (name, module))
    return list(unique.values())


def left_out(model: nn.Module, names: Sequence[str]) -> tuple[str, ...]:
    """Modules that stand in one list (ModuleList, Sequential, ModuleDict) with blocks of their own class and are no blocks."""
    found: list[str] = []
    for parent in dict.fromkeys(name.rpartition(".")[0] for name in names):
        module = model.get_submodule(parent)
        if not isinstance(module, nn.ModuleList | nn.Sequential | nn.ModuleDict):
            continue
        children = {f"{parent}.{name}".lstrip("."): child for name, child in module.named_children()}
        kinds = {type(children[name]) for name in names if name in children}
        found += [name for name, child in children.items() if type(child) in kinds and name not in names]
    return tuple(found)


def tensors_in(tree: Any, path: Path = (), every: bool = False) -> Iterator[tuple[Path, Tensor]]:
    """The floating-point tensors (or every tensor) in the arguments or the output of a call, each with its path."""
    if isinstance(tree, Tensor):
        if every or tree.is_floating_point():
            yield path, tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from tensors_in(value, (*path, key), every)
    elif isinstance(tree, tuple | list):
        for k, value in enumerate(tree):
            yield from tensors_in(value, (*path, k), every)
    elif _is_record(tree):
        for one in dataclasses.fields(tree):
            yield from tensors_in(getattr(tree, one.name, None), (*path, one.name), every)


def _is_record(tree: Any) -> bool:
    """An instance of a dataclass that is no mapping."""
    return dataclasses.is_dataclass(tree) and not isinstance(tree, type | Mapping | nn.Module)


def arguments_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[int | str, Any]:
    """Positions and keywords of a call in one mapping: {0: x, 1: mask, "scale": s}."""
    found: dict[int | str, Any] = dict(enumerate(args))
    return found | dict(kwargs)


def at(tree: Any, path: Path) -> Any:
    """The entry at a path; None where there is none."""
    for key in path:
        try:
            tree = getattr(tree, str(key), None) if _is_record(tree) else tree[key]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def replaced(tree: Any, path: Path, new: Tensor) -> Any:
    """A copy of the tree with another tensor at a path; what lies beside it is shared."""
    if not path:
        return new
    key, rest = path[0], path[1:]
    value = replaced(at(tree, (key,)), rest, new)
    if _is_record(tree):
        changed = copy.copy(tree)
        object.__setattr__(changed, str(key), value)  # frozen ones too
        return changed
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(value if k == key else old for k, old in enumerate(tree)))
    if isinstance(tree, tuple | list):
        return type(tree)(value if k == key else old for k, old in enumerate(tree))
    changed = copy.copy(tree)  # a mapping, or a transformers output
    changed[key] = value
    return changed


def with_argument(
    args: Sequence[Any], kwargs: Mapping[str, Any], path: Path, new: Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with another tensor at a path."""
    changed = replaced(arguments_of(args, kwargs), path, new)
    return tuple(changed[k] for k in range(len(args))), {key: changed[key] for key in kwargs}


def spelled(path: Path) -> str:
    """A path as a reader knows it: "argument 2", "encoder_hidden_states", "argument 1[0]"."""
    first = f"argument {int(path[0]) + 1}" if isinstance(path[0], int) else path[0]
    return first + "".join(f"[{key}]" for key in path[1:])
