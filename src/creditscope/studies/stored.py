"""Every study that a store has finished runs of, as far as its facts are there: nothing is measured unless asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError
from creditscope.files import read_json
from creditscope.protocol.report import DiagnosticReport
from creditscope.runs.archive import Archive, is_archive
from creditscope.runs.store import Store
from creditscope.studies.catalogue import NAMES, Study, get_study
from creditscope.studies.grid import PRESETS
from creditscope.studies.result import NotMeasured, Run, StudyResult, runs_of
from creditscope.training.spec import RunSpec

ENOUGH = 0.5
"""Share of a study's trained networks from which it is shown although nobody planned it."""


class Measured(Store):
    """A store whose full level is read and never measured."""

    def cached(self, name: str, make: Any) -> dict[str, Any]:
        path = self.root / "full" / f"{name}.json"
        if not path.is_file():
            raise NotMeasured(f"{path} is missing")
        content: dict[str, Any] = read_json(path, "measured facts")
        return content


@dataclass(frozen=True)
class Stored:
    """What a store can show."""

    results: tuple[tuple[str, StudyResult], ...]
    """(preset, result), in the order of the catalogue."""
    begun: tuple[str, ...]
    """One line for each study that is planned and not begun, has a few runs, or lacks the facts that it needs."""


def stored_studies(root: str | Path, full: bool = False, data_dir: str | Path | None = None) -> Stored:
    """The studies of the presets that the store's plans name (all presets where there is no plan).

    `full`: measure the full level where it is missing (and keep it in the store); otherwise a study of level full is analysed
    over the runs whose facts are there, and says so.
    """
    store = Archive(root) if is_archive(Path(root)) else Store(root) if full else Measured(root)
    planned = {(str(p["study"]), str(p["preset"])) for p in store.plans()}
    named = {preset for _, preset in planned}
    results: list[tuple[str, StudyResult]] = []
    begun: list[str] = []
    for name in NAMES:
        study = get_study(name)
        for preset in (p for p in PRESETS if not named or p in named):
            specs = study.specs(preset)
            wanted = [s for s in specs if not s.frozen]
            done = sum(store.has(s) for s in wanted)
            if not done:
                if (name, preset) in planned:
                    begun.append(f"{name} ({preset}): none of {len(wanted)} networks is trained yet")
                continue
            if (name, preset) not in planned and done < ENOUGH * len(wanted):
                begun.append(f"{name} ({preset}): {done} of {len(wanted)} networks are trained")
                continue
            runs, problems = store.runs_of(specs) if isinstance(store, Archive) else runs_of(store, specs, data_dir)
            result, note = _analysed(study, runs)
            if result is None:
                begun.append(f"{name} ({preset}): {note}")
                continue
            notes = [f"{len(runs)} of {len(specs)} runs are finished"] if len(runs) < len(specs) else []
            results.append((preset, dataclasses.replace(result, notes=[*notes, *([note] if note else []), *problems])))
    return Stored(tuple(results), tuple(begun))


def stored_runs(root: str | Path, specs: Sequence[RunSpec]) -> list[Run]:
    """The finished runs of a store among `specs`, or every run of an archive; the full level is read and never measured."""
    if is_archive(Path(root)):
        return Archive(root).runs()
    return runs_of(Measured(root), specs)[0]


def _analysed(study: Study, runs: Sequence[Run]) -> tuple[StudyResult | None, str]:
    """The result and a note; over the measured runs alone where some are not measured."""
    trained = [run for run in runs if not run.spec.frozen]
    if not trained:
        return None, "no trained network can be read"
    try:
        return study.analyse(runs), ""
    except NotMeasured:
        pass
    measured = [run for run in runs if run.spec.frozen or _has_full(run)]
    left = sum(not run.spec.frozen for run in measured)
    told = f"the full level is measured for {left} of {len(trained)} networks; --full measures the rest"
    return (study.analyse(measured), told) if left else (None, told)


def _has_full(run: Run) -> bool:
    """True if the full level is there, at the end and at every checkpoint."""
    try:
        for epoch in (*run.spec.checkpoint_epochs, None):
            run.full(epoch)
    except CreditscopeError:
        return False
    return True


def full_reports(root: str | Path) -> list[DiagnosticReport]:
    """The reports of level full of final networks that are in the store; one that cannot be read is left out."""
    if is_archive(Path(root)):
        return Archive(root).full_reports()
    found = []
    for path in sorted((Path(root) / "full").glob("*.json")):
        if "-epoch-" not in path.stem:
            try:
                report = DiagnosticReport.from_json(path)
            except CreditscopeError:
                continue  # it is measured again where it is needed
            if report.run == path.stem:
                found.append(report)
    return found
