"""Static analysis of Python files: which lines walk into a pitfall. Files are parsed, never imported or run."""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.pitfalls.base import Spot
from creditscope.pitfalls.registry import PITFALLS
from creditscope.pitfalls.source import Source

MAX_BYTES = 2 * 2**20
"""A larger file is data or generated code, not somebody's experiment."""
LEFT_OUT = {".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", "__pycache__", "node_modules"}
NOT_PYTHON = {
    ".ipynb": "is a notebook, not a Python file; export its code first: jupyter nbconvert --to script",
    ".json": "is JSON, not a Python file",
}
"""Files that parse as Python and hold no code of it."""
IGNORE = re.compile(r"#\s*creditscope:\s*ignore(?:\[(?P<ids>[^\]]*)\])?", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """One place in a user's code."""

    path: str
    line: int
    col: int
    id: str
    title: str
    message: str
    why: str
    fix: str


@dataclass
class Scan:
    """What a scan has found, and what it could not look at."""

    files: int = 0
    findings: list[Finding] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """(path, reason)."""


def scan(paths: Sequence[str | Path]) -> Scan:
    """Look at the given files and at every .py file under the given directories; in the order of their names."""
    result = Scan()
    for path in _files([Path(p) for p in paths], result):
        if other := NOT_PYTHON.get(path.suffix):
            result.skipped.append((str(path), other))
            continue
        try:
            data = path.read_bytes()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what Python itself thinks of the file is not our subject
                source = Source(path, data)
        except OSError as error:
            result.skipped.append((str(path), f"cannot be read: {error.strerror or error}"))
        except (SyntaxError, ValueError) as error:
            where = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
            reason = getattr(error, "msg", None) or str(error)
            result.skipped.append((str(path), f"cannot be parsed as Python{where}: {reason}"))
        except (RecursionError, MemoryError):
            result.skipped.append((str(path), "is nested too deeply to be parsed"))
        else:
            _apply_rules(source, result)
    return result


def _apply_rules(source: Source, result: Scan) -> None:
    try:
        found = list(findings_in(source))
    except RecursionError:
        result.skipped.append((str(source.path), "is nested too deeply to be analysed"))
    except Exception as error:  # one odd file must not stop the scan of all others; it is named, never dropped silently
        result.skipped.append(
            (str(source.path), f"stopped a rule ({type(error).__name__}: {error}); please report this")
        )
    else:
        result.files += 1
        result.findings += found


def findings_in(source: Source) -> Iterator[Finding]:
    """The findings of one file in the order of its lines, without those that a comment suppresses."""
    found = [
        Finding(str(source.path), spot.line, spot.col, p.id, p.title, spot.message, p.why, p.fix)
        for p in PITFALLS
        if p.code is not None
        for spot in dict.fromkeys(p.code(source))
        if not suppressed(source.lines, spot, p.id)
    ]
    yield from sorted(found, key=lambda f: (f.line, f.col, f.id))


def suppressed(lines: Sequence[str], spot: Spot, id: str) -> bool:
    """`# creditscope: ignore` or `# creditscope: ignore[PF02, PF13]` on the first or last line of the expression."""
    for row in {spot.line, spot.end_line}:
        match = IGNORE.search(lines[row - 1]) if row <= len(lines) else None
        if match and (match["ids"] is None or id in {part.strip().upper() for part in match["ids"].split(",")}):
            return True
    return False


def _files(paths: Iterable[Path], result: Scan) -> Iterator[Path]:
    seen: set[tuple[int, int]] = set()
    for path in paths:
        try:
            exists = path.exists()
        except (OSError, ValueError) as error:  # a name that is too long, a null byte, a loop of links
            raise CreditscopeError(f"{path} cannot be scanned: {error}") from None
        if not exists:
            raise CreditscopeError(f"{path} does not exist; give Python files or directories to scan")
        yield from _walk(path, seen, result, given=True)


def _walk(path: Path, seen: set[tuple[int, int]], result: Scan, given: bool = False) -> Iterator[Path]:
    try:
        info = path.stat()
        directory = stat.S_ISDIR(info.st_mode)
        if not directory and not given and path.suffix != ".py":
            return
        if directory and not given and path.name in LEFT_OUT:
            return
        if (info.st_dev, info.st_ino) in seen:
            if path.is_symlink():
                result.skipped.append((str(path), "is a link to something that was already scanned"))
            return
        seen.add((info.st_dev, info.st_ino))
        entries = sorted(os.listdir(path)) if directory else []
    except OSError as error:
        if given or path.suffix == ".py" or path.is_dir():
            result.skipped.append((str(path), f"cannot be read: {error.strerror or error}"))
        return
    if directory:
        for name in entries:
            yield from _walk(path / name, seen, result)
    elif not stat.S_ISREG(info.st_mode):
        result.skipped.append((str(path), "is not a regular file"))
    elif info.st_size > MAX_BYTES:
        result.skipped.append((str(path), f"has {info.st_size:,} bytes; at most {MAX_BYTES:,} are read"))
    else:
        yield path


# ---- what was found, as lines for a terminal and as annotations of a workflow ---------------------------------------


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
