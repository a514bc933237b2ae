"""Whatever a rule owns, on another device: tensors, networks, optimisers and rules inside it, wherever they are kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def put(value: Any, device: torch.device) -> Any:
    """Move every tensor inside lists, tuples, mappings, modules and objects that can be moved; what is moved is given back.

    Numbers of the rule's own (seeds, counts) are no tensors and stay.
    """
    if isinstance(value, Tensor):
        return value if value.device == device else _moved(value, device)
    if isinstance(value, nn.Module):
        return value.to(device)
    if isinstance(value, list):
        value[:] = [put(each, device) for each in value]
    if type(value) is tuple:
        return tuple(put(each, device) for each in value)
    if isinstance(value, dict):
        value.update({key: put(each, device) for key, each in value.items()})
    elif not isinstance(value, type) and hasattr(value, "to_device"):
        value.to_device(device)
    elif not isinstance(value, type) and hasattr(value, "credit") and hasattr(value, "to"):  # a rule inside the rule
        value.to(device)
    return value


def _moved(t: Tensor, device: torch.device) -> Tensor:
    there = t.detach().to(device)
    if isinstance(t, nn.Parameter):
        return nn.Parameter(there, requires_grad=t.requires_grad)
    return there.requires_grad_(t.requires_grad)
