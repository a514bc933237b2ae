"""The result of a study from a store: the finished runs of its grid, analysed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.runs.archive import Archive
from creditscope.runs.store import Store
from creditscope.studies.catalogue import NAMES, get_study
from creditscope.studies.grid import PRESETS
from creditscope.studies.result import NotMeasured, Run, StudyResult, runs_of
from creditscope.training.spec import recorded_spec


def show(name: str, preset: str, store: Store | Archive, data_dir: str | Path | None = None) -> StudyResult:
    """What is missing or unusable is a note of the result, never silence."""
    study = get_study(name)
    specs = study.specs(preset)
    runs, problems = store.runs_of(specs) if isinstance(store, Archive) else runs_of(store, specs, data_dir)
    trained = [run for run in runs if not run.spec.frozen]
    if not trained:
        raise CreditscopeError(
            f"{store.root} has no finished run of study {name} ({preset}); {_instead(name, preset, store)}"
        )
    notes = [f"{len(runs)} of {len(specs)} runs are finished"] if len(runs) < len(specs) else []
    return dataclasses.replace(study.analyse(runs), notes=notes + problems)


def _instead(name: str, preset: str, store: Store | Archive) -> str:
    """What to do where there is no run: another preset that has some, or the command that trains them."""
    shares = {}
    for other in PRESETS:
        wanted = [spec for spec in get_study(name).specs(other) if not spec.frozen]
        shares[other] = sum(map(store.has, wanted)) / len(wanted)
    if best := max(shares.values()):
        other = next(p for p in PRESETS if shares[p] == best)
        return f"it has {best:.0%} of preset {other}: add --preset {other}"
    where = f"DIR --archive {store.root}" if isinstance(store, Archive) else str(store.root)
    return f"`creditscope study run {name} --preset {preset} --store {where}` trains them"


def everything(
    preset: str, store: Store | Archive, data_dir: str | Path | None = None
) -> tuple[list[Run], list[StudyResult], list[str]]:
    """All usable runs of a store or an archive, every study that they can answer, and a line for each that they cannot."""
    results: list[StudyResult] = []
    missing: list[str] = []
    for name in NAMES:
        study = get_study(name)
        try:
            results.append(show(name, preset, store, data_dir))
        except NotMeasured as error:
            missing.append(f"{name}: {study.QUESTION} ({error})")
        except CreditscopeError:
            missing.append(f"{name}: {study.QUESTION} ({len(study.specs(preset))} runs, not run yet)")
    if not isinstance(store, Archive):
        specs = [recorded_spec(json.loads(row["spec"])) for row in store.rows() if not row["problem"]]
        return runs_of(store, specs, data_dir)[0], results, missing
    return store.runs(), results, missing


def planned(preset: str) -> dict[str, list[str]]:
    """For every study the hashes of the runs of its grid."""
    return {name: [spec.hash for spec in get_study(name).specs(preset)] for name in NAMES}
