"""Where a network is trained and measured: a device by its name, what it is, and full precision on it.

Random numbers never come from here: they are drawn on the CPU and moved, so that they are equal to the bit on every device.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError

CPU = torch.device("cpu")


def find_device(name: str | torch.device) -> torch.device:
    """The device of that name with its index; `auto`: the accelerator that is there, else the CPU. What is not there is
    one line."""
    try:
        found = accelerator() or CPU if name == "auto" else torch.device(name)
    except RuntimeError:
        raise CreditscopeError(f"device {str(name)!r} is unknown; use auto, cpu, cuda, cuda:1, mps, ...") from None
    if found.type == "cpu":
        return CPU
    if found.type == "meta":
        raise CreditscopeError("device 'meta' holds no numbers; nothing can be trained or measured there")
    if (
        found.type == "cuda"
    ):  # read when the first product is computed; without it cuBLAS may add in another order each time
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        return torch.empty(1, device=found).device
    except (RuntimeError, AssertionError, ImportError, NotImplementedError) as error:
        why = " ".join(str(error).split())[:160] or type(error).__name__
        there = accelerator()
        raise CreditscopeError(
            f"device {str(name)!r} cannot be used ({why}); here there is {f'{there} and cpu' if there else 'cpu only'}"
        ) from None


def accelerator() -> torch.device | None:
    """The kind of accelerator that is there."""
    if hasattr(torch, "accelerator"):
        found: torch.device | None = torch.accelerator.current_accelerator()
        return found if found is not None and torch.accelerator.is_available() else None
    if torch.cuda.is_available():  # torch before 2.6
        return torch.device("cuda")
    return torch.device("mps") if torch.backends.mps.is_available() else None


def described(device: torch.device) -> dict[str, Any]:
    """What is recorded of a device: its class and name, what drives it, and the flags that decide its bits."""
    found: dict[str, Any] = {"type": device.type, "name": _name(device), "torch": torch.__version__}
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        found |= {"capability": f"{major}.{minor}", "runtime": torch.version.cuda or torch.version.hip}
        found |= {"driver": _driver(), "cudnn": torch.backends.cudnn.version()}
    if device.type != "cpu":
        found["deterministic"] = torch.are_deterministic_algorithms_enabled()
        found["tf32"] = tf32_allowed()
    return found


def device_text(device: dict[str, Any]) -> str:
    """A recorded device in words: `cuda (NVIDIA A100)`. Runs from before devices were recorded: `cpu`."""
    kind, name = str(device.get("type", "cpu")), str(device.get("name", ""))
    return f"{kind} ({name})" if name and name != kind else kind


def _name(device: torch.device) -> str:
    if device.type == "cpu":
        return _processor()
    module = torch.get_device_module(device)
    return str(module.get_device_name(device)) if hasattr(module, "get_device_name") else device.type


@cache
def _processor() -> str:
    """The name of this machine's processor, as well as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()


def _driver() -> str | None:
    """Version of the driver of the NVIDIA cards; None where the system does not say it."""
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return None


@cache
def has_float64(device: torch.device) -> bool:
    """Can it compute in float64? (Apple's GPUs cannot.)"""
    try:
        return torch.ones(1, dtype=torch.float64, device=device).sum().dtype == torch.float64
    except (RuntimeError, TypeError):
        return False


def dtype_in(model: nn.Module) -> torch.dtype:
    """What a model computes in: the dtype of its first floating-point parameter (float8 only stores, if there is another)."""
    found = [p.dtype for p in model.parameters() if p.is_floating_point()]
    return next((dtype for dtype in found if dtype.itemsize > 1), found[0] if found else torch.float32)


def wide(t: Tensor) -> Tensor:
    """In float64: where it is, or on the CPU where its device has no float64."""
    return t.double() if has_float64(t.device) else t.cpu().double()


@cache
def has_products(device: torch.device, dtype: torch.dtype) -> bool:
    """Does the device multiply matrices of this dtype itself? (Old cards only imitate bfloat16.)"""
    if device.type == "cuda" and dtype == torch.bfloat16:
        return torch.cuda.is_bf16_supported(including_emulation=False)
    try:
        one = torch.ones(1, 1, dtype=dtype, device=device)
        return (one @ one).dtype == dtype
    except (RuntimeError, TypeError):
        return False


def moved(t: Tensor, like: Tensor) -> Tensor:
    """Numbers drawn on the CPU, in the dtype and on the device of `like`; the host does not wait for the copy."""
    return t.to(device=like.device, dtype=like.dtype, non_blocking=True)


def _precisions() -> list[tuple[Any, str]]:
    """What says how products of float32 are rounded, as (owner, attribute): the general settings in front of their parts."""
    found = torch.backends
    if not hasattr(found, "fp32_precision"):  # torch before 2.9
        return [(found.cuda.matmul, "allow_tf32"), (found.cudnn, "allow_tf32")]
    parts = [getattr(found.cudnn, name) for name in ("conv", "rnn")]
    parts += [getattr(found.mkldnn, name) for name in ("matmul", "conv", "rnn")]
    owners = [found, found.cudnn, found.mkldnn, found.cuda.matmul, *parts]
    return [(owner, "fp32_precision") for owner in owners]


ALL_BITS = ("ieee", "none", False)
"""Values of such a setting under which nothing is left out (`none`: as the more general setting says)."""


def tf32_allowed() -> bool:
    """May products of float32 be computed with fewer bits?"""
    return any(getattr(owner, name) not in ALL_BITS for owner, name in _precisions())


@contextmanager
def full_precision() -> Iterator[None]:
    """Products of float32 with all their bits: no TF32, whatever is allowed outside; the settings come back."""
    before = [(owner, name, getattr(owner, name)) for owner, name in _precisions()]
    try:
        for owner, name, value in before:
            if value not in ALL_BITS:
                setattr(owner, name, "ieee" if isinstance(value, str) else False)
        yield
    finally:
        for owner, name, value in before:
            if getattr(owner, name) != value:
                setattr(owner, name, value)


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Kernels that give the same bits at every run; one that has no such form warns. The CPU's are so as they are."""
    if device.type == "cpu":
        yield
        return
    cudnn = torch.backends.cudnn
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    kept = cudnn.deterministic, cudnn.benchmark
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        cudnn.deterministic, cudnn.benchmark = True, False
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        cudnn.deterministic, cudnn.benchmark = kept
