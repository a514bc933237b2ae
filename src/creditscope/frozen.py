"""`frozen_blocks`: the untrained-blocks twin of a user's own model, to be trained as the null."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from creditscope.blocks import resolve_blocks
from creditscope.errors import CreditscopeError
from creditscope.stream import has_interface


def frozen_blocks(
    model: nn.Module, blocks: Any = None, *, seed: int = 0, init: Callable[[nn.Module], None] | None = None
) -> nn.Module:
    """A copy of `model` whose blocks are re-initialised and frozen; everything else keeps its weights and is trainable.

    Train the copy with the recipe of the audited method and give its accuracy to `diagnose(frozen_baseline_acc=...)`.
    To start embedding and head from scratch too, pass a freshly built model.

    blocks: names, patterns or modules, as for `diagnose`; not needed where the model has the interface.
    init: how one block is re-initialised; by default every submodule's own `reset_parameters` is called.
    The global RNG is left as found.
    """
    if blocks is None:
        if not has_interface(model):
            raise CreditscopeError(
                f"{type(model).__name__} has no embed / blocks / readout interface; name its blocks, e.g. blocks='layers.*'"
            )
        names = [f"blocks.{k}" for k in range(len(list(model.blocks)))]  # type: ignore[arg-type]
    else:
        names = [name for name, _ in resolve_blocks(model, blocks)]
    twin = copy.deepcopy(model)
    for p in twin.parameters():
        p.requires_grad_(True)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for name in names:
            block = twin.get_submodule(name)
            (init or reinitialise)(block)
            block.requires_grad_(False)
    return twin


def reinitialise(block: nn.Module) -> None:
    """Call `reset_parameters` of the block, or else of every submodule that owns parameters."""
    if _reset(block):
        return
    owned = [name for name, _ in block.named_parameters(recurse=False)]
    if owned:
        raise CreditscopeError(
            f"{type(block).__name__} owns {owned[0]!r} and has no reset_parameters(); pass init= to say how it starts"
        )
    for child in block.children():
        reinitialise(child)


def _reset(module: nn.Module) -> bool:
    for name in ("reset_parameters", "_reset_parameters"):
        method = getattr(module, name, None)
        if callable(method):
            method()
            for child in module.children():  # a container's own method need not reach its children
                if name == "_reset_parameters":
                    reinitialise(child)
            return True
    return False
