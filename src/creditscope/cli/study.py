"""creditscope study"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import tyro

from creditscope.cli.output import remark
from creditscope.cli.parse import named_value
from creditscope.errors import CreditscopeError
from creditscope.runs.store import META, Store
from creditscope.studies.catalogue import RUNS, get_study, question

if TYPE_CHECKING:
    from creditscope.runs.archive import Archive
    from creditscope.training.spec import RunSpec

FAILED = 1
PresetName = Literal["smoke", "quick", "paper", "reduced"]


@dataclass
class List:
    """The studies and what each asks.

    Example: creditscope study list
    """

    def execute(self) -> int:
        for name, runs in RUNS.items():
            sizes = ", ".join(f"{preset} {n}" for preset, n in zip(get_args(PresetName), runs, strict=True))
            print(f"{name:<14}  {question(name)}  (runs: {sizes})")
        return 0


@dataclass
class Plan:
    """What a study would cost here, from a short calibration of every kind of run that is not done yet.

    Example: creditscope study plan audit --preset paper
    """

    name: Annotated[str, tyro.conf.Positional]
    """Name of the study, or the path of a file that defines STUDY."""
    preset: PresetName = "smoke"
    """smoke (embedded dataset, under two minutes), quick (real data, few epochs), paper (published recipe and seeds),
    reduced (paper, with fewer epochs or seeds for costly runs)."""
    seeds: tuple[int, ...] = ()
    """Only these seeds of the grid (default: all)."""
    store: Path | None = None
    """Store with runs that are already done."""
    archive: Path | None = None
    """Archive of results (such as results/); its runs count as done."""
    workers: int | None = None
    """Runs at the same time (default: one per core)."""
    data_dir: Path | None = None
    """Where the CIFAR files are."""

    def execute(self) -> int:
        from creditscope.runs.execute import duration_text
        from creditscope.runs.plan import plan

        specs = _chosen(self.name, self.preset, self.seeds, self.store, self.archive)
        store = Store(self.store) if self.store and self.store.exists() else None
        left = _lacking(self.archive, specs)
        p = plan(left, store, self.workers, self.data_dir)
        duration = f"about {p.hours:.1f} hours" if p.hours >= 1 else duration_text(60 * p.hours)
        disk = f"{p.bytes / 2**20:.0f} MB" if p.bytes >= 2**20 or not p.bytes else "less than 1 MB"
        done = len(specs) - len(left) + p.done
        print(
            f"{self.name} ({self.preset}): {len(specs)} run{'s' * (len(specs) != 1)}, {done} done, {len(specs) - done} left"
        )
        print(f"{duration} on {p.workers} workers; disk {disk}")
        print(f"(calibration: {p.calibration})")
        if get_study(self.name).then:
            print(
                "further runs are chosen from the results of these: `study run` trains them too, and a later plan counts them"
            )
        return 0


@dataclass
class Run:
    """Train every run of these studies that the store lacks. A run that fails is recorded and does not stop the
    others; the same command again retries it. Several processes may work on one store. Exit code 1 if a run failed.

    Example: creditscope study run audit ablation temporal --preset smoke --store runs/store
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Names of the studies, or paths of files that define STUDY; runs that they share are trained once."""
    store: Path
    """Directory of the store; created if missing."""
    archive: Path | None = None
    """Archive of results (such as results/); its runs count as done."""
    preset: PresetName = "smoke"
    """smoke (embedded dataset, under two minutes), quick (real data, few epochs), paper (published recipe and seeds),
    reduced (paper, with fewer epochs or seeds for costly runs)."""
    seeds: tuple[int, ...] = ()
    """Only these seeds of the grid (default: all)."""
    executor: Literal["local", "ray", "slurm", "dask"] = "local"
    """Where to execute the runs."""
    workers: int | None = None
    """Runs at the same time (default: one per core)."""
    device: str = "cpu"
    """Where the runs are trained: cpu, cuda, cuda:1, mps, ..., or auto (an accelerator, if there is one)."""
    devices: str | None = None
    """Numbers of the devices that this machine trains on, for example 0,1,2,3; each run gets one of them."""
    per_device: int = 1
    """Runs at the same time on one device (with --devices; Ray and Dask: each run asks for its share of one)."""
    address: str | None = None
    """Address of a Ray cluster or of a Dask scheduler (default: a local one)."""
    timeout: float | None = None
    """Minutes after which a run of the local executor counts as hung. It is stopped and recorded; the next command retries it."""
    slurm_partition: str | None = None
    """SLURM partition."""
    slurm_account: str | None = None
    """SLURM account."""
    slurm_qos: str | None = None
    """SLURM quality of service."""
    slurm_time: int | None = None
    """Minutes that SLURM gives each run (default: a day)."""
    slurm_mem: str | None = None
    """Memory of each run, for example 4GB."""
    slurm: tuple[str, ...] = ()
    """Further parameters of SLURM as NAME=VALUE, for example constraint=avx512."""
    slurm_cluster: str | None = None
    """submitit's cluster: slurm, or local to run the jobs on this machine (default: slurm if there is one)."""
    data_dir: Path | None = None
    """Where the CIFAR files are."""

    def execute(self) -> int:
        from rich.console import Console

        from creditscope.cli.place import chosen, several
        from creditscope.runs.execute import run_store
        from creditscope.runs.executors import LIBRARIES, make_executor, needs

        if self.workers is not None and self.workers < 1:
            raise CreditscopeError(f"--workers is {self.workers}; give 1 or more")
        if not self.names:
            raise CreditscopeError("study run needs the name of a study; see `creditscope study list`")
        wanted = self._wanted()
        if self.executor in LIBRARIES:
            needs(self.executor)
        if self.devices and self.executor != "local":
            raise CreditscopeError(f"--devices is for the local executor; {self.executor} chooses devices itself")
        devices = several(self.devices, self.device) if self.devices else None
        device = None if devices else str(chosen(self.device)) if self.executor == "local" else self.device
        specs = self._planned(wanted)
        store = Store(self.store)
        console = Console(stderr=True)
        done = sum(store.has(s) for s in specs)
        console.print(
            f"{len(specs)} run{'s' * (len(specs) != 1)}, {done} done already; store {store.root}", soft_wrap=True
        )
        if done == len(specs) and all(_whole(store, s) for s in specs):
            return _finish(self, store, len(specs), len(specs), 0)
        executor = make_executor(
            self.executor,
            self.workers,
            devices=devices,
            per_device=self.per_device,
            accelerated=self.device != "cpu",
            timeout=60 * self.timeout if self.timeout else None,
            address=self.address,
            slurm=_slurm(self),
            cluster=self.slurm_cluster,
            folder=str(store.root / "slurm"),
        )
        try:
            while True:
                failures = run_store(specs, store, executor, data_dir=self.data_dir, console=console, device=device)
                before = len(specs)
                if failures or len(specs := self._planned(self._wanted())) == before:
                    break
                console.print(f"{len(specs) - before} further runs, chosen from the results of these", soft_wrap=True)
        except KeyboardInterrupt:
            raise CreditscopeError(
                f"stopped; finished epochs are kept in {store.root}: run the same command again to resume"
            ) from None
        finally:
            executor.shutdown()
        for failure in failures:
            remark(f"run {failure.spec.slug} failed: {failure.message}")
        bad = {f.spec.hash for f in failures}
        good = sum(store.has(s) and s.hash not in bad for s in specs)
        return _finish(self, store, good, len(specs), len(failures))

    def _wanted(self) -> dict[str, list[RunSpec]]:
        """The runs of every study, with those that finished ones have chosen."""
        return {name: _chosen(name, self.preset, self.seeds, self.store, self.archive) for name in self.names}

    def _planned(self, wanted: dict[str, list[RunSpec]]) -> list[RunSpec]:
        """What the archive lacks of these runs; their data can be read, and the store knows the plan."""
        from creditscope.data import load_dataset
        from creditscope.data.cifar import SPECS
        from creditscope.studies.grid import unique

        specs = _lacking(self.archive, unique(spec for found in wanted.values() for spec in found))
        # files that cannot be read or downloaded are one line now, before a store is made, and not one for every run
        there = Store(self.store) if (self.store / META).exists() else None
        for name in sorted({str(s.dataset) for s in specs if s.dataset in SPECS and not (there and there.has(s))}):
            load_dataset(name, self.data_dir)
        store = Store(self.store, create=True)
        store.check_writable()
        for name, found in wanted.items():
            store.write_plan(get_study(name).name, self.preset, [s.hash for s in found])
        return specs


