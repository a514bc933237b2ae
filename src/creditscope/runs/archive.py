"""Results without weights: one JSON file per run, small enough to be published with a paper.

    index.json          schema version, the studies it was made for, and for every run its label, accuracy and command
    runs/<hash>.json    spec, versions, device, checksums of the bundle it was taken from, trajectory, facts, level-full facts

Studies are analysed from an archive as from a store (`study show --store`), to the same numbers.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError
from creditscope.files import dump_json, dump_line, locked, make_directory, read_json, write_atomic
from creditscope.measure.facts import Facts
from creditscope.protocol.report import DiagnosticReport, make_report, stored_certificate
from creditscope.runs.record import NotMeasured, Record, facts_of, records_of
from creditscope.runs.store import Row, Store, described, row_of, the_one
from creditscope.training.spec import RunSpec, recorded_spec

SCHEMA_VERSION = 2
"""2: facts alone; 1: whole reports with a verdict, which is not read. Both are read."""
INDEX = "index.json"
FINAL = "final"


class Archive:
    """A directory of results, read as a store is."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        index = read_json(self.root / INDEX, "the index of an archive of results")
        version = index.get("schema_version") if isinstance(index, dict) else None
        if version not in range(1, SCHEMA_VERSION + 1):
            raise CreditscopeError(
                f"{self.root / INDEX} has schema_version {version!r}; a whole number up to {SCHEMA_VERSION} is expected"
            )
        self._plans = index.get("plans", [])
        self._read: dict[str, Record] = {}

    def plans(self) -> list[dict[str, Any]]:
        """The studies and presets that its store was run for."""
        return list(self._plans)

    def has(self, spec: RunSpec) -> bool:
        return (self.root / "runs" / f"{spec.hash}.json").is_file()

    def runs_of(self, specs: Iterable[RunSpec]) -> tuple[list[Record], list[str]]:
        """The runs among the specs that are here, and one line for each file that cannot be used."""
        return records_of(self, specs)

    def read(self, key: str, data_dir: str | Path | None = None) -> Record:
        """The run with this hash; studies share runs, so each file is read once. Nothing is measured."""
        if key not in self._read:
            self._read[key] = read_run(self.root / "runs" / f"{key}.json")
        return self._read[key]

    def hashes(self) -> list[str]:
        return sorted(path.stem for path in (self.root / "runs").glob("*.json"))

    def find(self, prefix: str) -> str:
        """The full hash of the one run that starts with `prefix`."""
        return the_one(self.hashes(), prefix, self.root)

    def rows(self) -> list[Row]:
        """One row per file, by hash, as a store gives them."""

        def read_row(key: str) -> Row:
            run = self.read(key)
            return described(run.spec, run.trajectory[-1]) | {"bytes": run.path.stat().st_size}

        return [row_of(key, partial(read_row, key)) for key in self.hashes()]

    def failures(self) -> dict[str, dict[str, Any]]:
        """None: an archive holds finished runs only."""
        return {}

    def runs(self) -> list[Record]:
        """Every run of the archive, by hash."""
        return [self.read(key) for key in self.hashes()]

    def full_reports(self) -> list[DiagnosticReport]:
        """The reports of level full of final networks."""
        found = []
        for record in self.runs():
            try:
                facts = record.full(None)
            except NotMeasured:
                continue
            report = make_report(facts, method_name=record.spec.label, run=record.spec.hash)
            found.append(report if record.certificate is None else report.with_certificate(record.certificate))
        return found


def is_archive(path: Path) -> bool:
    return (path / INDEX).is_file() and (path / "runs").is_dir()


def open_source(path: str | Path, measures: bool = True) -> Store | Archive:
    """A store, or an archive of results; whichever the directory is. `measures`: see `Store`."""
    return Archive(path) if is_archive(Path(path)) else Store(path, measures=measures)


