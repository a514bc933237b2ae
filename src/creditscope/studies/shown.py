"""Studies read from a store or an archive: the finished runs of a grid, and the table that they make."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.protocol.report import DiagnosticReport
from creditscope.runs.archive import Archive, is_archive, open_source
from creditscope.runs.record import Record, mixed_devices, records_of
from creditscope.runs.store import Store
from creditscope.studies.catalogue import NAMES, get_study
from creditscope.studies.grid import PRESETS
from creditscope.studies.study import Study
from creditscope.tables import Table
from creditscope.training.spec import RunSpec, recorded_spec

ENOUGH = 0.5
"""Share of a study's trained networks from which it is shown although nobody planned it."""


def show(name: str, preset: str, source: Store | Archive, data_dir: str | Path | None = None) -> Table:
    """The table of a study. What is missing or unusable is a note of it, never silence."""
    study = get_study(name)
    specs = study.runs(preset, source)
    records, problems = records_of(source, specs, data_dir)
    if all(record.spec.frozen for record in records):
        raise CreditscopeError(
            f"{source.root} has no finished run of study {name} ({preset}); {_instead(study, name, preset, source)}"
        )
    return noted(study, specs, records, problems)


def noted(study: Study, specs: Sequence[RunSpec], records: Sequence[Record], problems: Sequence[str]) -> Table:
    """The table of the records, with what is missing of the grid."""
    table = study.table(records)
    there = [f"{len(records)} of {len(specs)} runs are finished"] if len(records) < len(specs) else []
    mixed = filter(None, [mixed_devices(records)])
    return replace(table, notes=(*there, *problems, *mixed, *table.notes))


def _instead(study: Study, name: str, preset: str, source: Store | Archive) -> str:
    """What to do where there is no run: another preset that has some, or the command that trains them."""
    shares = {}
    for other in PRESETS:
        wanted = [spec for spec in study.specs(other) if not spec.frozen]
        shares[other] = sum(map(source.has, wanted)) / len(wanted)
    if best := max(shares.values()):
        other = next(p for p in PRESETS if shares[p] == best)
        return f"it has {best:.0%} of preset {other}: add --preset {other}"
    where = f"DIR --archive {source.root}" if isinstance(source, Archive) else str(source.root)
    return f"`creditscope study run {name} --preset {preset} --store {where}` trains them"


def every_record(root: str | Path) -> tuple[list[Record], list[str]]:
    """All finished runs of a store or an archive, and a line for each that cannot be used; the full level is never measured."""
    store = open_source(root, measures=False)
    if isinstance(store, Archive):
        return store.runs(), []
    return records_of(store, [recorded_spec(json.loads(row["spec"])) for row in store.rows() if not row["problem"]])


@dataclass(frozen=True)
class Stored:
    """What a store can show."""

    results: tuple[tuple[str, Table], ...]
    """(preset, table), in the order of the catalogue."""
    begun: tuple[str, ...]
    """One line for each study that is planned and not begun, has a few runs, or lacks the facts that it needs."""


def stored_studies(root: str | Path, full: bool = False, data_dir: str | Path | None = None) -> Stored:
    """The studies of the presets that the store's plans name (all presets where there is no plan).

    `full`: measure the full level where it is missing (and keep it in the store); otherwise a table says where it is missing.
    """
    source = open_source(root, measures=full)
    plans = {(str(p["study"]), str(p["preset"])) for p in source.plans()}
    presets = {preset for _, preset in plans} or set(PRESETS)
    results: list[tuple[str, Table]] = []
    begun: list[str] = []
    for name in NAMES:
        study = get_study(name)
        for preset in (p for p in PRESETS if p in presets):
            specs = study.runs(preset, source)
            trained = [s for s in specs if not s.frozen]
            done, is_planned = sum(source.has(s) for s in trained), (name, preset) in plans
            if not done or (not is_planned and done < ENOUGH * len(trained)):
                if done or is_planned:
                    begun.append(f"{name} ({preset}): {done} of {len(trained)} networks are trained")
                continue
            records, problems = records_of(source, specs, data_dir)
            if all(record.spec.frozen for record in records):
                begun.append(f"{name} ({preset}): no trained network can be read")
                continue
            results.append((preset, noted(study, specs, records, problems)))
    return Stored(tuple(results), tuple(begun))


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