@dataclass
class Status:
    """How far the studies of a store are: runs done, running and failed, and the time left.

    Example: creditscope study status --store runs/store
    """

    store: Path
    """Directory of the store."""

    def execute(self) -> int:
        store = Store(self.store)
        running, failures = set(store.running()), store.failures()
        problems = {r["hash"]: r["problem"] for r in store.rows()}
        unusable = {key: problem for key, problem in problems.items() if problem}
        print(f"{'study':<24} {'runs':>5} {'done':>5} {'running':>8} {'failed':>7} {'left':>5}   time left")
        for p in store.plans():
            hashes = p["hashes"]
            done = sum(problems.get(h) == "" for h in hashes)
            now = sum(h in running for h in hashes)
            bad = sum((h in failures and h not in running) or h in unusable for h in hashes)
            fresh, left = done - p["done_at_start"], len(hashes) - done
            eta = "–"
            if left and now and fresh > 0:
                eta = f"{(time.time() - p['started']) / fresh * left / 60:.1f} minutes"
            name = f"{p['study']} ({p['preset']})"
            print(f"{name:<24} {len(hashes):>5} {done:>5} {now:>8} {bad:>7} {left - now - bad:>5}   {eta}")
        for key, f in failures.items():
            print(f"failed {key[:10]}: {f['message']}")
        for key, problem in unusable.items():
            print(
                f"unusable {key[:10]}: {problem}; `creditscope runs rm {key[:10]} --store {store.root}` lets it be trained again"
            )
        return 0


