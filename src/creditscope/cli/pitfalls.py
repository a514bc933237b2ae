"""creditscope pitfalls"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro

from creditscope.cli.output import remark
from creditscope.errors import CreditscopeError
from creditscope.pitfalls import PITFALLS, Pitfall, get_pitfall
from creditscope.pitfalls.base import Status
from creditscope.pitfalls.scan import annotation, lines, plain, scan

FINDINGS = 1
STRICT_FOUND = 3


@dataclass
class List:
    """The catalogue, one line per pitfall.

    Example: creditscope pitfalls list
    """

    format: Literal["text", "json"] = "text"
    """Output: text or json (with everything that `show` prints)."""

    def execute(self) -> int:
        if self.format == "json":
            _print_catalogue(PITFALLS)
            return 0
        for p in PITFALLS:
            print(f"{p.id}  {p.title}")
        print("creditscope pitfalls show PF05 says why one misleads and what to do instead")
        return 0


@dataclass
class Show:
    """Why a pitfall misleads, and what to do instead.

    Example: creditscope pitfalls show PF05
    """

    pitfalls: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Numbers or ids (5, PF05); default: all."""
    format: Literal["text", "json"] = "text"
    """Output: text or json."""

    def execute(self) -> int:
        chosen = [get_pitfall(name) for name in self.pitfalls] or list(PITFALLS)
        if self.format == "json":
            _print_catalogue(chosen)
            return 0
        for p in chosen:
            print(f"{p.id}  {p.title}\n      why: {p.why}\n      fix: {p.fix}")
        return 0


@dataclass
class Run:
    """Show pitfalls at work on tiny tensors and networks: the wrong value, the right value, the factor between
    them.

    Example: creditscope pitfalls run 2
    """

    pitfalls: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Numbers or ids (2, PF02); default: all."""
    format: Literal["text", "json"] = "text"
    """Output: text or json."""

    def execute(self) -> int:
        chosen = [get_pitfall(name) for name in self.pitfalls] or list(PITFALLS)
        done = [(p, p.reproduce()) for p in chosen]
        if self.format == "json":
            from creditscope.files import plain

            _print_json(plain([{"id": p.id, "title": p.title, **asdict(r), "factor": r.factor} for p, r in done]))
            return 0
        from creditscope.render.numbers import num
        from creditscope.render.text import WIDTH, Sheet, columns, to_text

        header = ("id", "what is measured", "wrong", "right", "factor")
        rows = [(p.id, r.what, num(r.wrong), num(r.right), num(r.factor)) for p, r in done]
        table = Sheet(header, rows, right=(2, 3, 4), box=None, pad_edge=False, padding=(0, 2, 0, 0))
        print(to_text(table))
        for p, r in done:
            print()
            for line in (f"{p.id}  {p.title}: {r.sentence}.", f"      fix: {p.fix}"):
                print(textwrap.fill(line, min(WIDTH, columns()), subsequent_indent="      "))
        return 0


@dataclass
class Scan:
    """Find pitfalls in Python files by static analysis; nothing is imported or run. Exit code 1 if something is
    found, 0 if not, 2 if nothing could be scanned. `# creditscope: ignore[PF02]` silences a line.

    Example: creditscope pitfalls scan my_experiment/ --format github
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Python files, or directories to search for them."""
    format: Literal["text", "json", "github"] = "text"
    """Output: text, json, or github (annotations of a workflow run)."""

    def execute(self) -> int:
        if not self.paths:
            raise CreditscopeError("pitfalls scan needs at least one file or directory")
        result = scan(self.paths)
        for path, reason in result.skipped:
            remark(f"skipped {plain(path)}: {plain(reason)}")
        if not result.files:
            where = plain(", ".join(map(str, self.paths)))
            reason = f"{len(result.skipped)} skipped (see above)" if result.skipped else "there is no .py file"
            raise CreditscopeError(
                f"nothing was scanned in {where}: {reason}; give Python files, or directories that hold them"
            )
        if self.format == "json":
            found = [asdict(f) for f in result.findings]
            skipped = [{"path": p, "reason": r} for p, r in result.skipped]
            _print_json({"files": result.files, "findings": found, "skipped": skipped})
        elif self.format == "github":
            for finding in result.findings:
                print(annotation(finding))
        else:
            print("\n".join(lines(result)))
        return FINDINGS if result.findings else 0


@dataclass
class Audit:
    """What the files of a bundle (and its neighbours in the same directory) say about each pitfall: clear, found,
    or cannot be told. Exit code 0; with --strict 3 if one is found.

    Example: creditscope pitfalls audit runs/dfa
    """

    bundle: Annotated[Path, tyro.conf.Positional]
    """A bundle, or a directory that holds bundles."""
    format: Literal["text", "json"] = "text"
    """Output: text or json."""
    strict: bool = False
    """Exit with code 3 if a pitfall is found."""

    def execute(self) -> int:
        from creditscope.pitfalls.evidence import audit_bundles

        audits = audit_bundles(self.bundle)
        counts = [Counter(answer.status for _, answer in a.answers) for a in audits]
        if self.format == "json":
            answered = []
            for a in audits:
                answers = [{"id": p.id, "title": p.title, **asdict(answer)} for p, answer in a.answers]
                about = {"path": str(a.path), "method": a.spec.label, "problem": a.problem}
                answered.append({**about, "answers": answers})
            _print_json(answered)
        else:
            for k, (a, count) in enumerate(zip(audits, counts, strict=True)):
                if k:
                    print()
                print(f"{plain(str(a.path))} · {a.spec.label}")
                if a.problem:
                    print(f"  ! {plain(a.problem)}")
                for p, answer in a.answers:
                    print(f"  {p.id}  {answer.status:<14}  {p.title}: {plain(answer.sentence)}")
                print("  " + ", ".join(f"{count[status]} {status}" for status in get_args(Status)))
        return STRICT_FOUND if self.strict and any(count["found"] for count in counts) else 0


def _print_catalogue(chosen: Sequence[Pitfall]) -> None:
    words = ("id", "title", "why", "fix")
    _print_json([{k: getattr(p, k) for k in words} | {"scan": p.code is not None} for p in chosen])


def _print_json(value: object) -> None:
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    # a file's name may hold bytes that are no text: they become JSON escapes
    print(text.encode("utf-8", "backslashreplace").decode())
