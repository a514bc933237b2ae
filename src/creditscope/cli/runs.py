"""creditscope runs"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from creditscope.cli.output import put, tell_written
from creditscope.errors import CreditscopeError, meant
from creditscope.runs.store import COLUMNS, SHOWN, Row, Store
from creditscope.training.spec import RECIPES, RunSpec, norm_remark


@dataclass
class List:
    """One line per run of a store.

    Example: creditscope runs list --store runs/store
    """

    store: Path
    """Directory of the store, or of an archive."""
    method: tuple[str, ...] = ()
    """Only runs of these methods (dfa: with their nulls), or of these labels (dfa(rms))."""
    rebuild: bool = False
    """Discard the index and read every run directory again."""

    def execute(self) -> int:
        from creditscope.render.numbers import printable
        from creditscope.runs.archive import open_source

        if self.rebuild:
            _store(self.store).rebuild()
        source = open_source(self.store)
        rows = sorted(source.rows(), key=_place)
        if self.method:
            rows = _by(rows, self.method, self.store)
        head = ("run", "method", "dataset", "arch", "d", "L", "epochs", "seed", "accuracy", "growth")
        usable = {r["hash"]: _cells(r) for r in rows if not r["problem"]}
        label, arch, epochs = (max(len(str(cells[k])) for cells in (head, *usable.values())) for k in (1, 3, 6))
        line = f"{{:<10}}  {{:<{label}}}  {{:<10}} {{:<{arch}}} {{:>4}} {{:>3}} {{:>{epochs}}} {{:>6}} {{:>8}}  {{}}".format
        lines = [line(*head)]
        for r in rows:
            problem = f"{printable(r['hash'][:10]):<10}  unusable: {printable(r['problem'])}" if r["problem"] else ""
            lines.append(problem or line(*usable[r["hash"]]))
        failures = source.failures()
        lines += [f"{key[:10]:<10}  failed: {printable(f['message'])}" for key, f in failures.items()]
        bad = sum(bool(r["problem"]) for r in rows)
        others = (f", {n} {what}" for what, n in (("unusable", bad), ("failed", len(failures))) if n)
        print("\n".join([*lines, f"{len(rows) - bad} run{'s' * (len(rows) - bad != 1)}{''.join(others)}"]))
        return 0


@dataclass
class Show:
    """The report of one run, or why it failed.

    Example: creditscope runs show 3fa9 --store runs/store
    """

    run: Annotated[str, tyro.conf.Positional]
    """Hash of the run, or its beginning."""
    store: Path
    """Directory of the store, or of an archive."""
    long: bool = False
    """Print the whole report."""

    def execute(self) -> int:
        from creditscope.cli.output import report_text
        from creditscope.render.numbers import printable
        from creditscope.runs.archive import Archive, command, open_source
        from creditscope.runs.judged import judged

        store = open_source(self.store)
        key = store.find(self.run)
        if key in (failures := store.failures()):
            print(f"run {key} failed: {printable(failures[key]['message'])}")
            for line in str(failures[key]["traceback"]).splitlines():
                print(f"  {printable(line)}")
            return 0
        run = store.read(key)
        report, judgement = judged(store, key)
        if isinstance(store, Archive):
            where = f"file {run.path}\ntrained by {command(run.spec)}"
        else:
            where = f"bundle {run.path}\nspec {json.dumps(run.spec.model_dump(), sort_keys=True)}"
        print(f"run {key}\n{where}\n{judgement}\n\n{report_text(report, run.spec.frozen, self.long)}")
        return 0


@dataclass
class Rm:
    """Remove runs from a store.

    Example: creditscope runs rm 3fa9 --store runs/store
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Hashes of the runs, or their beginnings."""
    store: Path
    """Directory of the store."""

    def execute(self) -> int:
        if not self.runs:
            raise CreditscopeError("runs rm needs the hash of a run, or its beginning; see `creditscope runs list`")
        store = _store(self.store)
        for key in [store.find(prefix) for prefix in self.runs]:
            store.remove(key)
            print(f"removed {key}")
        store.refresh()
        return 0


@dataclass
class Export:
    """All runs of a store as one table.

    Example: creditscope runs export --store runs/store --format json --out runs.json
    """

    store: Path
    """Directory of the store; for a table, an archive will do."""
    out: Path | None = None
    """File to write (default: standard output; parquet needs a file)."""
    format: Literal["csv", "json", "parquet", "archive"] = "csv"
    """csv, json or parquet (parquet: pip install 'creditscope[query]'): one table. archive: a directory with one JSON file
    per run (everything but the weights), which `study show` reads like a store."""

    def execute(self) -> int:
        from creditscope.files import plain, write_atomic
        from creditscope.render.tables import csv_text
        from creditscope.runs.archive import open_source, write_archive

        if self.format == "archive":
            if self.out is None:
                raise CreditscopeError("an archive is a directory; name it with --out")
            store = _store(self.store)
            written = write_archive(store, [r["hash"] for r in store.rows() if not r["problem"]], self.out)
            print(f"{len(written)} run{'s' * (len(written) != 1)} in {self.out}")
            return 0
        rows = [{c: r[c] for c in SHOWN} | _more_of(r["spec"]) for r in open_source(self.store).rows()]
        if self.format == "parquet":
            try:
                import pyarrow
                import pyarrow.parquet
            except ImportError:
                raise CreditscopeError("parquet needs pyarrow; install it: pip install 'creditscope[query]'") from None
            if self.out is None:
                raise CreditscopeError("parquet is not text; give a file with --out")
            buffer = io.BytesIO()
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
            write_atomic(self.out, buffer.getvalue())
            tell_written(self.out)
            return 0
        if self.format == "json":
            text = json.dumps(plain(rows), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        else:
            text = csv_text((*SHOWN, *_more_of(None)), rows)
        put(text, self.out)
        return 0


@dataclass
class Measure:
    """Measure finished runs at level full, from the weights in the store. Runs that have every fact of this version
    are skipped. `runs export --format archive` exports the facts too. Exit code 3 if a run could not be measured.

    Example: creditscope runs measure runs/store
    """

    store: Annotated[Path, tyro.conf.Positional]
    """Directory of the store."""
    run: tuple[str, ...] = ()
    """Hashes of the runs, or their beginnings (default: all finished runs)."""
    again: bool = False
    """Measure again even if every fact is there."""
    data_dir: Path | None = None
    """Where the CIFAR files are."""
    device: str = "cpu"
    """Where it is measured: cpu, cuda, cuda:1, mps, ..., or auto (an accelerator, if there is one)."""

    def execute(self) -> int:
        from creditscope.cli.place import measuring
        from creditscope.runs.measured import lacking, measure

        device = measuring(self.device)
        store = _store(self.store)
        store.check_writable()
        keys = [store.find(prefix) for prefix in self.run] or [r["hash"] for r in store.rows() if not r["problem"]]
        counts = {"measured": 0, "complete": 0, "not measured": 0}
        for key in keys:
            try:
                missing = lacking(store, key)
                if not missing and not self.again:
                    counts["complete"] += 1
                    continue
                report = measure(store, key, self.data_dir, device)
            except CreditscopeError as error:
                counts["not measured"] += 1
                print(f"{key[:10]}  not measured: {error}", file=sys.stderr)
                continue
            counts["measured"] += 1
            print(f"{key[:10]}  {report.method_name}: measured")
        print(", ".join(f"{n} {what}" for what, n in counts.items() if n) or "no finished run")
        return 3 if counts["not measured"] else 0


@dataclass
class Verify:
    """Train a run again from its spec and compare every number of its trajectory with the record (with all epochs,
    of its report too). Exit code 3 if it is not reproduced.

    Example: creditscope runs verify --store results --epochs 2
    """

    store: Path
    """Directory of the store, or of an archive (such as results/)."""
    run: Annotated[str | None, tyro.conf.Positional] = None
    """Hash of the run, or its beginning (default: a random run)."""
    epochs: int | None = None
    """Train and compare only this many epochs (default: all)."""
    data_dir: Path | None = None
    """Where the CIFAR files are."""
    device: str | None = None
    """Where it is trained again (default: a device of the kind that the record names, or the CPU where there is none)."""

    def execute(self) -> int:
        from rich.console import Console

        from creditscope.cli.bar import epoch_bar
        from creditscope.cli.place import chosen
        from creditscope.runs.archive import open_source
        from creditscope.runs.verify import TOLERANCE, kind_of, pick, shortened, verify
        from creditscope.stream.devices import device_text

        run = pick(open_source(self.store), self.run)
        device = chosen(self.device or kind_of(run))
        epochs = shortened(run.spec, self.epochs).epochs
        print(f"run {run.spec.slug}: {run.spec.label}, seed {run.spec.seed}, {epochs} of {run.spec.epochs} epochs")
        with epoch_bar(run.spec.label, epochs, Console(stderr=True)) as progress:
            found = verify(run, self.epochs, self.data_dir, progress, device)
        other = {k: (v, found.versions.get(k)) for k, v in run.versions.items() if found.versions.get(k) != v}
        for name, (then, now) in other.items():
            print(f"recorded with {name} {then}, here {now}")
        expected = "same device: to the bit" if found.same_device else "other device: within the tolerance"
        if other and found.same_device:
            expected = "same device, other versions: within the tolerance"
        print(f"recorded on {device_text(run.device)}, here {device_text(found.device)}; {expected}")
        if not found.differences:
            report = ", and so is the report" if found.epochs == run.spec.epochs else ""
            print(f"every number of epochs 0 to {found.epochs} is equal to the last bit{report}\nREPRODUCED exactly")
            return 0
        if not other and found.same_device:
            print(
                "the versions are the same: another processor, or another state of the code, computes in another order"
            )
        first, more = found.differences[0], len(found.differences) - 1
        print(f"differs at epoch {first.epoch}: {_difference(first)}" + (f" (and {more} more)" if more else ""))
        if found.beyond:
            for d in found.beyond[:5]:
                print(f"outside the tolerance at epoch {d.epoch}: {_difference(d)}")
            print(f"NOT REPRODUCED ({TOLERANCE})")
            return 3
        print(f"REPRODUCED within the tolerance ({TOLERANCE})")
        return 0


def _more_of(spec: str | None) -> dict[str, Any]:
    """The settings of a run that are no columns of a store's index; of a damaged run none."""
    known = json.loads(spec) if spec else {}
    names = [name for name in RunSpec.model_fields if name not in COLUMNS]
    return {name: json.dumps(v) if isinstance(v := known.get(name), dict | list) else v for name in names}


