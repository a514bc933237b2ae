"""Every study by its name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from creditscope.errors import CreditscopeError, unknown
from creditscope.studies.result import Run, StudyResult
from creditscope.training.spec import RunSpec

NAMES = (
    "audit", "ablation", "temporal", "early", "triangulation", "penalty", "capacity", "functional", "freshb", "architectures",
    "cifar100", "depth", "ladder", "random-target", "thresholds", "seeds", "credit-norm", "recipe",
    "rescue", "ep-relaxation",
)  # fmt: skip


class Study(Protocol):
    """A module of this package."""

    QUESTION: str

    def specs(self, preset: str) -> list[RunSpec]: ...

    def analyse(self, runs: Sequence[Run]) -> StudyResult: ...


def get_study(name: str) -> Study:
    if name.replace("_", "-") not in NAMES:
        raise CreditscopeError(unknown("study", name, NAMES))
    module: Study = import_module(f"creditscope.studies.{name.replace('-', '_')}")
    return module
