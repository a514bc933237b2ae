"""A data set in memory, and the batches that training and measurement read from it.

Images stay raw (uint8) in memory and are normalised batch by batch: that costs 0.1 ms for 128 images, and a normalised
copy of CIFAR-10 would cost 740 MB. `on_device` puts a data set on an accelerator: batches are then cut, cropped and
normalised there, from numbers that are drawn on the CPU and moved once per epoch, to the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from creditscope.data.augment import crops, flipped_windows, padded, random_crops
from creditscope.errors import CreditscopeError

# The evaluation samples are the same for every run, method and seed: facts of two runs are then paired by sample.
EVAL_PERMUTATION_SEED = 20260408
PROFILE_BATCH = 1000
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)  # eq=False: tensors have no single truth value, and identity serves as cache key
class Dataset:
    """Train and test part of one classification task.

    `train_x`, `test_x`: uint8 [N, 3, 32, 32] raw pixels, or float32 [N, d] vectors; `train_y`, `test_y`: int64 [N].
    `mean`, `std`: per channel, for pixels scaled to 0..1; empty for vectors, which are used as they are.
    `input_shape`: the shape of one sample. `augmentable`: random crop and flip keep the label.
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    n_classes: int
    input_shape: tuple[int, ...]
    augmentable: bool
    mean: tuple[float, ...]
    std: tuple[float, ...]


def of_vectors(name: str, x: Array, scores: Array, n_train: int) -> Dataset:
    """Vectors [N, d] with the class of their largest score [N, C]; the first `n_train` are for training."""
    inputs, y = torch.from_numpy(x.astype(np.float32)), torch.from_numpy(scores.argmax(axis=1))
    parts = (inputs[:n_train], y[:n_train], inputs[n_train:], y[n_train:])
    return Dataset(name, *parts, scores.shape[1], (x.shape[1],), augmentable=False, mean=(), std=())


# The padded images of a data set that is trained with augmentation: made at its first epoch, freed with the data set.
_windows: WeakKeyDictionary[Dataset, NDArray[np.uint8]] = WeakKeyDictionary()
_padded: WeakKeyDictionary[Dataset, Tensor] = WeakKeyDictionary()
"""The same for a data set on another device."""
_copies: WeakKeyDictionary[Dataset, dict[torch.device, Dataset]] = WeakKeyDictionary()


def on_device(ds: Dataset, device: torch.device) -> Dataset:
    """The data set with its tensors on `device`; copied there once, for all runs of a process."""
    if ds.train_y.device == device:
        return ds
    copies = _copies.setdefault(ds, {})
    if device not in copies:
        names = ("train_x", "train_y", "test_x", "test_y")
        copies[device] = replace(ds, **{name: getattr(ds, name).to(device) for name in names})
    return copies[device]


def normalise(ds: Dataset, x: Tensor) -> Tensor:
    """Raw samples to network inputs: float32, the shape of `x`; uint8 pixels become (x / 255 - mean) / std."""
    if x.dtype != torch.uint8:
        return x
    scale, shift = _scale_and_shift(ds.mean, ds.std, x.device)
    return x.float().mul_(scale).sub_(shift)


