"""The result of a study from a store: the finished runs of its grid, analysed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.studies.archive import Archive
from creditscope.studies.catalogue import get_study
from creditscope.studies.result import StudyResult, runs_of
from creditscope.studies.store import Store


def show(name: str, preset: str, store: Store | Archive, data_dir: str | Path | None = None) -> StudyResult:
    """What is missing or unusable is a note of the result, never silence."""
    study = get_study(name)
    specs = study.specs(preset)
    runs, problems = store.runs_of(specs) if isinstance(store, Archive) else runs_of(store, specs, data_dir)
    trained = [run for run in runs if not run.spec.frozen]
    if not trained:
        raise CreditscopeError(
            f"{store.root} has no finished run of study {name} ({preset}); "
            f"`creditscope study run {name} --preset {preset} --store {store.root}` trains them"
        )
    notes = [f"{len(runs)} of {len(specs)} runs are finished"] if len(runs) < len(specs) else []
    return dataclasses.replace(study.analyse(runs), notes=notes + problems)
