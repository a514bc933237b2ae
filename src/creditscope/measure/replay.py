"""Everything that an update can reach, put back before it is called again: what it closes over, its object, its networks.

A rule may train auxiliary networks, count its calls or draw random numbers. Two calls can be compared only if both begin
from the same state.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.stream.untouched import GENERATORS, generator_state, set_generator_state

MOST = 200_000
"""Objects to look at."""
LIBRARIES = ("torch", "numpy", "builtins", "creditscope")
"""Whose functions keep no state of the user in their globals."""
PLAIN = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, types.BuiltinFunctionType)


class Replay:
    """A copy of the state of all that is reached from `roots`; `restore()` puts it back, in place.

    held: parameters whose values the caller looks after.
    """

    def __init__(self, roots: Iterable[Any], held: Iterable[nn.Parameter]) -> None:
        self.narrow = False
        """Is there a floating-point tensor that is not float64, beside the parameters held?"""
        self._put_back: list[Callable[[], None]] = []
        self._seen: dict[int, Any] = {id(p): p for p in held}
        self._todo = list(roots)
        while self._todo:
            found = self._todo.pop()
            if id(found) in self._seen or isinstance(found, PLAIN):
                continue
            self._seen[id(found)] = found  # kept, so that no other object gets its id
            if len(self._seen) > MOST:
                raise CreditscopeError(
                    f"the update reaches more than {MOST:,} objects, whose state cannot all be restored; give a function "
                    "that closes over less"
                )
            self._keep(found)

    def restore(self) -> None:
        for put_back in self._put_back:
            put_back()

    def _keep(self, found: Any) -> None:
        if isinstance(found, Tensor):
            self._keep_tensor(found)
        elif isinstance(found, GENERATORS):
            state = generator_state(found)
            self._put_back.append(lambda: set_generator_state(found, state))
        elif isinstance(found, np.ndarray):
            values = found.copy()
            self._put_back.append(lambda: np.copyto(found, values) if found.flags.writeable else None)
        elif isinstance(found, dict):
            self._keep_dict(found)
        elif isinstance(found, list):
            items = list(found)
            self._put_back.append(lambda: found.__setitem__(slice(None), items))
            self._todo += items
        elif isinstance(found, deque):
            queue = list(found)
            self._put_back += [found.clear, functools.partial(found.extend, queue)]
            self._todo += queue
        elif isinstance(found, set):
            members = set(found)
            self._put_back += [found.clear, functools.partial(found.update, members)]
            self._todo += members
        elif isinstance(found, tuple | frozenset):
            self._todo += found
        elif isinstance(found, types.FunctionType):
            self._keep_function(found)
        elif isinstance(found, types.MethodType):
            self._todo += [found.__func__, found.__self__]
        elif isinstance(found, functools.partial):
            self._todo += [found.func, found.args, found.keywords]
        else:
            self._keep_object(found)

    def _keep_object(self, found: Any) -> None:
        if isinstance(getattr(found, "__dict__", None), dict):
            self._keep_dict(found.__dict__)
            self._todo.append(type(found).__call__ if callable(found) else None)
        for kind in type(found).__mro__:
            if kind.__module__.split(".")[0] in LIBRARIES:
                continue
            for slot in vars(kind).values():  # an attribute of a class with __slots__
                if isinstance(slot, types.MemberDescriptorType) and hasattr(found, slot.__name__):
                    value = getattr(found, slot.__name__)
                    self._put_back.append(functools.partial(object.__setattr__, found, slot.__name__, value))
                    self._todo.append(value)

    def _keep_tensor(self, t: Tensor) -> None:
        self.narrow |= t.is_floating_point() and t.dtype != torch.float64
        values, grad = t.detach().clone(), t.grad if t.is_leaf else None
        storage = t.untyped_storage().data_ptr()

        @torch.no_grad()
        def put_back() -> None:
            if t.untyped_storage().data_ptr() != storage or not torch.equal(t, values):
                t.data = values.clone() if t.shape != values.shape or t.dtype != values.dtype else t.data.copy_(values)
            if t.is_leaf:
                t.grad = grad

        self._put_back.append(put_back)

    def _keep_dict(self, found: dict[Any, Any]) -> None:
        before = dict(found)

        def put_back() -> None:
            if len(found) != len(before) or any(k not in found or found[k] is not v for k, v in before.items()):
                found.clear()
                found.update(before)

        self._put_back.append(put_back)
        self._todo += before.values()

    def _keep_function(self, function: types.FunctionType) -> None:
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not set yet
                continue
            self._put_back.append(functools.partial(setattr, cell, "cell_contents", value))
            self._todo.append(value)
        self._todo += [function.__defaults__, function.__kwdefaults__]
        if (function.__module__ or "").split(".")[0] in LIBRARIES:
            return
        names = _names(function.__code__) & function.__globals__.keys()
        for name in names:
            value = function.__globals__[name]
            self._put_back.append(functools.partial(function.__globals__.__setitem__, name, value))
            self._todo.append(value)


def _names(code: types.CodeType) -> set[str]:
    """Global names that a function, or one written inside it, uses."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*(_names(c) for c in inner))
