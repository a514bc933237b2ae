"""Devices as commands take them: found, and told where the user has left the choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from creditscope.cli.output import remark
from creditscope.errors import CreditscopeError

if TYPE_CHECKING:
    import torch


def chosen(name: str) -> torch.device:
    """The device of `--device`; which one it is stands on standard error, unless it is the CPU and was asked for."""
    from creditscope.stream.devices import described, device_text, find_device

    device = find_device(name)
    if name != "cpu":
        remark(f"device {device}: {device_text(described(device))}")
    return device


def measuring(name: str) -> torch.device:
    """The same for a measurement, which needs float64: where the device has none it is done on the CPU, and said."""
    from creditscope.stream.devices import CPU, has_float64

    device = chosen(name)
    if has_float64(device):
        return device
    remark(f"{device} has no float64; measured on the CPU")
    return CPU


def several(devices: str, name: str) -> list[str]:
    """`--devices 0,1,2,3`: those of the kind that `--device` names, or of the accelerator that is there."""
    import torch

    from creditscope.stream.devices import accelerator

    try:
        numbers = [int(word) for word in devices.split(",")]
    except ValueError:
        raise CreditscopeError(f"--devices {devices!r} is not a list of numbers; give for example 0,1,2,3") from None
    if len(set(numbers)) < len(numbers):
        raise CreditscopeError(f"--devices {devices} names a device twice; --per-device runs several on each")
    found = accelerator() if name in ("cpu", "auto") else torch.device(name)
    if found is None:
        raise CreditscopeError(f"--devices {devices} needs an accelerator, and this machine has only a CPU")
    there = torch.get_device_module(found.type).device_count()
    if missing := [n for n in numbers if not 0 <= n < there]:
        raise CreditscopeError(
            f"--devices names device {missing[0]}; there are {there} of kind {found.type}, numbered from 0"
        )
    return [f"{found.type}:{n}" for n in numbers]
