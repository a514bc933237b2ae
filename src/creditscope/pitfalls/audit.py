"""Every pitfall against the files of a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from creditscope.pitfalls.base import Answer, Pitfall
from creditscope.pitfalls.evidence import Evidence, find, read_evidence
from creditscope.pitfalls.registry import PITFALLS


@dataclass(frozen=True)
class BundleAudit:
    """The answers about one bundle, in the order of the catalogue."""

    path: Path
    label: str
    problem: str
    """What is wrong with the bundle as a file set; "" if nothing."""
    answers: tuple[tuple[Pitfall, Answer], ...]

    def count(self, status: str) -> int:
        return sum(answer.status == status for _, answer in self.answers)


def audit_evidence(evidence: Evidence) -> BundleAudit:
    answers = tuple((pitfall, pitfall.audit(evidence)) for pitfall in PITFALLS)
    return BundleAudit(evidence.path, evidence.spec.label, evidence.problem, answers)


def audit_bundles(path: str | Path) -> list[BundleAudit]:
    """Audit the bundle at `path`, or every bundle directly inside it."""
    return [audit_evidence(read_evidence(p)) for p in find(Path(path))]
