"""What every integration needs: the foreign library or one line that says how to get it; lines and reports as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from creditscope.errors import CreditscopeError

if TYPE_CHECKING:
    from creditscope import DiagnosticReport

PREFIX = "creditscope/"


def require(module: str, extra: str) -> Any:
    """Import `module`; where it is missing, the error says which extra brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        why = " ".join(str(error).split())[:160]
        raise CreditscopeError(f"{why}; install it with: pip install 'creditscope[{extra}]'") from None


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """A line of a trajectory as named numbers: creditscope/growth, creditscope/h/0, creditscope/fired/D1, ..."""
    flat: dict[str, float] = {}
    for key, value in line.items():
        if key == "fired":
            flat |= {f"{PREFIX}fired/{check}": float(check in value) for check in ("D1", "D2", "C")}
        elif isinstance(value, list | tuple):
            flat |= {f"{PREFIX}{key}/{k}": float(v) for k, v in enumerate(value) if v is not None}
        elif value is not None and key != "epoch":
            flat[PREFIX + key] = float(value)
    return flat


def layer_table(report: DiagnosticReport) -> tuple[list[str], list[list[float | None]]]:
    """(columns, rows): the facts of a report layer by layer; None where one is not measurable."""
    from creditscope.changes import layers

    facts: dict[str, list[float | None]] = {"layer": [float(k) for k in range(report.facts.stream.depth + 1)]}
    facts |= {name: [cell.number for cell in cells] for name, cells in layers(report.facts)}
    return list(facts), [list(row) for row in zip(*facts.values(), strict=True)]


def profile_curves(report: DiagnosticReport) -> dict[str, list[float]]:
    """Accuracy of the linear readout by layer, of the network and of its twin; those that are known at every layer."""
    profile = report.facts.profile
    if profile is None:
        return {}
    curves = {"network": [r.accuracy for r in profile.curve], "twin": [r.accuracy for r in profile.twin]}
    return {name: [v for v in values if v is not None] for name, values in curves.items() if None not in values}


def outcome(report: DiagnosticReport) -> dict[str, str]:
    """The verdict in words: creditscope/status, creditscope/verdict, creditscope/D1, ..."""
    answers = {f"{PREFIX}{name}": str(check.answer) for name, check in report.checks.items()}
    return {f"{PREFIX}status": str(report.status), f"{PREFIX}verdict": report.verdict.line, **answers}