@dataclass
class Show:
    """Table and conclusion of a study, from the runs that are finished. Published values stand next to ours where
    they apply.

    Example: creditscope study show audit --preset smoke --store runs/store
    """

    name: Annotated[str, tyro.conf.Positional]
    """Name of the study, or the path of a file that defines STUDY."""
    store: Path
    """Directory of the store, or of an archive (`runs export --format archive`)."""
    preset: PresetName = "smoke"
    """Preset that was run."""
    json: bool = False
    """As JSON: every number in full, with what the figure draws."""
    markdown: bool = False
    """As Markdown."""
    latex: bool = False
    """As a LaTeX table (booktabs, longtable)."""
    csv: bool = False
    """As CSV: every number in full, with interval, spread and number of networks."""
    html: bool = False
    """As an HTML table."""
    data_dir: Path | None = None
    """Where the CIFAR files are (a study of level full is measured when you first show it)."""

    def execute(self) -> int:
        get_study(self.name)  # a name that is not known is answered before torch is loaded
        from creditscope.render.tables import FORMS, render_table
        from creditscope.runs.archive import open_source
        from creditscope.studies.shown import show

        chosen = [form for form in FORMS if getattr(self, form, False)]
        if len(chosen) > 1:
            raise CreditscopeError(f"choose one of {' and '.join(f'--{form}' for form in chosen)}")
        table = show(self.name, self.preset, open_source(self.store), self.data_dir)
        print(render_table(table, chosen[0] if chosen else "text").rstrip("\n"))
        return 0


def _chosen(name: str, preset: str, seeds: tuple[int, ...], store: Path | None, archive: Path | None) -> list[RunSpec]:
    """The runs of a study, with those that finished ones have chosen, or the part of them with these seeds."""
    study = get_study(name)
    specs = study.runs(preset, *(_finished(store, archive) if study.then else ()))
    if unknown := sorted(set(seeds) - {spec.seed for spec in specs}):
        there = ", ".join(map(str, sorted({spec.seed for spec in specs})))
        later = "; it chooses further runs from its results, with other seeds among them: leave --seeds out"
        raise CreditscopeError(
            f"seed {unknown[0]} is not in the grid of {name} ({preset}); its seeds are {there}{later if study.then else ''}"
        )
    return [spec for spec in specs if not seeds or spec.seed in seeds]


def _finished(store: Path | None, archive: Path | None) -> Iterator[Store | Archive]:
    """Where finished runs are."""
    from creditscope.runs.archive import Archive

    if store and (store / META).exists():
        yield Store(store)
    if archive:
        yield Archive(archive)


def _lacking(archive: Path | None, specs: list[RunSpec]) -> list[RunSpec]:
    """The specs that an archive does not have; a file of it that cannot be read does not count, and is named."""
    if archive is None:
        return specs
    from creditscope.runs.archive import Archive

    runs, problems = Archive(archive).runs_of(specs)
    for problem in problems:
        remark(problem)
    there = {run.spec.hash for run in runs}
    return [spec for spec in specs if spec.hash not in there]


def _whole(store: Store, spec: RunSpec) -> bool:
    try:
        store.bundle(spec)
    except CreditscopeError:
        return False
    return True


def _finish(flags: Run, store: Store, good: int, runs: int, failed: int) -> int:
    """The last lines of `study run`, and its exit code."""
    beside = f" that {flags.archive} lacks" if flags.archive else ""
    print(f"{good} of {runs} runs{beside} are in {store.root}" + (f", {failed} failed (see above)" if failed else ""))
    if flags.archive:
        print(f"next: creditscope runs export --store {store.root} --format archive --out {flags.archive}")
    for name in () if flags.archive else flags.names:
        print(f"next: creditscope study show {name} --preset {flags.preset} --store {store.root}")
    return FAILED if failed else 0


def _slurm(flags: Run) -> dict[str, str | int]:
    """Parameters by submitit's names without its prefix."""
    names = ("partition", "account", "qos", "time", "mem")
    given = {name: getattr(flags, f"slurm_{name}") for name in names}
    further = (named_value("--slurm", text) for text in flags.slurm)
    return {k: v for k, v in given.items() if v is not None} | {
        name: int(value) if value.isdigit() else value for name, value in further
    }
