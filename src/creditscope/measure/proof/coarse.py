"""Half precision inside a network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary


class Coarse(TorchFunctionMode):
    """Sees whether a network lowers what comes from its inputs to a coarser dtype on its way; constants do not count."""

    seen = ""
    """The coarsest."""
    _eps = 0.0

    def __init__(self, *given: Any) -> None:
        super().__init__()
        self._followed = WeakIdKeyDictionary()
        self._follow(given)

    def _follow(self, tree: Any) -> None:
        for t in tree_leaves(tree):
            if isinstance(t, Tensor):
                self._followed[t] = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        mine = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t in self._followed]
        if not mine:
            return out
        self._follow(out)
        if isinstance(out, Tensor) and out.is_floating_point():
            eps = torch.finfo(out.dtype).eps
            if eps > self._eps and any(t.is_floating_point() and torch.finfo(t.dtype).eps < eps for t in mine):
                self.seen, self._eps = str(out.dtype).removeprefix("torch."), eps
        return out