@cache  # made anew for every batch it would cost 0.1 ms
def _scale_and_shift(means: tuple[float, ...], stds: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    mean, std = torch.tensor(means).view(-1, 1, 1), torch.tensor(stds).view(-1, 1, 1)
    return (1 / (255 * std)).to(device), (mean / std).to(device)


def epoch_batches(
    ds: Dataset, batch_size: int, seed: int, epoch: int, augment: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Training batches of one epoch: x float32 [B, *input_shape] contiguous, y int64 [B]; the last one may be smaller.

    Order, crops and flips depend on (seed, epoch) only, so an interrupted run can resume at any epoch; the global
    random state is neither read nor changed. `augment` has no effect on data that are not augmentable.
    """
    _check_batch_size(batch_size)
    generator = torch.Generator().manual_seed(_mix(seed, epoch))
    n = len(ds.train_y)
    order = torch.randperm(n, generator=generator)  # the first that is drawn, as `epoch_order` gives it
    drawn = random_crops(n, generator) if augment and ds.augmentable else ()
    if ds.train_y.device.type != "cpu":
        yield from _batches_there(ds, batch_size, order, drawn)
        return
    if drawn:
        if ds not in _windows:
            _windows[ds] = flipped_windows(ds.train_x)
        flip, top, left = (t.numpy() for t in drawn)
        source: NDArray[Any] = _windows[ds]
        index: tuple[NDArray[Any], ...] = (flip, order.numpy(), top, left)
    else:
        source, index = ds.train_x.numpy(), (order.numpy(),)
    for start in range(0, n, batch_size):
        part = slice(start, start + batch_size)
        # numpy gathers bytes several times faster than torch does
        x = torch.from_numpy(source[tuple(axis[part] for axis in index)])
        yield normalise(ds, x), ds.train_y[order[part]]


def epoch_order(ds: Dataset, seed: int, epoch: int) -> Tensor:
    """Which training samples an epoch reads, in order; int64 [N] on the CPU."""
    return torch.randperm(len(ds.train_y), generator=torch.Generator().manual_seed(_mix(seed, epoch)))


def _batches_there(
    ds: Dataset, batch_size: int, order: Tensor, drawn: tuple[Tensor, ...]
) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of `epoch_batches` on the device of the data; the host waits for nothing."""
    device, n = ds.train_y.device, len(order)
    index, *windows = (t.to(device, non_blocking=True) for t in (order, *drawn))
    if windows and ds not in _padded:
        _padded[ds] = padded(ds.train_x)
    for start in range(0, n, batch_size):
        part = slice(start, start + batch_size)
        rows = index[part]
        x = crops(_padded[ds], rows, *(w[part] for w in windows)) if windows else ds.train_x[rows]
        yield normalise(ds, x), ds.train_y[rows]


def test_batches(ds: Dataset, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """All test samples in their order: x float32 [B, *input_shape], y int64 [B]; never augmented."""
    return _in_order(ds, ds.test_x, ds.test_y, batch_size)


def fit_batches(ds: Dataset, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """All training samples in their order, for readouts: as `test_batches`."""
    return _in_order(ds, ds.train_x, ds.train_y, batch_size)


def profile_batches(ds: Dataset) -> dict[str, Any]:
    """What `diagnose` takes for the depth profile: all training samples to fit, all test samples to test."""
    return {"fit_batches": fit_batches(ds, PROFILE_BATCH), "test_batches": test_batches(ds, PROFILE_BATCH)}


def _in_order(ds: Dataset, x: Tensor, y: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    _check_batch_size(batch_size)
    for start in range(0, len(y), batch_size):
        part = slice(start, start + batch_size)
        yield normalise(ds, x[part]), y[part]


test_batches.__test__ = False  # type: ignore[attr-defined]  # pytest would collect the name where it is imported


def eval_batches(ds: Dataset, n: int = 8, batch_size: int = 128) -> list[tuple[Tensor, Tensor]]:
    """`n` disjoint batches of test samples: x float32 [B, *input_shape], y int64 [B]; the same for every run and seed.

    Batch i holds the same samples whatever `n` is.
    """
    _check_batch_size(batch_size)
    available = len(ds.test_y)
    if n < 1 or n * batch_size > available:
        raise CreditscopeError(
            f"cannot take {n} disjoint batches of {batch_size} from the {available} test samples of {ds.name}; "
            f"ask for 1 to {available // batch_size} batches or a smaller batch size"
        )
    order = torch.from_numpy(np.random.Generator(np.random.PCG64(EVAL_PERMUTATION_SEED)).permutation(available))
    chosen = order[: n * batch_size].view(n, batch_size).to(ds.test_y.device)
    return [(normalise(ds, ds.test_x[rows]), ds.test_y[rows]) for rows in chosen]


def samples_hash(batches: Iterable[tuple[Tensor, Tensor]]) -> str:
    """First 16 hex digits of the SHA-256 of all x bytes followed by all y bytes, however the samples are split."""
    digest, labels = hashlib.sha256(), []
    for x, y in batches:
        digest.update(_bytes(x))
        labels.append(_bytes(y))
    for part in labels:
        digest.update(part)
    return digest.hexdigest()[:16]


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().tobytes()


def _mix(seed: int, epoch: int) -> int:
    """One generator seed out of two numbers; SeedSequence keeps (42, 1) and (43, 0) apart, which a sum would not."""
    if seed < 0 or epoch < 0:
        raise CreditscopeError(f"seed and epoch must not be negative, got seed {seed}, epoch {epoch}; use 0 or more")
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise CreditscopeError(f"batch size must be at least 1, got {batch_size}; 128 is the recipe's")
