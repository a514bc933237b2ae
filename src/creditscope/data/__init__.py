"""Data sets by name: the embedded default, the StudentNet task, CIFAR-10 and CIFAR-100."""

from __future__ import annotations

from pathlib import Path

from creditscope.data.cifar import load_cifar
from creditscope.data.dataset import Dataset, epoch_batches, eval_batches, samples_hash, test_batches
from creditscope.data.quadratic import load_quadratic
from creditscope.data.student import load_student
from creditscope.errors import CreditscopeError

DATASET_NAMES = ("quadratic", "cifar10", "cifar100", "student")


def load_dataset(name: str, data_dir: str | Path | None = None) -> Dataset:
    """The data set of that name; `data_dir` says where the CIFAR files are (the generated ones need no file)."""
    if name == "quadratic":
        return load_quadratic()
    if name == "student":
        return load_student()
    if name in ("cifar10", "cifar100"):
        return load_cifar(name, data_dir)
    raise CreditscopeError(f"unknown data set {name!r}; use one of: {', '.join(DATASET_NAMES)}")


__all__ = [
    "DATASET_NAMES",
    "Dataset",
    "epoch_batches",
    "eval_batches",
    "load_dataset",
    "samples_hash",
    "test_batches",
]
