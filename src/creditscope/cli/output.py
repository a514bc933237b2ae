"""What commands say: text and files where they were asked for, remarks on standard error, what a verdict means to the shell."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from creditscope.protocol.report import DiagnosticReport
    from creditscope.render.document import Section

STRICT_FAIL, STRICT_OPEN = 3, 4


def remark(text: object) -> None:
    """One line on standard error: standard output stays what it was asked for."""
    print(f"creditscope: {text}", file=sys.stderr)


def left_out(text: str) -> None:
    remark(f"left out: {text}")


def tell_written(*paths: Path | None) -> None:
    """One line with the files that a command has written."""
    given = [str(path) for path in paths if path is not None]
    if given:
        remark(f"written: {', '.join(given)}")


def put(text: str, out: Path | None) -> None:
    """Write to the file, or to standard output."""
    from creditscope.files import write_atomic

    if out is None:
        sys.stdout.write(text)
    else:
        write_atomic(out, text.encode())
        tell_written(out)


def put_document(blocks: Sequence[Section], latex: bool, standalone: bool, out: Path | None) -> None:
    """A document as Markdown, or as LaTeX where one of the two options of LaTeX is given."""
    from creditscope.render.document import to_latex, to_markdown

    put(to_latex(blocks, standalone) if latex or standalone else to_markdown(blocks), out)


def report_text(report: DiagnosticReport, null: bool, long: bool = False) -> str:
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
