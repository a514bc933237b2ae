"""What a scan has found, as lines for a terminal and as annotations of a workflow; standard library only."""

from __future__ import annotations

from collections.abc import Iterator

from creditscope.pitfalls.registry import PITFALLS
from creditscope.pitfalls.scan import Finding, Scan


def lines(result: Scan) -> Iterator[str]:
    for f in result.findings:
        yield f"{plain(f.path)}:{f.line}:{f.col}: {f.id} {f.message}\n    why: {f.why}\n    fix: {f.fix}"
    findings, files = len(result.findings), result.files
    yield f"{findings or 'no'} finding{'' if findings == 1 else 's'} in {files} file{'' if files == 1 else 's'}"
    seen = ", ".join(p.id for p in PITFALLS if p.code is not None)
    unseen = ", ".join(p.id for p in PITFALLS if p.code is None)
    yield f"looked for the usual forms of {seen}; code alone does not show {unseen}: ask the authors"


def annotation(f: Finding) -> str:
    """One workflow command of GitHub Actions."""
    place = f"file={_escaped(f.path, True)},line={f.line},col={f.col},title={_escaped(f'{f.id} {f.title}', True)}"
    return f"::warning {place}::{_escaped(f'{f.message}. Why: {f.why} Fix: {f.fix}')}"


def _escaped(text: str, is_property: bool = False) -> str:
    text = plain(text).replace("%", "%25")
    return text.replace(":", "%3A").replace(",", "%2C") if is_property else text


def plain(text: str) -> str:
    """No control characters from a file's name on the terminal, and no lone surrogates."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
