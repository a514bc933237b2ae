"""One evaluation batch, whatever form a loader gives it, as (inputs, labels); and the call of a model on such inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from creditscope.errors import CreditscopeError

LABEL_KEYS = ("labels", "label", "y", "targets", "target")


def split_batch(item: Any) -> tuple[Any, Tensor]:
    """(x, y) or {"labels": y, ...} -> (inputs, y). Inputs stay as they are: a tensor, a tuple or a mapping."""
    if isinstance(item, Mapping):
        key = next((k for k in LABEL_KEYS if k in item), None)
        if key is None:
            raise CreditscopeError(
                f"a batch has the keys {sorted(map(str, item))} and none is a label; name it one of {', '.join(LABEL_KEYS)}"
            )
        return {k: v for k, v in item.items() if k != key}, torch.as_tensor(item[key])
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], torch.as_tensor(item[1])
    what = f"{type(item).__name__} of length {len(item)}" if hasattr(item, "__len__") else type(item).__name__
    raise CreditscopeError(f"a batch is a {what}; give (x, y) pairs or mappings with a 'labels' entry")


def call_model(model: nn.Module, inputs: Any, **kwargs: Any) -> Any:
    """model(x), model(*inputs) or model(**inputs), by the form of the inputs."""
    if isinstance(inputs, Mapping):
        return model(**inputs, **kwargs)
    if isinstance(inputs, tuple | list):
        return model(*inputs, **kwargs)
    return model(inputs, **kwargs)


def logits_of(output: Any) -> Tensor:
    """The logits in a model's output: the tensor itself, its `.logits`, its "logits" entry or its first element."""
    if isinstance(output, Tensor):
        return output
    found = getattr(output, "logits", None)
    if found is None and isinstance(output, Mapping):
        found = output.get("logits")
    if found is None and isinstance(output, tuple | list) and output:
        found = output[0]
    if not isinstance(found, Tensor):
        raise CreditscopeError(f"the model returned {type(output).__name__} without logits; return a tensor of logits")
    return found


def tensors_of(inputs: Any) -> list[Tensor]:
    return [t for t in tree_flatten(inputs)[0] if isinstance(t, Tensor)]


def map_samples(inputs: Any, batch_size: int, fn: Any) -> Any:
    """Apply `fn` to every tensor whose first dimension is the batch."""
    return tree_map(lambda t: fn(t) if isinstance(t, Tensor) and t.dim() and len(t) == batch_size else t, inputs)
