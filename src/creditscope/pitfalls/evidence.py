"""What the files of a bundle can tell: read leniently, because a damaged or incomplete bundle is itself a finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from creditscope.errors import CreditscopeError
from creditscope.files import read_json, read_tensors
from creditscope.pitfalls.base import Answer, Pitfall
from creditscope.pitfalls.registry import PITFALLS
from creditscope.training.bundle import CREDIT, REPORT, bundles_at, is_bundle, load_bundle, read_spec

if TYPE_CHECKING:
    from torch import Tensor

    from creditscope import CreditRule, DiagnosticReport, RunSpec
    from creditscope.measure.facts import Facts

T = TypeVar("T")


@dataclass(frozen=True)
class Neighbour:
    """Another bundle of the same directory: its spec and, where it can be read, the samples that it was measured on."""

    path: Path
    spec: RunSpec
    samples: str | None


@dataclass(frozen=True)
class Evidence:
    """One bundle and its neighbours."""

    path: Path
    spec: RunSpec
    report: DiagnosticReport | None
    credit: dict[str, Tensor] | None
    """Tensors of the rule's state; None where the file is missing or unreadable."""
    problem: str = ""
    """What `load_bundle` objects to; "" for a whole and unaltered bundle."""
    neighbours: tuple[Neighbour, ...] = ()
    """All bundles of the directory without this one."""
    unfinished: tuple[str, ...] = ()
    """Names of unfinished runs beside it."""

    @property
    def facts(self) -> Facts | None:
        return self.report.facts if self.report is not None else None

    @property
    def rule(self) -> type[CreditRule]:
        from creditscope.credit.registry import rule_class

        return rule_class(self.spec.method)

    @cached_property
    def answers(self) -> tuple[tuple[Pitfall, Answer], ...]:
        """What these files say about every pitfall, in the order of the catalogue."""
        return tuple((pitfall, pitfall.audit(self)) for pitfall in PITFALLS)

    @property
    def group(self) -> list[Neighbour]:
        """Neighbours that differ from this run by their seed only."""
        return [n for n in self.neighbours if recipe(n.spec) == recipe(self.spec) and n.spec.seed != self.spec.seed]


def recipe(spec: RunSpec) -> dict[str, Any]:
    """What two runs share that differ only by their seed."""
    return {**spec.model_dump(), "seed": None}


def read_evidence(path: Path) -> Evidence:
    """Read a bundle and look around it. Only an unreadable spec is an error."""
    from creditscope import DiagnosticReport

    spec = read_spec(path)
    try:
        load_bundle(path)
        problem = ""
    except CreditscopeError as error:
        problem = str(error)
    around = path.resolve().parent
    neighbours = []
    for other in sorted(around.iterdir()):
        if other.name.startswith(".") or not is_bundle(other) or other.samefile(path):
            continue
        try:
            neighbours.append(Neighbour(other, read_spec(other), _samples(other)))
        except CreditscopeError:
            continue  # a neighbour that cannot be read says nothing about this bundle
    return Evidence(
        path=path,
        spec=spec,
        report=_readable(lambda: DiagnosticReport.from_json(path / REPORT)),
        credit=_readable(lambda: read_tensors(path / CREDIT, "the state of the credit rule")),
        problem=problem,
        neighbours=tuple(neighbours),
        unfinished=tuple(sorted(p.name for p in around.glob(".*.partial") if p.is_dir())),
    )


def audit_bundles(path: str | Path) -> list[Evidence]:
    """What is known of the bundle at `path`, or of every bundle directly inside it, with the answers to every pitfall."""
    return [read_evidence(p) for p in bundles_at(Path(path))]


def _readable(read: Callable[[], T]) -> T | None:
    """None where the file is missing or damaged."""
    try:
        return read()
    except CreditscopeError:
        return None


def _samples(path: Path) -> str | None:
    try:
        content = read_json(path / REPORT, "the report of a bundle")
        samples = content["facts"]["convention"]["samples"]
    except (CreditscopeError, KeyError, TypeError):
        return None
    return samples if isinstance(samples, str) else None
