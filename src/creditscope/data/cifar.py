"""CIFAR-10 and CIFAR-100 from the official files: binary layout, python layout, or the archive of either.

Where they are looked for: the directory the user names, else $CREDITSCOPE_DATA, else ~/.cache/creditscope. In it: the
layout's files, the layout's directory, or the archive; failing all, the official binary archive is downloaded there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from creditscope.data.cifar_archive import MAX_PICKLE_OVERHEAD, Layout, download, extract
from creditscope.data.cifar_pickle import load_pickle
from creditscope.data.dataset import Dataset
from creditscope.errors import CreditscopeError

PIXELS = 3 * 32 * 32
URL = "https://www.cs.toronto.edu/~kriz/"
Files = tuple[tuple[str, int], ...]
"""(name in the python layout, number of records) of each; in the binary layout the name ends in .bin."""
Samples = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Pixels [n, 3072] and labels [n] of one file."""


@dataclass(frozen=True)
class CifarSpec:
    """What the official files of one data set must look like."""

    name: str
    n_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    binary_dir: str
    python_dir: str
    binary_archive: str
    binary_md5: str
    python_archive: str
    train: Files
    test: Files
    label_limits: tuple[int, ...]  # per label byte of a binary record, labels are below it; the last byte is the label
    label_key: str  # the labels in the python layout


CIFAR10 = CifarSpec(
    name="cifar10",
    n_classes=10,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    binary_dir="cifar-10-batches-bin",
    python_dir="cifar-10-batches-py",
    binary_archive="cifar-10-binary.tar.gz",
    binary_md5="c32a1d4ab5d03f1284b67883e8d87530",
    python_archive="cifar-10-python.tar.gz",
    train=tuple((f"data_batch_{i}", 10_000) for i in range(1, 6)),
    test=(("test_batch", 10_000),),
    label_limits=(10,),
    label_key="labels",
)
CIFAR100 = CifarSpec(
    name="cifar100",
    n_classes=100,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    binary_dir="cifar-100-binary",
    python_dir="cifar-100-python",
    binary_archive="cifar-100-binary.tar.gz",
    binary_md5="03b5dce01913d631647c71ecec9e9cb8",
    python_archive="cifar-100-python.tar.gz",
    train=(("train", 50_000),),
    test=(("test", 10_000),),
    label_limits=(20, 100),  # coarse, fine
    label_key="fine_labels",
)
SPECS = {spec.name: spec for spec in (CIFAR10, CIFAR100)}


def load_cifar(name: str, data_dir: str | Path | None = None) -> Dataset:
    """`cifar10` or `cifar100` (fine labels); images raw uint8 [50000 and 10000, 3, 32, 32]."""
    return load_from(SPECS[name], data_root(data_dir))