def _by(rows: list[Row], wanted: tuple[str, ...], store: Path) -> list[Row]:
    """The runs of these methods, nulls included, or of these labels."""
    usable = [r for r in rows if not r["problem"]]
    methods = [json.loads(r["spec"])["method"] for r in usable]
    known = {*methods, *(r["label"] for r in usable)}
    if missing := [name for name in wanted if name not in known]:
        others = sorted(set(methods))
        advice = f"{meant(missing[0], others)}choose one of {', '.join(others)}" if others else "it has no finished run"
        raise CreditscopeError(f"no run of {store} is by {missing[0]!r}; {advice}")
    return [r for r, method in zip(usable, methods, strict=True) if {r["label"], method} & {*wanted}]


def _place(row: Row) -> tuple[Any, ...]:
    """Runs that are compared stand together: data set, network, method, epochs, seed."""
    if row["problem"]:
        return (1, row["hash"])
    keys = ("dataset", "arch", "width", "depth", "label", "epochs", "seed", "hash")
    return (0, *(row[k] for k in keys))


def _cells(row: Row) -> tuple[Any, ...]:
    """The line of a run, column by column."""
    from creditscope.render.numbers import num, printable

    label, arch = printable(row["label"]) + _rate(row), row["arch"] + norm_remark(row["arch"], row["terminal_norm"])
    task = (row["hash"][:10], label, row["dataset"], arch, row["width"], row["depth"], _length(row), row["seed"])
    return (*task, f"{row['accuracy']:.3f}", num(row["growth"]))


def _rate(row: Row) -> str:
    """The learning rate, where it is not the recipe's."""
    lr = json.loads(row["spec"])["lr"]
    return "" if lr == RECIPES.get(row["dataset"], {}).get("lr", lr) else f", lr {lr:g}"


def _length(row: Row) -> str:
    """Epochs trained, of how many the schedule has."""
    trained, planned = row["epochs"], row["schedule_epochs"]
    return str(trained) if trained == planned else f"{trained} of {planned}"


def _store(path: Path) -> Store:
    from creditscope.runs.archive import open_source

    source = open_source(path)
    if not isinstance(source, Store):
        raise CreditscopeError(f"{path} is an archive of results, without weights; this needs a store")
    return source


def _difference(d: Any) -> str:
    return f"{d.what}: {d.recorded} recorded, {d.here} here"
