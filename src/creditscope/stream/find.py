"""`find_blocks`: the residual blocks of an unmodified model, proposed from its structure and verified by running it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from creditscope.errors import CreditscopeError, with_article
from creditscope.stream.batches import LABEL_KEYS, as_batches, from_numpy, require_logits, tensors_of
from creditscope.stream.eager import original
from creditscope.stream.hooks import HookedStream
from creditscope.stream.interface import Stream
from creditscope.stream.ranks import is_first, recover
from creditscope.stream.untouched import untouched

WIRING = (nn.ModuleList, nn.Sequential, nn.ModuleDict)
Group = list[tuple[str, nn.Module]]


def find_blocks(model: nn.Module, example: Any = None) -> list[str]:
    """Names of the residual blocks of `model`, in the order of the forward pass; one line says what was found.

    Blocks are modules of one class that stand in a ModuleList or Sequential (over all stages of a staged network), whose
    output has the shape of the input and adds a branch to it; a block that is used again and again counts as well. Where there
    are none, modules of one class that are attributes of one module (self.block1, self.block2) are looked at.

    example: a batch as for `diagnose`, or the inputs alone (a tensor or a mapping). A few samples of it are run through
        the model to verify the proposal; without it the line says "not verified". The model is left as found.
    """
    if not isinstance(model, nn.Module):
        raise CreditscopeError(f"model is {with_article(model)}; give a torch.nn.Module")
    model = original(model)
    if example is None:
        group = next(proposals(model), None)
        if group is None:
            raise CreditscopeError(_none_found(model, []))
        _say(f"{_describe(group)} proposed; not verified, give an example batch")
        return [name for name, _ in group]
    if isinstance(example, np.ndarray):
        if not np.issubdtype(example.dtype, np.number):
            raise CreditscopeError(f"the example is an array of {example.dtype}; give a batch of numbers")
        example = from_numpy(example, "numbers of the example")
    if isinstance(example, Tensor) and not example.dim():
        raise CreditscopeError("the example is a single number; give a batch, one row per sample")
    if isinstance(example, Mapping) and not tensors_of(dict(example)):
        raise CreditscopeError(f"the example has the keys {sorted(map(str, example))} and no tensor; give a batch")
    with untouched(model):
        if isinstance(example, Tensor):
            inputs, n = example, len(example)
        elif isinstance(example, Mapping) and not any(key in example for key in LABEL_KEYS):
            inputs, n = dict(example), len(tensors_of(dict(example))[0])  # type: ignore[assignment]
        else:
            inputs, y = as_batches(model, [example], own_loss=True)[0]
            n = len(y)
        require_logits(model, inputs, n)
        return list(dict.fromkeys(verified_stream(model, inputs, n).names))


def verified_stream(
    model: nn.Module, inputs: Any, batch_size: int, read: str | None = None, measured: bool = False
) -> Stream:
    """The stream through the first proposal that runs as residual blocks. Call inside `untouched(model)`.

    Where those turn out to be stages, each a chain of blocks of one class, the blocks inside are taken.
    """
    tried: list[str] = []
    found: tuple[Group, HookedStream] | None = None
    for group in proposals(model):
        if found is not None and not _finer(group, found[0]):
            continue
        stream = _residual(model, inputs, batch_size, group, read, tried, measured)
        if stream is not None and (found is None or _are_stages(found, (group, stream))):
            found = group, stream
    if found is None:
        raise CreditscopeError(_none_found(model, tried))
    group, stream = found
    _say(f"{_describe(group)} found, verified by running them; the stream is read as {stream.read!r}")
    stream.notes = (*stream.notes, f"blocks found, not named: {_describe(group)}")
    return stream


def _residual(
    model: nn.Module, inputs: Any, batch_size: int, group: Group, read: str | None, tried: list[str], measured: bool
) -> HookedStream | None:
    """The stream through a group that runs as residual blocks; None where it does not, with the reason in `tried`."""
    try:
        stream = HookedStream(model, inputs, batch_size, [module for _, module in group], read, measured)
    except Exception as error:  # a wrong proposal may break the model in any way; the reason is kept
        recover(model)
        why = " ".join(str(error).partition("; ")[0].split())  # what to do follows for the whole
        tried.append(f"{_describe(group)}: {why[:240]}")
        return None
    if stream.kind != "residual":
        why = "no skip connection"
    elif len({type(m) for _, m in group}) > 1 and len(set(stream.shapes)) > 1:
        why = "shapes change"
    elif stream.mixes_between:
        why = "other layers lie between them"
    elif stream.depth < 2:
        why = "runs once"
    else:
        return stream
    tried.append(f"{_describe(group)}: {why}")
    return None


def _finer(group: Group, outer: Group) -> bool:
    """Do modules of one class, some in every module of `outer` and nowhere else, make up a finer proposal?"""
    if len({type(m) for _, m in group}) > 1 or _rank(group[0][1]) != 0 or len(group) < len(outer):
        return False
    held = [[n for n, _ in group if n.startswith(name + ".")] for name, _ in outer]
    return all(held) and sum(map(len, held)) == len(group)


def _are_stages(outer: tuple[Group, HookedStream], inner: tuple[Group, HookedStream]) -> bool:
    """Modules that change the shape, around blocks that change it less often or are more: stages."""
    changes = [sum(a != b for a, b in zip(s.shapes, s.shapes[1:], strict=False)) for _, s in (outer, inner)]
    return changes[0] > 0 and (len(inner[0]) > len(outer[0]) or changes[1] < changes[0])


def proposals(model: nn.Module) -> Iterator[Group]:
    """Groups of modules that may be the blocks, the likeliest first.

    Modules with parts of their own come before containers (wiring, such as the stages of a ResNet), those before single
    layers; within these one class over all stages, then lists of several classes, then one stage alone; larger before smaller.
    """
    everywhere: dict[type, Group] = defaultdict(list)
    in_one: dict[tuple[int, type], Group] = defaultdict(list)
    mixed: list[Group] = []
    for outer_name, outer in model.named_modules():
        if not isinstance(outer, WIRING):
            continue
        children = [(f"{outer_name}.{k}".lstrip("."), child) for k, child in outer.named_children()]
        for name, child in children:
            everywhere[type(child)].append((name, child))
            in_one[id(outer), type(child)].append((name, child))
        parts = [(name, child) for name, child in children if _rank(child) == 0]
        if len({type(child) for _, child in parts}) > 1:
            mixed.append(parts)
    groups = [(0, g) for g in everywhere.values()] + [(1, g) for g in mixed] + [(2, g) for g in in_one.values()]
    order = {id(module): k for k, module in enumerate(model.modules())}
    seen: set[tuple[str, ...]] = set()
    for group in (*(g for _, g in sorted(groups, key=lambda item: _likeliest(*item))), *_attributes(model)):
        # modules of one class may lie inside each other (a wrapper of wrappers): the outermost are meant
        names = [name for name, _ in group]
        group = [(n, m) for n, m in group if not any(n.startswith(other + ".") for other in names)]
        group.sort(key=lambda item: order[id(item[1])])
        key = tuple(name for name, _ in group)
        if key not in seen and any(p.numel() for _, m in group for p in m.parameters()):
            seen.add(key)
            yield group


def _attributes(model: nn.Module) -> list[Group]:
    """Modules of one class with parts of their own that stand beside each other as attributes, of nothing that stands in a list
    itself (the two attentions of one block are no blocks); the largest first."""
    found: dict[tuple[int, type], Group] = defaultdict(list)
    inside = [name for name, module in model.named_modules() if isinstance(module, WIRING)]
    for outer_name, outer in model.named_modules():
        if any(outer_name == name or outer_name.startswith(f"{name}.".lstrip(".")) for name in inside):
            continue
        for k, child in outer.named_children():
            if _rank(child) == 0:
                found[id(outer), type(child)].append((f"{outer_name}.{k}".lstrip("."), child))
    return sorted((group for group in found.values() if len(group) > 1), key=lambda group: _likeliest(0, group))


def _rank(module: nn.Module) -> int:
    """0: a module with parts; 1: wiring; 2: a single layer."""
    if isinstance(module, WIRING):
        return 1
    custom = not type(module).__module__.startswith("torch.nn.")
    return 0 if custom or any(True for _ in module.children()) else 2


def _likeliest(kind: int, group: Group) -> tuple[int, int, int, int]:
    size = sum(p.numel() for _, m in group for p in m.parameters())
    return _rank(group[0][1]), kind, -size, min(name.count(".") for name, _ in group)


def _describe(group: Group) -> str:
    kinds = "/".join(dict.fromkeys(type(module).__name__ for _, module in group))
    first, last = group[0][0], group[-1][0]
    where = first if len(group) == 1 else f"{first} to {last}"
    return f"{len(group)} x {kinds} ({where})"


def _none_found(model: nn.Module, tried: list[str]) -> str:
    why = f" (tried {'; '.join(tried[:3])})" if tried else " (no repeated modules)"
    return (
        f"no residual blocks were found in {type(model).__name__}{why}; name them, for example blocks='layers.*' or "
        "blocks=list(model.layers), or give the model the interface: embed, blocks that return f_l(h_l), head"
    )


def _say(line: str) -> None:
    if is_first():
        print(f"creditscope: {line}")
