"""A fake accelerator for tests: tensors that hold their numbers on the CPU and behave as those of another device do.

`accelerator()` makes device `fake` (two of them, `fake:0` and `fake:1`) usable inside it. What fails there, as it would or should
on a real one:

- an operation on tensors of two devices (a CPU scalar beside a tensor is allowed, as it is on CUDA);
- random numbers drawn on the device;
- float64, where the device is made without it (`float64=False`, as Apple's GPUs are).

What makes the host wait is counted in `waits`: reading a number or a tensor, a result whose shape depends on numbers, a copy to
the device that waits. Arithmetic is that of the CPU, so a run on it must equal the CPU's to the bit.

The device is registered for the life of the process: use it in a process of its own.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

aten = torch.ops.aten
COPIES = (aten._to_copy.default, aten.copy_.default)
SHAPED_BY_NUMBERS = {"nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount", "equal"}


class Module(_DummyBackendModule):
    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def get_device_name(self, device: Any = None) -> str:
        return "Fake accelerator"

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


_setup_privateuseone_for_python_backend("fake", backend_module=Module())
_autocast = torch.library.Library("_", "IMPL")
_autocast.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")  # nothing is cast there


class _Memory:
    """Of a tensor on `fake`: an address that no tensor of the CPU has."""

    def __init__(self, numbers: Tensor) -> None:
        self._address = -numbers.untyped_storage().data_ptr()

    def data_ptr(self) -> int:
        return self._address


class FakeTensor(Tensor):
    """A tensor on `fake`; its numbers are in `_numbers`, on the CPU."""

    _numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor, device: torch.device) -> FakeTensor:
        made: Any = Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=device,
        )
        made._numbers = numbers
        return made

    def __init__(self, *_: Any) -> None:
        pass

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"<{self.dtype} {list(self.shape)} on {self.device}>"

    def __tensor_flatten__(self) -> Any:  # with it a module exchanges its parameters whole when it is moved or cast
        return ["_numbers"], self.device

    @staticmethod
    def __tensor_unflatten__(inner: Any, device: Any, *_: Any) -> FakeTensor:
        return FakeTensor(inner["_numbers"], device)

    @property
    def data(self) -> Tensor:
        return Tensor.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, other: Any) -> None:
        Tensor.data.__set__(self, other)  # type: ignore[attr-defined]
        self._numbers = other._numbers

    def untyped_storage(self) -> Any:
        return _Memory(self._numbers)

    def tolist(self) -> Any:  # torch's own refuses subclasses
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        assert _active, f"{func} on the fake accelerator outside `accelerator()`"
        return _active[-1].run(func, args, kwargs or {})


_active: list[Accelerator] = []


class Accelerator(TorchDispatchMode):
    def __init__(self, float64: bool = True) -> None:
        super().__init__()
        self.float64 = float64
        self.waits: list[str] = []
        """Where the host waited for the device: operation and line."""
        self.operations = 0
        """Run on the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.run(func, args, kwargs or {})

    def wait(self, func: Any) -> None:
        stack = [f for f in traceback.extract_stack() if "/creditscope/" in f.filename]
        place = f"{stack[-1].filename.rsplit('/creditscope/', 1)[1]}:{stack[-1].lineno}" if stack else "a test"
        self.waits.append(f"{func} in {place}")

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
        fakes = [t for t in tensors if isinstance(t, FakeTensor)]
        asked = kwargs.get("device")
        target = torch.device(asked) if asked is not None else fakes[0].device if fakes else torch.device("cpu")
        target = torch.device("fake", target.index or 0) if target.type == "fake" else target
        if target.type != "fake" and not fakes:
            return func(*args, **kwargs)
        self._refuse(func, args, tensors, fakes, target)
        name = func.overloadpacket.__name__
        if func is aten._to_copy.default and target.type == "cpu":
            self.wait(func)
            return func(*tree_map(_numbers, args), **kwargs)
        if func is aten.copy_.default and not isinstance(args[0], FakeTensor):
            self.wait(func)
            return func(*tree_map(_numbers, args), **kwargs)
        into = func in COPIES and any(not isinstance(t, FakeTensor) and t.dim() for t in tensors)
        blocking = not (kwargs.get("non_blocking") or (func is aten.copy_.default and args[2:3] == (True,)))
        if name == "_local_scalar_dense" or name in SHAPED_BY_NUMBERS or _masked(func, args) or (into and blocking):
            self.wait(func)
        self.operations += 1
        if "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu"), "pin_memory": False}
            if "pin_memory" not in {a.name for a in func._schema.arguments}:
                del kwargs["pin_memory"]
        if func is aten._efficientzerotensor.default:  # a zero without memory: the wrapper would hide that it is one
            func = aten.zeros.default
        out = func(*tree_map(_numbers, args), **tree_map(_numbers, kwargs))
        out = tree_map(lambda t: FakeTensor(t, target) if isinstance(t, Tensor) else t, out)
        if not fakes or func is aten._to_copy.default:
            return out
        return return_and_correct_aliasing(func, args, kwargs, out)

    def _refuse(
        self, func: Any, args: Any, tensors: list[Tensor], fakes: list[FakeTensor], target: torch.device
    ) -> None:
        if torch.Tag.nondeterministic_seeded in func.tags and func is not aten._to_copy.default:
            raise RuntimeError(f"{func} draws random numbers on {target}; draw them on the CPU and move them")
        if func not in COPIES:
            devices = {str(t.device) for t in tensors if isinstance(t, FakeTensor) or t.dim()}
            if len(devices) > 1:
                raise RuntimeError(f"Expected all tensors to be on the same device, found {sorted(devices)} in {func}")
        if not self.float64 and target.type == "fake":
            wide = [t for t in fakes if t.dtype == torch.float64]
            if wide or any(a is torch.float64 for a in tree_flatten((args, ()))[0]):
                raise TypeError("the device has no float64")


def _masked(func: Any, args: Any) -> bool:
    """Is it indexing by a mask, whose result has as many rows as the mask has ones?"""
    if func not in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default):
        return False
    return any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])


def _numbers(t: Any) -> Any:
    return t._numbers if isinstance(t, FakeTensor) else t


class _Made(TorchFunctionMode):
    """`torch.tensor(numbers, device="fake")`: made on the CPU and copied, as torch does it under its own modes' eyes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            device = torch.device(kwargs.pop("device"))
            return func(*args, **kwargs).to(device)
        return func(*args, **kwargs)


@contextmanager
def accelerator(float64: bool = True) -> Iterator[Accelerator]:
    made = Accelerator(float64)
    _active.append(made)
    try:
        with made, _Made():
            yield made
    finally:
        _active.pop()
