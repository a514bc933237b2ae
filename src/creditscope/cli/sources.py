"""What a command was given: bundles, directories that hold bundles at any depth, stores, and reports as JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from creditscope.cli.output import left_out
from creditscope.errors import CreditscopeError
from creditscope.files import read_json
from creditscope.runs.store import META
from creditscope.training.bundle import Bundle, is_bundle, load_bundle

if TYPE_CHECKING:
    from creditscope.protocol.report import DiagnosticReport
    from creditscope.runs.record import Finished


@dataclass
class Sources:
    bundles: list[Finished] = field(default_factory=list)
    """Bundles, and the runs of archives."""
    stores: list[Path] = field(default_factory=list)
    """Stores and archives."""
    reports: list[tuple[str, DiagnosticReport]] = field(default_factory=list)
    """(name of the file, report)"""
    single: list[Bundle] = field(default_factory=list)
    """Bundles that were named themselves."""
    damaged: int = 0
    """Bundles and directories that could not be read and were left out."""

    def without_networks(self) -> CreditscopeError:
        """What to say where no trained network is left."""
        if self.damaged:
            nulls = " beside nulls (random-blocks baselines)" if self.bundles else ""
            return CreditscopeError(f"no trained network could be read{nulls}: {self.damaged} left out (see above)")
        return CreditscopeError(
            "only nulls (random-blocks baselines) were found; add the networks that they are nulls for"
        )


def find_sources(paths: Iterable[Path], beside: bool = False) -> Sources:
    """Everything at or below the given paths, each run once; a damaged bundle inside a directory is told and left out.

    `beside`: a bundle that is named itself also brings the other bundles of its directory (its nulls, its other seeds).
    """
    from creditscope.runs.archive import Archive, is_archive

    found = Sources()
    known: dict[str, Path] = {}

    def unread(error: OSError) -> None:
        left_out(f"{error.filename}: {error.strerror}")
        found.damaged += 1

    def add(path: Path, strict: bool) -> None:
        try:
            bundle = load_bundle(path)
        except CreditscopeError as error:
            if strict:
                raise
            left_out(str(error))
            found.damaged += 1
            return
        first = known.setdefault(bundle.spec.hash, path.resolve())
        if first == path.resolve():
            if all(b.spec.hash != bundle.spec.hash for b in found.bundles):
                found.bundles.append(bundle)
        else:
            left_out(f"{path} holds the same run as {first}")
        if strict:
            found.single.append(bundle)

    for path in paths:
        if path.is_file():
            found.reports += read_reports(path)
        elif not path.is_dir():
            raise CreditscopeError(f"{path} is neither a directory nor a file; give bundles, stores or reports (JSON)")
        elif is_archive(path):
            found.bundles += [r for r in Archive(path).runs() if known.setdefault(r.spec.hash, r.path) == r.path]
            found.stores.append(path)
            found.bundles.sort(key=_order)
        elif is_bundle(path):
            add(path, strict=True)
            for other in below(path.resolve().parent, unread, deep=False) if beside else ():
                add(other, strict=False)
        else:
            inside = list(below(path, unread))
            if not inside:
                found.reports += [pair for file in sorted(path.glob("*.json")) for pair in _reports_in(file)]
            if not inside and not found.reports and not found.damaged:
                raise CreditscopeError(
                    f"{path} holds no bundle and no report; `creditscope train --out {path}/NAME` makes a bundle"
                )
            for p in inside:
                add(p, strict=False)
            if new := [p for p in stores(path) if p not in found.stores]:
                found.stores += new
                found.bundles.sort(key=_order)  # a store names its runs by their hash
    return found


def _order(bundle: Finished) -> tuple[object, ...]:
    """By task, shape, recipe, then method and seed; backpropagation first, nulls last."""
    s = bundle.spec
    shape = (s.dataset, str(s.arch), s.width or 0, s.depth or 0, not s.terminal_norm, s.epochs or 0)
    recipe = (s.targets, s.penalty, -1 if s.train_last is None else s.train_last)
    credit = (s.method != "bp", s.method, str(s.credit_norm), str(s.credit_site), s.clip)
    return (s.frozen, *shape, *recipe, *credit, s.seed)


def below(root: Path, unread: Callable[[OSError], None], deep: bool = True) -> Iterator[Path]:
    """Bundles under a directory, in order; hidden directories and what is inside a bundle are not looked at.

    A directory that may not be read is told to `unread`.
    """

    for here, directories, _ in os.walk(root, onerror=unread):
        directories[:] = sorted(d for d in directories if not d.startswith("."))
        for name in list(directories):
            path = Path(here) / name
            try:
                if not is_bundle(path):
                    continue
                yield path
            except OSError as error:
                unread(error)
            directories.remove(name)
        if not deep:
            return


def stores(root: Path) -> list[Path]:
    """The directory itself if it is a store, else the stores under it."""
    found = []
    for here, directories, files in os.walk(root):
        directories[:] = sorted(d for d in directories if not d.startswith("."))
        if META in files:
            found.append(Path(here))
            directories.clear()
    return found


def _reports_in(path: Path) -> list[tuple[str, DiagnosticReport]]:
    """Those of one file of a directory, where not every file has to be a report."""
    try:
        return read_reports(path)
    except CreditscopeError as error:
        left_out(str(error))
        return []


def read_reports(path: Path) -> list[tuple[str, DiagnosticReport]]:
    """The report of `diagnose --json`, or those of `report --json`."""
    from creditscope.protocol.report import DiagnosticReport

    content = read_json(path, "a report")
    if not isinstance(content, list):
        return [(path.name, DiagnosticReport.from_dict(content, str(path)))]
    found = []
    for group in content:
        if not isinstance(group, dict) or not isinstance(group.get("reports"), list):
            raise CreditscopeError(f"{path} is not a creditscope report; give the JSON of `diagnose` or of `report`")
        found += [(path.name, DiagnosticReport.from_dict(r, str(path))) for r in group["reports"]]
    if not found:
        raise CreditscopeError(f"{path} holds no report")
    return found