def data_root(data_dir: str | Path | None) -> Path:
    """The directory where data files are looked for and downloaded to."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    return Path(os.environ.get("CREDITSCOPE_DATA") or "~/.cache/creditscope").expanduser()


def load_from(spec: CifarSpec, root: Path) -> Dataset:
    """The data set that `spec` describes, from `root`; extracted or downloaded there if it has to be."""
    if root.exists() and not root.is_dir():
        raise CreditscopeError(f"data directory {root} is not a directory; name the directory that holds the files")
    binary, python = _layouts(spec)
    found = _find(binary, root) or _find(python, root)
    if found is None:
        layout = next((each for each in (binary, python) if (root / each.archive).is_file()), None)
        if layout is None:
            layout = binary
            download(URL + binary.archive, spec.binary_md5, binary, root)
        found = layout, extract(layout, root)
    layout, directory = found
    read = _binary_file if layout is binary else _python_file
    train, test = (_read(directory, files, spec, read) for files in (spec.train, spec.test))
    return Dataset(spec.name, *train, *test, spec.n_classes, (3, 32, 32), True, spec.mean, spec.std)


def _layouts(spec: CifarSpec) -> tuple[Layout, Layout]:
    record, files = len(spec.label_limits) + PIXELS, spec.train + spec.test
    binary = {f"{name}.bin": (n * record, n * record) for name, n in files}
    # a pickle carries file names and numbers of no fixed length beside the pixels
    python = {name: (n * PIXELS, n * (PIXELS + 256) + MAX_PICKLE_OVERHEAD) for name, n in files}
    return (
        Layout(spec.binary_dir, spec.binary_archive, binary),
        Layout(spec.python_dir, spec.python_archive, python),
    )


def _find(layout: Layout, root: Path) -> tuple[Layout, Path] | None:
    """The directory that holds the layout's files (checked for presence and size): `root` or the named one in it."""
    for directory in (root / layout.directory, root):
        present = [name for name in layout.sizes if (directory / name).is_file()]
        if not present:
            continue
        for name, (smallest, largest) in layout.sizes.items():
            path = directory / name
            if name not in present:
                raise CreditscopeError(f"{path} is missing beside {present[0]}; unpack {layout.archive} again")
            size = path.stat().st_size
            if not smallest <= size <= largest:
                expected = f"{smallest}" if smallest == largest else f"{smallest} to {largest}"
                raise CreditscopeError(
                    f"{path} has {size} bytes instead of {expected}; delete it and unpack {layout.archive} again"
                )
        return layout, directory
    return None


def _read(
    directory: Path, files: Files, spec: CifarSpec, read: Callable[[Path, int, CifarSpec], Samples]
) -> tuple[Tensor, Tensor]:
    """Images [N, 3, 32, 32] and labels [N] of these files, one after the other."""
    total, start = sum(n for _, n in files), 0
    images, labels = np.empty((total, PIXELS), np.uint8), np.empty(total, np.int64)
    for name, n in files:
        images[start : start + n], labels[start : start + n] = read(directory / name, n, spec)
        start += n
    return torch.from_numpy(images.reshape(-1, 3, 32, 32)), torch.from_numpy(labels)


def _binary_file(name: Path, n: int, spec: CifarSpec) -> Samples:
    """Of the binary layout: per record the label bytes, then 3072 pixel bytes."""
    path, first_pixel = name.with_name(f"{name.name}.bin"), len(spec.label_limits)
    records = np.fromfile(path, dtype=np.uint8)
    if records.size != n * (first_pixel + PIXELS):  # it may have changed since its size was looked at
        raise CreditscopeError(f"{path} has {records.size} bytes, not {n} records; get the official archive again")
    records = records.reshape(n, -1)
    for column, limit in enumerate(spec.label_limits):
        _check_labels(path, records[:, column].tolist(), limit)
    return records[:, first_pixel:], records[:, first_pixel - 1].astype(np.int64)


def _python_file(path: Path, n: int, spec: CifarSpec) -> Samples:
    """Of the python layout: a pickle of {data: uint8 [n, 3072], labels: list}."""
    content = load_pickle(path)
    data, given = content.get("data"), content.get(spec.label_key)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != (n, PIXELS):
        raise CreditscopeError(
            f"{path}: 'data' is {_describe(data)}, not uint8 ({n}, {PIXELS}); get the official archive again"
        )
    if not isinstance(given, list) or len(given) != n or any(type(label) is not int for label in given):
        raise CreditscopeError(
            f"{path}: {spec.label_key!r} is {_describe(given)}, not a list of {n} integers; get the official archive"
        )
    _check_labels(path, given, spec.n_classes)
    return data, np.array(given, np.int64)


def _check_labels(path: Path, labels: Sequence[int], limit: int) -> None:
    for record, label in enumerate(labels):
        if not 0 <= label < limit:
            raise CreditscopeError(
                f"{path}: record {record} has label {label}, expected 0 to {limit - 1}; get the official archive again"
            )


def _describe(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, list) else "")
