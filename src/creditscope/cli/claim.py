"""creditscope claim"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from creditscope.cli.output import escaped
from creditscope.errors import CreditscopeError

if TYPE_CHECKING:
    from creditscope.board.entry import Entry
    from creditscope.protocol.report import DiagnosticReport

NOT_HELD = 3
MUST = {
    "code": "name of the code that trained the network",
    "method": "name of the method",
    "architecture": "what the network is",
    "data": "data set",
    "by": "who audited: a name or an account",
}
"""What `claim new` cannot do without, in the order in which a terminal asks for it."""


@dataclass
class New:
    """Make an entry of the board: a directory with the claim and its report. A bundle is measured, with its nulls and a
    certificate; a report is taken as it is. A terminal asks for what is still missing; a script must give it.

    Example: creditscope claim new report.json --out board/entries/my-rule --by "A. Author" --code my-code --data digits
    """

    source: Annotated[Path, tyro.conf.Positional]
    """Directory of a bundle, or a report as JSON (`report.to_json(path)`, `creditscope diagnose --json`)."""
    out: Path | None = None
    """Directory of the entry; its last part is the entry's name (default: the method's name, here)."""
    method: str | None = None
    """Name of the method (default: as the report names it)."""
    architecture: str | None = None
    """What the network is, in a few words."""
    data: str | None = None
    """Data set, and what is special about it."""
    accuracy: float | None = None
    """Claimed test accuracy, a fraction (default: what the report states)."""
    gamma: float | None = None
    """Claimed Γ, if any."""
    convention: str = ""
    """Convention of the claimed numbers: seeds, layers, test set."""
    claim_source: str = ""
    """Where the claim is made: a table, a section."""
    code: str | None = None
    """Name of the code that trained the network."""
    code_version: str = ""
    """Its version, or the commit."""
    code_url: str = ""
    """Its address."""
    licence: str = ""
    """Licence of that code."""
    paper: str = ""
    """Title of the paper."""
    paper_url: str = ""
    """Its address."""
    year: int | None = None
    """Its year."""
    by: str | None = None
    """Who did the audit: a name or an account."""
    device: str | None = None
    """What it ran on (default: this machine's kind of processor)."""
    seeds: tuple[int, ...] = ()
    """Seeds behind the accuracies, in their order (default: of a bundle its own, else 0, 1, ...)."""
    null: tuple[float, ...] = ()
    """Accuracies of the null (random-blocks baseline), one per seed; needed if a report covers several seeds."""
    null_kind: Literal["matched", "bp", "unstated"] = "unstated"
    """Kind of --null: trained by the same rule (matched), by backpropagation (bp), or unstated."""
    recipe: str = ""
    """What to run to get the report."""
    note: str = ""
    """A remark for the reader."""
    certify: bool = True
    """For a bundle: leave out the locality certificate."""
    data_dir: Path | None = None
    """Where the CIFAR files are."""

    def execute(self) -> int:
        from creditscope.board.make import evaluation, slug, write_entry

        report, known = _of_source(self.source, self.certify, self.data_dir)
        asked = self._asked({"method": report.method_name, **known})
        fields: dict[str, Any] = {
            "method": asked["method"],
            "architecture": asked["architecture"],
            "data": asked["data"],
            "code": {
                "name": asked["code"],
                "version": self.code_version or known.get("version", ""),
                "url": self.code_url,
                "licence": self.licence or known.get("licence", ""),
            },
            "claimed": {
                "accuracy": _mean(report.headline_acc) if self.accuracy is None else self.accuracy,
                "gamma": self.gamma,
                "convention": self.convention,
                "source": self.claim_source,
                "published": self.accuracy is not None and bool(self.paper or self.claim_source),
            },
            "note": self.note,
        }
        if self.paper:
            fields["paper"] = {"title": self.paper, "url": self.paper_url, "year": self.year}
        statement = _stated(self, report, known.get("seeds", ()))
        stated, files = evaluation([report], by=asked["by"], spec=known.get("spec"), **statement)
        out = self.out or Path(slug(fields["method"]))
        entry = write_entry(out, {**fields, "evaluations": [stated]}, files)
        print(f"{out}: {_summary(entry)}")
        return 0

    def _asked(self, known: dict[str, Any]) -> dict[str, str]:
        """Of each field that must be there the option; else what is known; else the answer of the user, where there is one."""
        found = {name: str(getattr(self, name) or known.get(name) or "") for name in MUST}
        if sys.stdin.isatty() and sys.stdout.isatty():
            for name in (name for name in MUST if not found[name]):
                with suppress(EOFError):
                    found[name] = input(f"{MUST[name]}: ").strip()
        if missing := [f"--{name} ({MUST[name]})" for name in MUST if not found[name]]:
            raise CreditscopeError(f"claim new needs {', '.join(missing)}")
        return found


@dataclass
class Add:
    """Add an evaluation to an entry: an external one that corrects or confirms it, or a newer audit of your own. What is
    there stays.

    Example: creditscope claim add board/entries/my-rule report.json --by "B. Reader" --note "null trained twice as long"
    """

    entry: Annotated[Path, tyro.conf.Positional]
    """Directory of the entry."""
    report: Annotated[Path, tyro.conf.Positional]
    """Report as JSON."""
    by: str
    """Who evaluated."""
    kind: Literal["external", "audit"] = "external"
    """external: by others; audit: a newer one of the entry's own."""
    device: str | None = None
    """What it ran on (default: this machine's kind of processor)."""
    seeds: tuple[int, ...] = ()
    """Seeds behind the accuracies (default: 0, 1, ...)."""
    null: tuple[float, ...] = ()
    """Accuracies of the null (random-blocks baseline), one per seed; needed if a report covers several seeds."""
    null_kind: Literal["matched", "bp", "unstated"] = "unstated"
    """Kind of --null: trained by the same rule (matched), by backpropagation (bp), or unstated."""
    note: str = ""
    """What was done differently."""
    recipe: str = ""
    """What to run to get the report."""

    def execute(self) -> int:
        from creditscope.board.make import add_evaluation
        from creditscope.protocol.report import DiagnosticReport

        report = DiagnosticReport.from_json(self.report)
        statement = _stated(self, report)
        entry = add_evaluation(self.entry, [report], by=self.by, kind=self.kind, note=self.note, **statement)
        print(f"{self.entry}: {_summary(entry)}")
        return 0


@dataclass
class Check:
    """Check an entry: schema, seal, hashes, numbers that follow from each other, and a verdict that follows from the
    facts. A claimed number above the audited one is marked. --retrain trains the networks again if creditscope trained
    them. Exit code 3 if an entry does not hold.

    Example: creditscope claim check board/entries/embedded-dfa-rms --retrain
    """

    dirs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Directories of entries, or directories that hold them."""
    retrain: bool = False
    """Also train every seed and every null again from the spec of the current audit, and compare."""
    data_dir: Path | None = None
    """Where the CIFAR files are."""
    github: bool = False
    """Also print what does not hold as annotations of a GitHub workflow."""

    def execute(self) -> int:
        from creditscope.board.entry import read_entries
        from creditscope.render.claims import AS_STATED, marks
        from creditscope.render.numbers import printable

        if not self.dirs:
            raise CreditscopeError("claim check needs the directory of an entry, or one that holds entries")
        held, refused = read_entries(self.dirs)
        for entry in held:
            print(f"holds    {printable(str(entry.path))}: {_summary(entry)}")
            for line in marks(entry):
                print(f"  marked: {printable(line)}")
        for path, why in refused:
            print(f"REFUSED  {printable(str(path))}: {printable(why)}")
            if self.github:
                print(f"::error title=creditscope claim::{escaped(printable(why))}")
        parted = [entry for entry in held if self.retrain and not self._again(entry)]
        if held:
            print(f"as stated by the authors, not checked: {AS_STATED}")
        again = f", {len(parted)} not reproduced" if parted else ""
        print(f"{len(held)} of {len(held) + len(refused)} entries hold{again}")
        return NOT_HELD if refused or parted else 0

    def _again(self, entry: Entry) -> bool:
        """True where every network that can be trained again is what the claim says."""
        from creditscope.board.retrain import retrain, runs_of

        if not (runs := runs_of(entry.current)):
            print(f"  {entry.claim.name}: trained by other code; {entry.current.stated.recipe or 'no recipe is named'}")
            return True
        print(f"  {entry.claim.name}: {len(runs)} runs of {runs[0][1].epochs} epochs")
        fine = True
        for again in retrain(entry.current, self.data_dir):
            fine &= again.status != "not reproduced"
            print(f"    {again.what}: accuracy {again.recorded:.4f} stated, {again.here:.4f} here: {again.status}")
            for d in (again.compared.beyond if again.compared else ())[:3]:
                print(f"      {d.what}: {d.recorded} stated, {d.here} here")
        return fine


@dataclass
class Seal:
    """Seal a claim again after editing its file by hand: the seal is the hash of everything else in it.

    Example: creditscope claim seal board/entries/my-rule
    """

    entry: Annotated[Path, tyro.conf.Positional]
    """Directory of the entry."""

    def execute(self) -> int:
        from creditscope.board.claim import FILE, MAX_BYTES, read_small, sealed, write_claim
        from creditscope.board.entry import read_entry

        content = read_small(self.entry / FILE, MAX_BYTES, "a claim")
        if not isinstance(content, dict):
            raise CreditscopeError(f"{self.entry / FILE} is not a claim")
        write_claim(sealed(content, str(self.entry / FILE)), self.entry)
        print(f"{self.entry}: {_summary(read_entry(self.entry))}")
        return 0


@dataclass
class Badge:
    """Draw the badge of an entry: its verdict and the version of the protocol.

    Example: creditscope claim badge board/entries/embedded-dfa-rms --out badge.svg
    """

    entry: Annotated[Path, tyro.conf.Positional]
    """Directory of the entry."""
    out: Path
    """SVG file to write."""

    def execute(self) -> int:
        from creditscope.board.entry import read_entry
        from creditscope.files import write_atomic
        from creditscope.render.claims import badge

        write_atomic(self.out, badge(read_entry(self.entry).current).encode())
        print(self.out)
        return 0


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _stated(options: New | Add, report: DiagnosticReport, seeds: Sequence[int] = ()) -> dict[str, Any]:
    """What the options say of an evaluation; `seeds`: where they name none."""
    from creditscope.measure.depth import UNSTATED

    kind = UNSTATED if options.null_kind == "unstated" else options.null_kind  # by the name that files have for it
    return {
        "seeds": options.seeds or seeds or range(max(1, len(report.headline_acc))),
        "nulls": {kind: options.null} if options.null else None,
        "device": options.device,
        "recipe": options.recipe,
    }


def _summary(entry: Entry) -> str:
    from creditscope.render.claims import renamed
    from creditscope.render.numbers import printable

    audit = entry.current
    name = f"{entry.claim.method} ({found} in the report)" if (found := renamed(entry)) else entry.claim.method
    verdict = audit.line if audit.line.startswith(audit.status) else f"{audit.status}: {audit.line}"
    return printable(f"{name}: {verdict} ({audit.stated.protocol})")


def _of_source(source: Path, certify: bool, data_dir: Path | None) -> tuple[DiagnosticReport, dict[str, Any]]:
    """(report, what else is known about its network)."""
    from creditscope.protocol.report import DiagnosticReport
    from creditscope.training.bundle import is_bundle

    if source.is_file():
        return DiagnosticReport.from_json(source), {}
    if not source.exists():
        raise CreditscopeError(f"{source} does not exist; give a report (JSON) or a bundle")
    if not is_bundle(source):
        raise CreditscopeError(f"{source} is neither a report (JSON) nor a bundle")
    from creditscope.cli.diagnose import Diagnose
    from creditscope.runs.groups import shape
    from creditscope.training.certify import certify_bundle

    command = Diagnose(bundle=source, data_dir=data_dir)
    bundle, pool = command.load()
    report = command.of_bundle(bundle, pool)
    if certify:
        report = report.with_certificate(certify_bundle(bundle, bundle.dataset(data_dir)))
    known = {
        "code": "creditscope",
        "version": bundle.versions.get("creditscope", ""),
        "licence": "Apache-2.0",
        "architecture": shape(bundle.spec).partition(", ")[2],
        "data": str(bundle.spec.dataset),
        "seeds": (bundle.spec.seed,),
        "spec": bundle.spec.model_dump(mode="json"),
    }
    return report, known
