"""What a command says of a network: its report, and what the verdict means to the shell and to a workflow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from creditscope.protocol.report import DiagnosticReport

STRICT_FAIL, STRICT_OPEN = 3, 4


def told(report: DiagnosticReport, null: bool, long: bool = False) -> str:
    """What a command prints of a network; a null has no verdict."""
    from creditscope.render.report import null_text

    return null_text(report, long) if null else report.to_text(long=long)


def exit_code(reports: Iterable[DiagnosticReport]) -> int:
    """0 where every verdict passes, 3 where one fails, else 4 (inconsistent, inconclusive, incomplete, or nothing judged)."""
    statuses = {report.status for report in reports}
    if "fail" in statuses:
        return STRICT_FAIL
    return 0 if statuses == {"pass"} else STRICT_OPEN


def annotation(report: DiagnosticReport) -> str:
    """One workflow command of GitHub Actions: an error where the verdict fails, a notice where it passes, else a warning."""
    level = {"fail": "error", "pass": "notice"}.get(report.status, "warning")
    title = escaped(f"creditscope {report.status}: {report.method_name or 'network'}")
    return f"::{level} title={title.replace(':', '%3A').replace(',', '%2C')}::{escaped(report.verdict.line)}"


def escaped(text: str) -> str:
    """As GitHub asks for it: a line break or a percent sign would end or change the command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
