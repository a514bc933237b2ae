"""A model as its author wrote it: without the wrapper of a compiler or of data parallelism, and run step by step."""

from __future__ import annotations

import copy
import functools
import sys
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.utils.checkpoint as checkpointing
from torch import nn
from torch.nn.parameter import is_lazy

from creditscope.errors import CreditscopeError
from creditscope.stream.devices import full_precision


def original(model: Any) -> Any:
    """The module inside torch.compile, DataParallel or DistributedDataParallel; any other object as it is.

    Its parameters are the same tensors, so what is measured on it holds for the wrapped one.
    """
    while isinstance(model, nn.Module) and not isinstance(model, torch.jit.ScriptModule):
        inner = model._modules.get("_orig_mod")  # torch.compile
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if inner is None:
            break
        model = inner
    return model


def require_usable(model: nn.Module) -> None:
    """One line where a model cannot be measured whatever the batch is."""
    if isinstance(model, torch.jit.ScriptModule):
        raise CreditscopeError("the model is compiled by TorchScript, which hooks cannot see; give the module itself")
    for name, p in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(p):
            raise CreditscopeError(f"{name!r} is not initialised yet (a lazy module); run the model on a batch first")
        if p.is_meta:
            raise CreditscopeError(f"{name!r} is on the meta device and has no values; load the weights first")
        if p.is_inference():
            raise CreditscopeError(
                f"{name!r} was made inside torch.inference_mode() and can never carry gradients; build the model outside"
            )


def copied(model: nn.Module) -> nn.Module:
    """A deep copy; one line where there is none."""
    require_usable(model)
    try:
        twin = copy.deepcopy(model)
    except Exception as error:  # it is the user's code: anything may come, and it is told as it is
        why = " ".join((str(error) or type(error).__name__).split())[:120]
        raise CreditscopeError(
            f"{type(model).__name__} cannot be copied ({why}); modules must not keep what a forward pass made: give a new model "
            "with the same weights"
        ) from error
    own = {id(module) for module in model.modules()}
    for name, module in twin.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, types.FunctionType | types.MethodType) and _holds(value, own):
                whose = f"module {name!r}" if name else "the model"
                raise CreditscopeError(
                    f"{type(model).__name__} cannot be copied: {key!r} of {whose} is a function that holds modules of the "
                    "original network, with whose weights a copy would go on computing; write it as a method"
                )
    return twin


def _holds(function: Any, modules: set[int]) -> bool:
    """Does a function keep one of these modules, in its closure, its defaults or as the object that it is bound to?

    A deep copy takes functions as they are; a bound method is bound to the copy.
    """
    todo, seen = [function], set()
    while todo:
        found = todo.pop()
        if id(found) in modules:
            return True
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, types.MethodType):
            todo += [found.__func__, found.__self__]
        elif isinstance(found, functools.partial):
            todo += [found.func, *found.args, *found.keywords.values()]
        elif isinstance(found, types.FunctionType):
            todo += [*(found.__defaults__ or ()), *(found.__kwdefaults__ or {}).values()]
            todo += [cell.cell_contents for cell in found.__closure__ or () if not _is_empty(cell)]
    return False


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


@contextmanager
def eagerly(model: nn.Module) -> Iterator[None]:
    """All inside `model` runs uncompiled, outside autocast, TF32 and inference mode, with checkpoints that hooks can see."""
    devices = {p.device.type for p in model.parameters()} - {"meta"}
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        for device in devices | {"cpu"}:
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(full_precision())
        stack.enter_context(_uncompiled(model))
        stack.enter_context(_no_compiler())
        stack.enter_context(_non_reentrant())
        stack.enter_context(_no_fast_path())
        yield


@contextmanager
def _no_fast_path() -> Iterator[None]:
    """torch's own encoder computes padded tokens otherwise where no gradient is wanted: one way for all passes."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def _uncompiled(model: nn.Module) -> Iterator[None]:
    """Parts that were compiled on their own (`torch.compile(part)`, `part.compile()`) run as they were written."""
    wrapped = [m for m in model.modules() if "_orig_mod" in m._modules]
    forwards = [m.__dict__["forward"] for m in wrapped]
    compiled = [(m, m._compiled_call_impl) for m in model.modules() if getattr(m, "_compiled_call_impl", None)]
    try:
        for m in wrapped:
            m.__dict__["forward"] = m.get_submodule("_orig_mod").__call__
        for m, _ in compiled:
            m._compiled_call_impl = None
        yield
    finally:
        for m, forward in zip(wrapped, forwards, strict=True):
            m.__dict__["forward"] = forward
        for m, call in compiled:
            m._compiled_call_impl = call


@contextmanager
def _no_compiler() -> Iterator[None]:
    """Functions that were compiled (`@torch.compile` above a `forward`) run as they were written, where hooks are seen."""
    if "torch._dynamo" not in sys.modules or not hasattr(torch.compiler, "set_stance"):  # nothing was; torch before 2.6
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


class _NonReentrant:
    """Stands in for torch's reentrant checkpoint: the same recomputation, by the kind that keeps a graph.

    The reentrant kind runs its part without a graph (a hook in it sees no gradient) and refuses `torch.autograd.grad`.
    """

    @staticmethod
    def apply(function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        return checkpointing.checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve_rng_state)


@contextmanager
def _non_reentrant() -> Iterator[None]:
    before = checkpointing.CheckpointFunction
    checkpointing.CheckpointFunction = _NonReentrant  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        checkpointing.CheckpointFunction = before  # type: ignore[misc]