def read_run(path: Path) -> Record:
    """One file of an archive; what is not what it states to be is an error."""
    content = read_json(path, "a run of an archive")
    try:
        spec, versions = recorded_spec(content["spec"]), dict(content["versions"])
        trajectory, report, full = content["trajectory"], content["report"], content["full"]
        device = dict(content.get("device", {}))
        lines = [int(line["epoch"]) for line in trajectory]
        facts = {name: facts_of(value, spec, str(path)) for name, value in full.items()}
        certificate = stored_certificate(full.get(FINAL), str(path))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CreditscopeError(f"{path} is not a run of an archive: {type(error).__name__}: {error}") from None
    if spec.hash != path.stem or lines != list(range((spec.epochs or 0) + 1)):
        raise CreditscopeError(f"{path} was altered: it is named after another spec, or epochs are missing")

    def measured(epoch: int | None) -> Facts:
        name = FINAL if epoch is None else f"epoch-{epoch:03d}"
        if name not in facts:
            raise NotMeasured(
                f"{path} has no facts of level full ({name}); measure it in its store and export it again"
            )
        return facts[name]

    facts_of(report, spec, str(path))
    return Record(spec, trajectory, report, path, measured, versions, device, lambda: certificate)


def facts_only(report: dict[str, Any]) -> dict[str, Any]:
    """A stored report without what follows from its facts; a certificate is measured, and stays."""
    kept = ("schema_version", "facts", "headline_acc", "n_test", "certificate")
    return {k: report[k] for k in kept if k in report}


def command(spec: RunSpec) -> str:
    """The exact command that trains this run."""
    named = ("dataset", "arch", "method", "credit_norm")
    default = recorded_spec({name: getattr(spec, name) for name in (*named, "epochs")})
    words = ["creditscope", "train", "--dataset", str(spec.dataset), "--arch", str(spec.arch), "--method", spec.method]
    if spec.credit_norm:
        words += ["--credit-norm", spec.credit_norm]
    for name in RunSpec.model_fields:
        value = getattr(spec, name)
        if name in (*named, "options") or (value == getattr(default, name) and name != "epochs"):
            continue
        words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else (value,))]
    if changed := [f"{k}={v}" for k, v in spec.options.items() if v != default.options.get(k)]:
        words += ["--option", *changed]
    return shlex.join(words)


def write_archive(store: Store, hashes: Iterable[str], out: Path) -> list[str]:
    """Write the finished runs among `hashes`; the runs and the studies that the archive has already stay."""
    make_directory(out / "runs", f"cannot create the archive {out}")
    busy = CreditscopeError(f"{out} is being written by another process; wait for it or stop it")
    with locked(out / f".{INDEX}.lock", busy, wait=60):  # the index is read, added to and written back
        return _write_archive(store, hashes, out)


def _write_archive(store: Store, hashes: Iterable[str], out: Path) -> list[str]:
    written = []
    before = Archive(out).plans() if is_archive(out) else []
    for key in dict.fromkeys(hashes):
        if not (store.out(key) / "spec.json").is_file():
            continue
        bundle = store.bundle(key)
        stated: dict[str, Any] = read_json(bundle.path / "spec.json", "the spec of a bundle")
        full = {}
        for path in sorted((store.root / "full").glob(f"{key}*.json")):
            full[path.stem.removeprefix(key).removeprefix("-") or FINAL] = facts_only(read_json(path, "measured facts"))
        content = {
            "schema_version": SCHEMA_VERSION,
            "spec": stated["spec"],
            "versions": stated["versions"],
            "device": stated.get("device", {}),
            "files": stated["files"],
            "command": command(bundle.spec),
            "trajectory": bundle.trajectory,
            "report": facts_only(bundle.report),
            "full": full,
        }
        write_atomic(out / "runs" / f"{key}.json", dump_line(content))
        written.append(key)
    runs = {path.stem: read_run(path) for path in sorted((out / "runs").glob("*.json"))}
    rows = {
        key: {"label": r.spec.label, "seed": r.spec.seed, "accuracy": r.accuracy, "command": command(r.spec)}
        for key, r in runs.items()
    }
    now = [{"study": p["study"], "preset": p["preset"]} for p in store.plans()]
    plans = sorted(before + [p for p in now if p not in before], key=lambda p: (p["study"], p["preset"]))
    write_atomic(out / INDEX, dump_json({"schema_version": SCHEMA_VERSION, "plans": plans, "runs": rows}))
    return written
