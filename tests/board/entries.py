"""Entries to test with: made from a small network that is trained in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from creditscope.board.entry import Entry
from creditscope.board.make import evaluation, write_entry
from creditscope.protocol.report import DiagnosticReport

ROOT = Path(__file__).parents[2]
FIELDS: dict[str, Any] = {
    "method": "a rule",
    "code": {"name": "some code", "url": "https://example.org/code"},
    "architecture": "a chain of four layers",
    "data": "made up",
    "claimed": {"accuracy": 0.9},
}


def stored_report(name: str = "fabricpc-predictive-coding") -> DiagnosticReport:
    """A report of the board."""
    return DiagnosticReport.from_json(ROOT / "board" / "entries" / name / "report.json")


def made(out: Path, report: DiagnosticReport | None = None, **fields: Any) -> Entry:
    stated, files = evaluation([report or stored_report()], by="somebody", seeds=[0], date="2026-11-01")
    return write_entry(out, {**FIELDS, **fields, "evaluations": [stated]}, files)
