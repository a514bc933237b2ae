"""Make an entry: reports are written as they are and hashed, the claim is sealed; what would not pass is not written."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from creditscope.board.claim import FILE, NAME, certificate_hash, sealed, write_claim
from creditscope.board.entry import Entry, read_entry
from creditscope.errors import CreditscopeError
from creditscope.protocol.report import DiagnosticReport

Accuracies = float | Sequence[float]


def slug(text: str) -> str:
    """A name for an entry: small letters, digits and hyphens."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80].strip("-")
    return words if re.match(NAME, words) else "entry"


def evaluation(
    reports: Sequence[DiagnosticReport],
    *,
    by: str,
    seeds: Sequence[int],
    nulls: Mapping[str, Accuracies] | None = None,
    bp_accuracy: Accuracies | None = None,
    files: Sequence[str] = (),
    **more: Any,
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """(an evaluation of a claim, the files of its reports); `more`: kind, date, device, spec, recipe, note.

    Nulls and backpropagation of one network stand in its report; those of several seeds stand in none and must be given.
    """
    names = files or ["report.json", *(f"report-{k}.json" for k in range(2, len(reports) + 1))]
    data = {name: report.to_json().encode() for name, report in zip(names, reports, strict=True)}
    first = reports[0]
    depth = first.facts.depth
    if nulls is None:
        nulls = {m.null: m.null_accuracy for m in depth.margins} if depth else {}
    if bp_accuracy is None:
        bp_accuracy = depth.bp_margin.accuracy if depth and depth.bp_margin else ()
    stated = {
        "by": by,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "device": f"CPU, {platform.system()} {platform.machine()}",
        "protocol": first.protocol,
        "reports": [_evidence(name, data[name], report) for name, report in zip(names, reports, strict=True)],
        "seeds": list(seeds),
        "nulls": {k: _list(v) for k, v in nulls.items()},
        "bp_accuracy": _list(bp_accuracy),
        **{k: v for k, v in more.items() if v is not None},
    }
    return stated, data


def _list(value: Accuracies) -> list[float]:
    return [float(value)] if isinstance(value, int | float) else [float(v) for v in value]


def _evidence(name: str, data: bytes, report: DiagnosticReport) -> dict[str, Any]:
    found = report.to_dict().get("certificate")
    return {
        "file": name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "certificate": None if found is None else certificate_hash(found),
    }


def write_entry(out: Path, fields: dict[str, Any], files: Mapping[str, bytes], replace: bool = False) -> Entry:
    """Write an entry whole, or not at all; `fields`: of the claim, without schema and seal. A new one is named as `out`."""
    if out.exists() and not replace:
        raise CreditscopeError(f"{out} exists already; choose another --out, or remove it")
    if out.exists() and not (out / FILE).is_file():
        raise CreditscopeError(f"{out} exists and is not an entry; choose another --out")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
            made = Path(temporary) / out.name
            made.mkdir()
            try:
                for name, data in files.items():
                    (made / name).write_bytes(data)
                write_claim(sealed({"name": out.name, **fields}, str(out / FILE)), made)
                read_entry(made)
            except CreditscopeError as error:  # told of the place that the user knows
                raise CreditscopeError(str(error).replace(str(made), str(out))) from None
            if out.exists():
                os.replace(out, Path(temporary) / "before")
            os.replace(made, out)
    except OSError as error:
        raise CreditscopeError(f"cannot write {out}: {error.strerror or error}") from None
    return read_entry(out)


def add_evaluation(entry: Path, reports: Sequence[DiagnosticReport], **stated: Any) -> Entry:
    """Add an evaluation to the claim of an entry; what is there already stays as it is."""
    there = read_entry(entry)
    claim = there.claim.to_dict()
    authors = {audit.stated.by for audit in there.audits if audit.stated.kind == "audit"}
    if stated.get("kind") == "audit" and stated["by"] not in authors:
        raise CreditscopeError(
            f"{entry} was audited by {', '.join(sorted(authors))[:80]}, not by {stated['by'][:80]}; add it as --kind external"
        )
    at = len(claim["evaluations"]) + 1
    names = [f"evaluation-{at}-{k}.json" for k in range(1, len(reports) + 1)]
    made, files = evaluation(reports, files=names, **stated)
    before = {e.file: (entry / e.file).read_bytes() for audit in there.audits for e in audit.stated.reports}
    fields = {**claim, "evaluations": [*claim["evaluations"], made]}
    return write_entry(entry, fields, {**before, **files}, replace=True)
