"""A store: one directory per finished run, an index that can be thrown away, and the runs that failed.

    store.json              schema version
    runs/<hash>/            one bundle per run, named by the hash of its spec; appears whole or not at all
    failed/<hash>.json      message, traceback and time of a run that failed; gone once the run succeeds
    full/<hash>.json        facts of level full, measured when a study needed them
    plans/<study>.<preset>.json   which runs a study was started with (for `study status`)
    index.sqlite            what `runs list` shows; rebuilt from the directories whenever it is missing, old or broken

Workers write only their own run directory; the driver indexes. A reader of a store that cannot be written gets the same
rows from memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.errors import CreditscopeError
from creditscope.files import check_schema, claim_directory, dump_json, make_directory, read_json, write_atomic
from creditscope.measure.facts import batch_mean
from creditscope.training.bundle import SPEC, TRAJECTORY, Bundle, is_bundle, load_bundle
from creditscope.training.spec import RunSpec

if TYPE_CHECKING:
    from creditscope.runs.record import Record

SCHEMA_VERSION = 1
INDEX_VERSION = 3
"""Of the index alone, which is rebuilt when it is older."""
INDEX, META = "index.sqlite", "store.json"

COLUMNS = (
    "hash", "label", "method", "credit_norm", "credit_site", "dataset", "arch", "width", "depth", "terminal_norm", "penalty",
    "train_last", "targets", "epochs", "schedule_epochs", "seed", "accuracy", "growth", "reference_norm_128", "gamma", "fired",
    "bytes", "problem", "spec", "stamp",
)  # fmt: skip
"""One row of the index. `problem` says what is wrong with a directory that is no whole bundle; `stamp` is the state of its
spec.json when it was read."""
SHOWN = tuple(c for c in COLUMNS if c not in ("spec", "stamp"))

Row = dict[str, Any]


class Store:
    """A directory of runs. `create` makes it where there is none; without `measures` the full level is read, never measured."""

    def __init__(self, root: str | Path, create: bool = False, measures: bool = True) -> None:
        self.root, self.measures = Path(root), measures
        meta = self.root / META
        if create:
            version_line = dump_json({"schema_version": SCHEMA_VERSION})
            claim_directory(self.root, META, version_line, "a store", own=("runs",))
            self._side("runs")
        if not self.root.is_dir():
            raise CreditscopeError(
                f"{self.root} is not a store; `creditscope study run NAME --store {self.root}` makes one"
            )
        if not meta.exists() and (self.root / "index.json").is_file():
            raise CreditscopeError(
                f"{self.root} is an archive of results, where nothing is trained; `creditscope study show NAME --preset "
                f"paper --store {self.root}` and `creditscope runs list --store {self.root}` read it"
            )
        if not meta.exists():
            raise CreditscopeError(
                f"{self.root} is not a store (it has no {META}); give the directory that was --store of `creditscope study run`, "
                "or `creditscope report` for a directory of bundles"
            )
        content = read_json(meta, "the schema version of a store")
        version = content.get("schema_version") if isinstance(content, dict) else None
        check_schema(version, SCHEMA_VERSION, meta, f"{self.root} is a store of")

    # ---- runs -----------------------------------------------------------------------------------------------------

    def out(self, spec: RunSpec | str) -> Path:
        """The directory of a run, there or not."""
        return self.root / "runs" / (spec if isinstance(spec, str) else spec.hash)

    def has(self, spec: RunSpec) -> bool:
        return is_bundle(self.out(spec))

    def bundle(self, spec: RunSpec | str, verify: bool = True) -> Bundle:
        return load_bundle(self.out(spec), verify)

    def read(self, key: str, data_dir: str | Path | None = None) -> Record:
        """The run with this hash; `data_dir`: for facts of level full that are to be measured."""
        from creditscope.runs.record import stored_record  # torch is slow to import

        return stored_record(self, key, data_dir)

    def check_writable(self) -> None:
        """A one-line error now rather than one for every run."""
        try:
            with tempfile.TemporaryFile(dir=self.root) as probe:  # gone with its process
                probe.write(b"x" * 4096)
                probe.flush()
        except OSError as error:
            raise CreditscopeError(f"cannot write to the store {self.root}: {error.strerror or error}") from None

    def find(self, prefix: str) -> str:
        """The full hash of the one run, finished or failed, that starts with `prefix`."""
        names = {*_names_in(self.root / "runs"), *(p.stem for p in _entries(self.root / "failed"))}
        return the_one(names, prefix, self.root)

    def remove(self, run: str) -> None:
        """Delete a run with what was measured of it."""
        from creditscope.training.loop import discard_partial, is_busy

        out = self.out(run)
        if is_busy(out):
            raise CreditscopeError(f"{out} is being trained now; stop it first")
        try:
            if out.exists():
                gone = out.with_name(f".{out.name}.removed")  # one rename: no reader sees half a run
                shutil.rmtree(gone, ignore_errors=True)
                os.replace(out, gone)
                shutil.rmtree(gone)
            for path in (self.root / "failed" / f"{run}.json", *(self.root / "full").glob(f"{run}*.json")):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise CreditscopeError(f"cannot remove {out}: {error.strerror or error}") from None
        discard_partial(out)

    # ---- failures -------------------------------------------------------------------------------------------------

    def record_failure(self, spec: RunSpec, message: str, trace: str) -> None:
        content = {"spec": spec.model_dump(), "message": message, "traceback": trace, "time": time.time()}
        write_atomic(self._side("failed") / f"{spec.hash}.json", dump_json(content))

    def clear_failure(self, spec: RunSpec) -> None:
        (self.root / "failed" / f"{spec.hash}.json").unlink(missing_ok=True)

    def failures(self) -> dict[str, dict[str, Any]]:
        """hash -> message, traceback, time, spec; runs that have succeeded since are left out."""
        found: dict[str, dict[str, Any]] = {}
        for path in _entries(self.root / "failed"):
            if path.suffix == ".json" and not is_bundle(self.out(path.stem)):
                try:
                    found[path.stem] = read_json(path, "the record of a failed run")
                except CreditscopeError as error:
                    found[path.stem] = {"message": str(error), "traceback": "", "time": 0.0, "spec": {}}
        return found

    def running(self) -> list[str]:
        """Hashes of the runs that a process trains now."""
        locks = (n for n in _names_in(self.root / "runs") if n.startswith(".") and n.endswith(".lock"))
        names = [name[1:-5] for name in locks]
        if not names:
            return []
        from creditscope.training.loop import is_busy  # torch is slow to import

        return sorted(n for n in names if is_busy(self.out(n)))

    # ---- what belongs to a run but is no part of it ---------------------------------------------------------------

    def cached(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """JSON under full/<name>.json, made where it is missing or unreadable; kept if the store can be written."""
        path = self.root / "full" / f"{name}.json"
        if not self.measures and not path.is_file():
            from creditscope.runs.record import NotMeasured  # torch is slow to import

            raise NotMeasured("the full level was not measured; --full measures it")
        if path.exists():
            try:
                content: dict[str, Any] = read_json(path, "measured facts")
                return content
            except CreditscopeError:
                if not self.measures:
                    raise
        content = make()
        # a store that cannot be written is still one to read: measured again next time
        with contextlib.suppress(OSError, CreditscopeError):
            write_atomic(self._side("full") / f"{name}.json", dump_json(content))
        return content

    def write_plan(self, study: str, preset: str, hashes: list[str]) -> None:
        done = sum(is_bundle(self.out(h)) for h in hashes)
        content = {"study": study, "preset": preset, "hashes": hashes, "started": time.time(), "done_at_start": done}
        write_atomic(self._side("plans") / f"{study}.{preset}.json", dump_json(content))

    def plans(self) -> list[dict[str, Any]]:
        return [read_json(p, "a plan") for p in _entries(self.root / "plans") if p.suffix == ".json"]

    def _side(self, name: str) -> Path:
        path = self.root / name
        make_directory(path, f"cannot write to the store {self.root}", parents=False)
        return path

    # ---- index ----------------------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """One row per run directory, by hash; the index is brought up to date first."""
        path = self.root / INDEX
        for _ in range(2):
            try:
                with closing(_open(path)) as db:
                    self._refresh(db)
                    return _rows(db)
            except sqlite3.OperationalError:  # read-only, locked, full or without its table: the same rows, from memory
                break
            except sqlite3.DatabaseError:  # no database any more, or a broken page: the directories hold all of it
                with contextlib.suppress(OSError):
                    _remove_index(path)
        with closing(_open(None)) as db:
            self._refresh(db)
            return _rows(db)

    def refresh(self) -> None:
        self.rows()

    def rebuild(self) -> None:
        """Throw the index away and read every directory again."""
        _remove_index(self.root / INDEX)
        self.refresh()

    def _refresh(self, db: sqlite3.Connection) -> None:
        # a run that could not be read is tried again: what it lacked may be there now (a rule of one's own)
        known = dict(db.execute("SELECT hash, CASE WHEN problem = '' THEN stamp ELSE '' END FROM runs"))
        runs = str(self.root / "runs")
        present = {name: _stamp(f"{runs}/{name}") for name in _names_in(runs) if not name.startswith(".")}
        new = [name for name, stamp in present.items() if known.get(name) != stamp]
        gone = [(name,) for name in known.keys() - present.keys()]
        if not new and not gone:
            return
        rows = [_row(self.root / "runs" / name, present[name]) for name in new]
        marks = ", ".join("?" * len(COLUMNS))
        with db:
            db.executemany(f"INSERT OR REPLACE INTO runs ({_NAMES}) VALUES ({marks})", rows)
            db.executemany("DELETE FROM runs WHERE hash = ?", gone)


_NAMES = ", ".join(COLUMNS)


def _open(path: Path | None) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:" if path is None else path, timeout=30)
    try:
        if path is not None:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version != INDEX_VERSION:
            db.execute("BEGIN IMMEDIATE")  # of several that find it old, one makes it new
            with db:
                if db.execute("PRAGMA user_version").fetchone()[0] == INDEX_VERSION:
                    return db
                db.execute("DROP TABLE IF EXISTS runs")
                db.execute(f"CREATE TABLE IF NOT EXISTS runs ({_NAMES}, PRIMARY KEY (hash))")
                db.execute(f"PRAGMA user_version={INDEX_VERSION}")
    except sqlite3.Error:
        db.close()
        raise
    return db


def _rows(db: sqlite3.Connection) -> list[Row]:
    return [dict(zip(COLUMNS, row, strict=True)) for row in db.execute(f"SELECT {_NAMES} FROM runs ORDER BY hash")]


def _remove_index(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _names_in(directory: str | Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def _entries(directory: Path) -> list[Path]:
    return [directory / name for name in _names_in(directory)]


def _stamp(run: str) -> str:
    """Changes whenever a file of the run comes, goes or is replaced (the directory's time), or its spec is written.

    A string, not a Path: every reader of a store asks it of every run, and a Path takes half of the time.
    """
    try:
        stat, directory = os.stat(f"{run}/{SPEC}"), os.stat(run)
    except OSError:
        return "no spec"
    return f"{stat.st_mtime_ns}:{stat.st_size}:{directory.st_mtime_ns}"


def the_one(names: Iterable[str], prefix: str, root: Path) -> str:
    """The one name that starts with `prefix`."""
    found = sorted(n for n in names if n.startswith(prefix)) if prefix else []
    if len(found) != 1:
        what = "no run" if not found else f"{len(found)} runs"
        raise CreditscopeError(
            f"{what} in {root} with a hash that starts with {prefix!r}; see `creditscope runs list --store {root}`"
        )
    return found[0]


def described(spec: RunSpec, last: dict[str, Any]) -> Row:
    """The columns that a spec and the last line of a trajectory tell."""
    row: Row = {c: getattr(spec, c) for c in COLUMNS if c in RunSpec.model_fields}
    return row | {
        "label": spec.label,
        "terminal_norm": int(bool(spec.terminal_norm)),  # sqlite knows no bool
        "accuracy": last["accuracy"],
        "growth": float(last["growth"]),
        "reference_norm_128": batch_mean(last["g_per_sample"][-1]),
        "gamma": None if last["gamma"] is None else float(last["gamma"]),
        "fired": " ".join(last["fired"]),
        "spec": json.dumps(spec.model_dump(), sort_keys=True),
    }


def row_of(key: str, read: Callable[[], Row], stamp: str = "") -> Row:
    """The row of a run; where it cannot be told, what is wrong with it."""
    row: Row = dict.fromkeys(COLUMNS) | {"hash": key, "stamp": stamp, "problem": ""}
    try:
        return row | read()
    except (CreditscopeError, OSError, ValueError, LookupError, TypeError) as error:
        return row | {"problem": " ".join(str(error).split())}


def _row(run: Path, stamp: str) -> tuple[Any, ...]:
    """The row of one directory: from its files alone, so that a rebuilt index equals the one it replaces."""

    def read() -> Row:
        spec = load_bundle(run, verify=False).spec  # checksums are verified when a run is used
        if spec.hash != run.name:
            raise CreditscopeError(f"{run} holds another run ({spec.hash[:10]})")
        last = json.loads((run / TRAJECTORY).read_bytes().splitlines()[-1])
        return described(spec, last) | {"bytes": sum(p.stat().st_size for p in run.iterdir())}

    return tuple(row_of(run.name, read, stamp).values())
