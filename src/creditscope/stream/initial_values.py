"""How a module starts: whether its `reset_parameters` gives what its constructor gives, and starting it again by that.

A constructor is read as bytecode (it is there where the source is not): one that calls an in-place function, `nn.init` or
the like, sets weights in its own way, which cannot be repeated from outside. A class that knows better says
`resets_as_constructed = True`.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType

from torch import nn

RESETS = ("reset_parameters", "_reset_parameters")
SETTERS = {
    "init",
    "apply",
    "data",
    "no_grad",
    "inference_mode",
    "load_state_dict",
    "vector_to_parameters",
    "post_init",
    "set_",
    "init_empty_weights",
}
"""Names whose use in a constructor means that it sets weights, beside every public name that ends in an underscore."""
USUAL = re.compile(r"(q_|k_|v_|in_)?(proj_)?(weight|bias)(_(k|v|ih|hh|hr)(_l\d+)?(_reverse)?)?|weight_\w+_l\d+\w*")
"""Names of parameters that the constructors of torch's layers give (others come from weight norm and its like)."""


def start_again(module: nn.Module, except_for: Iterable[nn.Module] = ()) -> None:
    """Initialise a module as its constructor does: its parts first, then itself. Ask `unknown_start` of all parts before."""
    left = set(map(id, except_for))
    if id(module) in left:
        return
    for child in module.children():
        start_again(child, except_for)
    for name in RESETS:
        if _resets(type(module), name):
            getattr(module, name)()


def unknown_start(module: nn.Module, tied: bool = False) -> str:
    """Why it is not known how this module itself starts (its parts apart); "" where it is known."""
    cls = type(module)
    if hasattr(module, "parametrizations"):
        return f"{cls.__name__} is parametrised"
    own = [name for name, _ in module.named_parameters(recurse=False)]
    if reason := sets_weights(cls, tied):
        return reason
    if own and not any(_resets(cls, name) for name in RESETS):
        missing = (
            "has no reset_parameters()" if not hasattr(module, RESETS[0]) else "does not call reset_parameters() itself"
        )
        return f"{cls.__name__} owns {own[0]!r} and {missing}"
    if _torch(cls) and (odd := [name for name in own if not USUAL.fullmatch(name)]):
        return f"{cls.__name__} owns {odd[0]!r}, which its constructor does not make"
    return ""


def sets_weights(cls: type[nn.Module], tied: bool = False) -> str:
    """Why the constructor of this class sets weights in its own way, of itself or of its parts; "" where it does not.

    `tied`: assigning one module's weight to another is what makes tied weights, and sets nothing.
    """
    if cls is nn.Transformer:
        return "the constructor of nn.Transformer sets the weights of its parts"
    if vars(cls).get("resets_as_constructed", False):
        return ""
    for parent in cls.__mro__:
        if parent is nn.Module or _torch(parent):
            break
        constructor = vars(parent).get("__init__")
        if isinstance(constructor, FunctionType) and (name := next(_setters(constructor, cls, tied, set()), None)):
            return f"the constructor of {parent.__name__} sets weights ({name})"
    return ""


def _torch(cls: type) -> bool:
    return cls.__module__.startswith("torch.nn.")


def _resets(cls: type[nn.Module], name: str) -> bool:
    """Does the constructor end with this method, so that calling it again starts the module's own parameters again?"""
    if not callable(getattr(cls, name, None)):
        return False
    if vars(cls).get("resets_as_constructed", False):
        return True
    for parent in cls.__mro__:
        if _torch(parent) and callable(getattr(parent, name, None)):
            return True  # torch's own constructors call it
        constructor = vars(parent).get("__init__")
        if isinstance(constructor, FunctionType) and any(
            name in code.co_names for code in _codes(constructor.__code__)
        ):
            return True
    return False


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _setters(function: FunctionType, cls: type[nn.Module], tied: bool, seen: set[object]) -> Iterator[str]:
    """Names by which a function, or one that it calls, sets weights."""
    seen.add(function)
    for code in _codes(function.__code__):
        for name in code.co_names:
            known = function.__globals__.get(name)
            in_place = name.endswith("_") and not name.startswith("_") and not isinstance(known, type)
            if name in SETTERS or in_place:
                yield name
            elif name not in RESETS:
                called = known if isinstance(known, FunctionType) else _method(cls, name)
                if (
                    isinstance(called, FunctionType)
                    and called not in seen
                    and not called.__module__.startswith("torch.")
                ):
                    yield from _setters(called, cls, tied, seen)
        if "setattr" in code.co_names and {"weight", "bias"} & set(map(str, code.co_consts)):
            yield "setattr"
        before = None
        for step in dis.get_instructions(code):
            assigned = step.opname == "STORE_ATTR" and step.argval in ("weight", "bias")
            if assigned and not tied and before is not None and not before.opname.startswith("LOAD_FAST"):
                yield f"{step.argval} of a part"
            before = step


def _method(cls: type[nn.Module], name: str) -> object:
    """A method that a class of the user's defines."""
    for parent in cls.__mro__:
        if parent is nn.Module or _torch(parent):
            return None
        if name in vars(parent):
            return vars(parent)[name]
    return None
