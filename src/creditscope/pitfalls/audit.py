"""Every pitfall against the files of a bundle."""

from __future__ import annotations

from pathlib import Path

from creditscope.pitfalls.evidence import Evidence, read_evidence
from creditscope.training.bundle import bundles_at


def audit_bundles(path: str | Path) -> list[Evidence]:
    """What is known of the bundle at `path`, or of every bundle directly inside it, with the answers to every pitfall."""
    return [read_evidence(p) for p in bundles_at(Path(path))]
