"""A network that is known by its arrays only: states and gradients that another framework has computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex

import numpy as np
import torch
import torch.utils.dlpack
from torch import Tensor, nn

from creditscope.errors import CreditscopeError, meant, with_article
from creditscope.stream.interface import READS, Stream, Tap
from creditscope.stream.notes import GIVEN_AS_ARRAYS

LossFrom = Callable[[int, Any, Any], Any]
"""loss_from(layer, h, y) -> the loss of each sample [n], when a run starts at h_layer = h (numpy, float64, [n, ...]); y: the
labels of these samples."""
KEYS = ("h", "g", "a", "logits", "labels", "losses", "x", "twin")
"""Entries of a batch of arrays."""
EACH = "each"
"""batch_size: the loss is averaged over each batch as it is given."""
MAX_BATCH = 2**31
HALF = (torch.float16, torch.bfloat16)
ON_CPU = 1
"""kDLCPU of the DLPack protocol."""


def as_tensor(value: Any, what: str) -> Tensor:
    """A numpy, JAX or torch array, or anything with `__dlpack__` or `__array__`, as a tensor on the CPU. Values are kept."""
    try:
        t = _converted(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        why = " ".join(str(error).split())[:120]
        raise CreditscopeError(
            f"{what} is {with_article(value)} that is not an array of numbers ({why}); give numpy, JAX or torch arrays"
        ) from None
    if t.dtype not in DTYPES:
        raise CreditscopeError(f"{what} has dtype {t.dtype}; give real numbers or integers")
    return t


def _converted(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().cpu().to_dense()
    if np.ma.is_masked(value):
        raise TypeError("entries are masked")
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray) and _on_cpu(value):
        return torch.utils.dlpack.from_dlpack(value)
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":  # of ml_dtypes: torch does not know it by name
        return torch.from_numpy(array.view(np.uint16).astype(np.int32)).to(torch.int16).view(torch.bfloat16)
    if array.dtype.name not in NUMBERS:
        raise TypeError(f"it has dtype {array.dtype}")
    return torch.from_numpy(np.array(array, dtype=NUMBERS[array.dtype.name], order="C"))


DTYPES = (*HALF, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
NUMBERS = {name: name for name in ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")}
NUMBERS |= {"uint16": "int64", "uint32": "int64"}
"""dtypes that torch computes with, by the numpy dtype that an array may have."""


def _on_cpu(value: Any) -> bool:
    try:
        return int(value.__dlpack_device__()[0]) == ON_CPU
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return False


class RecordedStream(Stream):
    """Shapes and reading of recorded states. It runs only by `loss_from`: what that answers stands where logits stand."""

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        kind: str,
        read: str | None,
        dtype: torch.dtype,
        loss_from: LossFrom | None,
    ) -> None:
        self.shapes = [tuple(shape) for shape in shapes]
        self.depth = len(self.shapes) - 1
        self.kind = kind
        self.read = self._checked(read)
        self.model = nn.Module()  # holds nothing but the dtype of the network
        self.model.register_parameter("dtype", nn.Parameter(torch.empty(0, dtype=dtype), requires_grad=False))
        self.loss_from = loss_from
        self.notes = (GIVEN_AS_ARRAYS,)

    def _checked(self, read: str | None) -> str:
        dims = {len(shape) for shape in self.shapes}
        if read is not None and read not in READS:
            raise CreditscopeError(f"read {read!r} is unknown; choose one of {', '.join(READS)}")
        if dims == {1}:
            if read not in (None, "vector"):
                raise CreditscopeError(f"read is {read!r} and every h_l is a vector per sample; leave it out")
            return "vector"
        if 2 in dims and read in (None, "vector"):
            raise CreditscopeError(
                f"h_{[len(s) for s in self.shapes].index(2)} has shape [B, tokens, d]; say what the head reads: read='cls', "
                "'last', 'mean' or 'flatten'"
            )
        if 2 not in dims and read not in (None, "flatten"):
            raise CreditscopeError(f"read is {read!r} and no h_l has shape [B, tokens, d]; leave it out")
        return read or "flatten"

    def forward(self, inputs: Any, tap: Tap) -> Tensor:
        raise CreditscopeError("a network that was given as arrays cannot be run; give loss_from")

    def on(self, model: nn.Module, example: Any) -> Stream:
        raise CreditscopeError("a network that was given as arrays cannot be run; give loss_from")

    def logits_from(self, layer: int, h: Tensor, inputs: Any) -> Tensor:
        """The losses [n] of runs that start at h_layer = h; inputs: the labels of the samples."""
        if self.loss_from is None:
            raise CreditscopeError("a network that was given as arrays cannot be run; give loss_from")
        try:
            given = self.loss_from(layer, h.double().numpy(), inputs.numpy())
        except CreditscopeError:
            raise
        except Exception as error:  # it is the user's code: anything may come, and it is told as it is
            why = " ".join(f"{type(error).__name__}: {error}".split())[:240]
            raise CreditscopeError(f"loss_from raised {why} at layer {layer}") from error
        losses = as_tensor(given, "what loss_from returned")
        if losses.shape != (len(h),) or not losses.is_floating_point():
            raise CreditscopeError(
                f"loss_from returned {losses.dtype} of shape {list(losses.shape)} at layer {layer} for {len(h)} samples; return "
                "one loss per sample"
            )
        return losses

    def variants(self, states: Sequence[tuple[int, Tensor]], inputs: Any) -> Tensor:
        return torch.cat([self.logits_from(layer, h, inputs) for layer, h in states])


@dataclass
class ArrayBatch:
    """One batch as tensors; native shapes."""

    n: int
    h: list[Tensor]
    g: list[Tensor]
    a: list[Tensor | None] | None
    logits: Tensor | None
    labels: Tensor | None
    losses: Tensor | None
    x: Tensor | None
    twin: list[Tensor] | None

    @property
    def y(self) -> Tensor:
        """The labels; zeros where there are none (what needs them is refused before)."""
        return torch.zeros(self.n, dtype=torch.int64) if self.labels is None else self.labels


class ArrayBatches:
    """Reads mappings of arrays; the first one decides shapes and entries."""

    def __init__(self, kind: str, read: str | None, dtype: str | None, loss_from: LossFrom | None) -> None:
        self._made = kind, read, loss_from
        self._dtype = dtype
        self._stream: RecordedStream | None = None
        self._entries: dict[str, frozenset[str]] = {}

    @property
    def stream(self) -> RecordedStream:
        assert self._stream is not None
        return self._stream

    @property
    def dtype_name(self) -> str:
        return str(next(self.stream.model.parameters()).dtype).removeprefix("torch.")

    def read(self, batches: Any, name: str, needed: tuple[str, ...]) -> Iterator[ArrayBatch]:
        try:
            items = iter([batches] if isinstance(batches, Mapping) else batches)
        except TypeError:
            raise CreditscopeError(
                f"{name} is {with_article(batches)}; give a mapping with h and g, or an iterable of such mappings"
            ) from None
        for k, item in enumerate(items):
            batch = self._one(item, f"batch {k} of {name}", name, needed)
            if batch.n:
                yield batch

    def _one(self, item: Any, where: str, name: str, needed: tuple[str, ...]) -> ArrayBatch:
        if not isinstance(item, Mapping):
            raise CreditscopeError(
                f"{where} is {with_article(item)}; give a mapping with the entries {', '.join(needed)}"
            )
        for key in item:
            if key not in KEYS:
                raise CreditscopeError(
                    f"{where} has an entry {key!r}; {meant(str(key), KEYS)}entries are {', '.join(KEYS)}"
                )
        given = {key: value for key, value in item.items() if value is not None}
        if lacking := [key for key in needed if key not in given]:
            raise CreditscopeError(f"{where} has no entry {lacking[0]!r}; give {', '.join(needed)}")
        entries = self._entries.setdefault(name, frozenset(given))
        if entries != frozenset(given):
            odd = sorted(entries ^ frozenset(given))[0]
            raise CreditscopeError(
                f"{where} and the first batch differ in the entry {odd!r}; give every batch the same entries"
            )
        h = self._layers(given["h"], f"h of {where}")
        n = len(h[0])
        self._fit(h, n, where, "g" in given, given)
        shapes = [(n, *shape) for shape in self.stream.shapes]
        g = self._alike(given, "g", shapes, where) if "g" in given else []
        twin = self._alike(given, "twin", shapes, where) if "twin" in given else None
        a = _credits(given["a"], len(h), where) if "a" in given else None
        rows = {key: self._rows(given, key, n, where) for key in ("logits", "labels", "losses", "x")}
        if rows["losses"] is not None and rows["losses"].shape != (n,):
            raise CreditscopeError(
                f"losses of {where} have shape {list(rows['losses'].shape)}; give one loss per sample [{n}]"
            )
        return ArrayBatch(n, h, g, a, rows["logits"], rows["labels"], rows["losses"], rows["x"], twin)

    def _layers(self, given: Any, what: str) -> list[Tensor]:
        values = _list(given, what)
        if len(values) < 2:
            raise CreditscopeError(f"{what} has {len(values)} layers; give h_0 to h_L, two or more")
        layers = [as_tensor(value, f"entry {k} of {what}") for k, value in enumerate(values)]
        for k, t in enumerate(layers):
            if not t.is_floating_point() or t.dim() < 2 or len(t) != len(layers[0]) or (not t[:1].numel() and len(t)):
                raise CreditscopeError(
                    f"entry {k} of {what} is {t.dtype} of shape {list(t.shape)}; give floating-point numbers with one row per "
                    f"sample, [{len(layers[0]) if layers[0].dim() else 'B'}, ...]"
                )
        return layers

    def _fit(self, h: list[Tensor], n: int, where: str, first: bool, given: Mapping[str, Any]) -> None:
        shapes = [tuple(t.shape[1:]) for t in h]
        if self._stream is None and first:
            kind, read, loss_from = self._made
            dtype = self._dtype or str(as_tensor(_list(given["g"], "g")[-1], "g").dtype).removeprefix("torch.")
            if dtype not in ("float16", "bfloat16", "float32", "float64"):
                raise CreditscopeError(f"dtype of the network is {dtype!r}; give float16, bfloat16, float32 or float64")
            self._stream = RecordedStream(shapes, kind, read, getattr(torch, dtype), loss_from)
            if kind == "residual" and len(set(shapes)) > 1:
                raise CreditscopeError(
                    f"the states have the shapes {', '.join(str(list(s)) for s in dict.fromkeys(shapes))}; the states of a "
                    "residual stream have one shape (say kind='plain' if h_{l+1} = f_l(h_l))"
                )
        if shapes != self.stream.shapes:
            k = next(
                (k for k, (s, t) in enumerate(zip(shapes, self.stream.shapes, strict=False)) if s != t), len(shapes)
            )
            raise CreditscopeError(
                f"h of {where} does not have the layers and shapes of the first batch (see h_{k}); give batches of one network"
            )

    def _alike(self, given: Mapping[str, Any], key: str, shapes: list[tuple[int, ...]], where: str) -> list[Tensor]:
        values = _list(given[key], f"{key} of {where}")
        if len(values) != len(shapes):
            raise CreditscopeError(
                f"{key} of {where} has {len(values)} layers and h has {len(shapes)}; give one for each h_l"
            )
        layers = [as_tensor(value, f"{key}_{k} of {where}") for k, value in enumerate(values)]
        for k, (t, shape) in enumerate(zip(layers, shapes, strict=True)):
            if tuple(t.shape) != shape or not t.is_floating_point():
                raise CreditscopeError(
                    f"{key}_{k} of {where} is {t.dtype} of shape {list(t.shape)} and h_{k} is {list(shape)}; they must agree"
                )
        return layers

    def _rows(self, given: Mapping[str, Any], key: str, n: int, where: str) -> Tensor | None:
        if key not in given:
            return None
        t = as_tensor(given[key], f"{key} of {where}")
        if key in ("logits", "losses") and not t.is_floating_point():
            raise CreditscopeError(f"{key} of {where} have dtype {t.dtype}; give floating-point numbers")
        if not t.dim() or len(t) != n:
            raise CreditscopeError(
                f"{key} of {where} have shape {list(t.shape)} for {n} samples; give one row per sample"
            )
        return t


def _list(given: Any, what: str) -> list[Any]:
    """A sequence of arrays, or one array whose first axis is the layer."""
    if isinstance(given, str | bytes | Mapping) or not hasattr(given, "__len__") or not hasattr(given, "__getitem__"):
        raise CreditscopeError(f"{what} is {with_article(given)}; give a list of arrays, one per layer")
    try:
        return [given[k] for k in range(len(given))]
    except TypeError:  # a 0-d array
        raise CreditscopeError(f"{what} is a single number; give a list of arrays, one per layer") from None


def _credits(given: Any, layers: int, where: str) -> list[Tensor | None]:
    values = _list(given, f"a of {where}")
    if len(values) != layers:
        raise CreditscopeError(
            f"a of {where} has {len(values)} layers and h has {layers}; give one for each h_l, None where there is none"
        )
    return [None if value is None else as_tensor(value, f"a_{k} of {where}") for k, value in enumerate(values)]


class Reduction:
    """Undoes the mean over samples that a gradient was taken of."""

    def __init__(self, reduction: str, batch_size: int | str | None) -> None:
        if isinstance(batch_size, SupportsIndex) and not isinstance(batch_size, bool):
            batch_size = index(batch_size)  # an integer of numpy, too
        self.reduction, self.size = reduction, batch_size
        self.note = ""
        if reduction == "sum":
            if batch_size is not None:
                raise CreditscopeError(
                    f"batch_size is {batch_size!r} with reduction='sum'; it is for reduction='mean' only"
                )
            return
        good = batch_size == EACH or (type(batch_size) is int and 0 < batch_size < MAX_BATCH)
        if not good:
            raise CreditscopeError(
                f"batch_size is {batch_size!r} with reduction='mean'; give the number of samples that the loss was averaged "
                "over, or 'each' where that is the length of each batch"
            )
        over = "each batch" if batch_size == EACH else f"{batch_size} samples"
        self.note = (
            f"given as the gradient of a mean over {over}, and multiplied by their number: of each sample's own loss"
        )

    def __call__(self, g: Tensor, n: int) -> Tensor:
        if self.reduction == "sum":
            return g
        return (g.float() if g.dtype in HALF else g) * (n if self.size == EACH else int(self.size or 1))
