"""Damaged and hostile files: every reader answers with a result or with a CreditscopeError, and with nothing else.

By hand: python tests/trust/fuzz.py 20000 [SECONDS]: that many inputs, at most so long (default 900 s). Kinds of input: bundles,
specs as YAML and JSON, reports, stores, records of arrays, CIFAR files of both layouts and their archives. Each input starts
from a good file; half of the damaged bundles get fitting checksums, so that the damage comes past them. Watched on every input:
the error's type, a canary that only executed code creates, files that reading changed or left behind, and the time it took;
as a command also the address space.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import pickle
import random
import shutil
import sys
import tarfile
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import yaml
from safetensors.numpy import save_file
from tests.training.small import DFA_RMS
from tests.trust.hostile import hostile_bytes, mangled_bytes, mangled_json

from creditscope.cli.train import read_yaml
from creditscope.data import cifar, load_dataset
from creditscope.data.cifar import load_from
from creditscope.errors import CreditscopeError
from creditscope.files import read_json
from creditscope.protocol import DiagnosticThresholds, judge
from creditscope.protocol.report import DiagnosticReport
from creditscope.record import read_record
from creditscope.runs.groups import audit
from creditscope.runs.store import Store
from creditscope.training.bundle import find_bundles, load_bundle
from creditscope.training.loop import train
from creditscope.training.spec import make_spec

SLOW = 5.0
MEMORY = 2 * 2**30
"""As a command: bytes of address space beyond what the libraries take."""
RESULT, REFUSED = "result", "refused"


@dataclass
class Good:
    """Good files to start from."""

    root: Path
    canary: Path
    bundle: Path = field(init=False)
    spec: dict[str, Any] = field(init=False)
    report: dict[str, Any] = field(init=False)
    attacks: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.attacks = hostile_bytes(self.canary)
        self.spec = {"dataset": "quadratic", "width": 4, "depth": 1, "epochs": 1, "batch_size": 5000, **DFA_RMS}
        spec = make_spec(self.spec)
        store = Store(self.root / "store", create=True)
        self.bundle = train(spec, store.out(spec)).path
        store.record_failure(make_spec({**self.spec, "seed": 7}), "it failed", "a traceback")
        store.write_plan("audit", "smoke", [spec.hash])
        store.cached("facts", lambda: {"a": 1})
        store.refresh()
        self.report = json.loads((self.bundle / "report.json").read_text())
        self.dataset = load_dataset("quadratic")
        self._cifar()

    def _cifar(self) -> None:
        n = 3
        few: dict[str, Any] = {f: ((getattr(cifar.CIFAR10, f)[0][0], n),) for f in ("train", "test")}
        self.cifar = replace(cifar.CIFAR10, **few)
        rng = np.random.default_rng(0)
        for folder, suffix in (("binary", ".bin"), ("python", "")):
            directory = self.root / folder / getattr(self.cifar, f"{folder}_dir")
            directory.mkdir(parents=True)
            for name in (f"data_batch_1{suffix}", f"test_batch{suffix}"):
                pixels = rng.integers(0, 256, (n, 3072), dtype=np.uint8)
                if folder == "binary":
                    data = b"".join(bytes([k]) + row.tobytes() for k, row in enumerate(pixels))
                else:
                    data = pickle.dumps({"data": pixels, "labels": [0, 1, 2], "filenames": ["a"] * n}, protocol=2)
                (directory / name).write_bytes(data)
            (self.root / f"{folder}-archive").mkdir()
            archive = getattr(self.cifar, f"{folder}_archive")
            with tarfile.open(self.root / f"{folder}-archive" / archive, "w:gz") as tar:
                tar.add(directory, arcname=directory.name)


def damaged(path: Path, good: Good, rng: random.Random) -> None:
    """Damage one file: as JSON where it is, as bytes, or replaced by an attack."""
    data, way = path.read_bytes(), rng.random()
    if way < 0.12:
        path.write_bytes(rng.choice(good.attacks))
        return
    if way < 0.6 and path.suffix in (".json", ".jsonl"):
        lines = data.splitlines() if path.suffix == ".jsonl" else [data]
        at = rng.randrange(max(1, len(lines)))
        with contextlib.suppress(ValueError, IndexError, RecursionError):  # it was damaged before
            lines[at] = json.dumps(mangled_json(json.loads(lines[at]), rng)).encode()
            path.write_bytes(b"\n".join(lines) + b"\n")
            return
    path.write_bytes(mangled_bytes(data, rng))


def resign(bundle: Path) -> None:
    """Make checksums and hash of a damaged bundle fit again, as far as its spec can still be read."""
    try:
        content = json.loads((bundle / "spec.json").read_bytes())
        content["files"] = {
            n: hashlib.sha256((bundle / n).read_bytes()).hexdigest() for n in content["files"] if (bundle / n).is_file()
        }
        content["spec_hash"] = make_spec(content["spec"]).hash
        (bundle / "spec.json").write_text(json.dumps(content))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OSError):
        return


def fuzz_bundle(good: Good, work: Path, rng: random.Random) -> Callable[[], Any]:
    target = work / "bundle"
    shutil.copytree(good.bundle, target)
    for _ in range(rng.randint(1, 2)):
        damaged(rng.choice(sorted(p for p in target.iterdir() if p.is_file())), good, rng)
    if rng.random() < 0.5:
        resign(target)
    if rng.random() < 0.03:
        victim = rng.choice(sorted(target.iterdir()))
        victim.unlink()
        victim.symlink_to("/etc/passwd")

    def read() -> None:
        bundle = load_bundle(target)
        parts: list[Callable[[], Any]] = [
            lambda: (bundle.accuracy, bundle.n_test, bundle.trajectory),
            lambda: str(DiagnosticReport.from_dict(bundle.report)),
            lambda: bundle.model(good.dataset),
            bundle.rule,
            lambda: audit(find_bundles([target])),
        ]
        every(parts)

    return read


def every(parts: list[Callable[[], Any]]) -> None:
    """Call all; the first CreditscopeError is raised after the others have had their turn."""
    errors = []
    for part in parts:
        try:
            part()
        except CreditscopeError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def fuzz_yaml(good: Good, work: Path, rng: random.Random) -> Callable[[], Any]:
    path = work / "config.yaml"
    content = mangled_json(good.spec, rng) if rng.random() < 0.6 else good.spec
    path.write_bytes(yaml.safe_dump(content, allow_unicode=True).encode())
    if rng.random() < 0.5:
        damaged(path, good, rng)
    return lambda: make_spec(read_yaml(path))


def fuzz_spec(good: Good, work: Path, rng: random.Random) -> Callable[[], Any]:
    path = work / "spec.json"
    path.write_text(json.dumps(good.spec))
    damaged(path, good, rng)
    return lambda: make_spec(read_json(path, "a spec"))


def fuzz_report(good: Good, work: Path, rng: random.Random) -> Callable[[], Any]:
    path = work / "report.json"
    path.write_text(json.dumps(good.report))
    damaged(path, good, rng)

    def read() -> None:
        report = DiagnosticReport.from_json(path)
        every([lambda: str(report), report.to_markdown, report.to_json])
        for policy in ("three-check", "four-diagnostic"):
            judge(report.facts, DiagnosticThresholds(), policy)

    return read


def fuzz_store(good: Good, work: Path, rng: random.Random) -> Callable[[], Any]:
    target = work / "store"
    shutil.copytree(good.root / "store", target)
    files = sorted(p for p in target.rglob("*") if p.is_file())
    outer = [p for p in files if "runs" not in p.parts]
    damaged(rng.choice(outer if rng.random() < 0.6 else files), good, rng)
    if rng.random() < 0.05:
        link = target / "runs" / rng.choice(["link", "a" * 64])
        link.symlink_to(rng.choice([good.bundle, Path("/etc"), work / "nowhere"]))

    def read() -> None:
        store = Store(target)
        every(
            [
                store.rows,
                store.failures,
                store.plans,
                store.running,
                lambda: store.find("a"),
                lambda: store.cached("facts", dict),
            ]
        )
        for row in store.rows():
            if not row["problem"]:
                every([partial(store.bundle, row["hash"])])

    return read


def fuzz_cifar(good: Good, work: Path, rng: random.Random) -> Callable[[], Any]:
    folder = rng.choice(["binary", "python", "python", "binary-archive", "python-archive"])
    shutil.copytree(good.root / folder, work / "cifar")
    path = rng.choice(sorted(p for p in (work / "cifar").rglob("*") if p.is_file()))
    size = path.stat().st_size
    damaged(path, good, rng)
    if folder == "python" and rng.random() < 0.7:  # past the check of its size
        with open(path, "ab") as file:
            file.write(b"\x00" * max(0, size - path.stat().st_size))
    return lambda: load_from(good.cifar, work / "cifar")


def good_record() -> dict[str, Any]:
    """The members of a good record as npz: name -> array; `header` is its text."""
    rng = np.random.default_rng(0)
    layers = {f"{k}_{layer}": rng.standard_normal((6, 4)).astype(np.float32) for k in "hga" for layer in range(3)}
    fit = {f"fit_h_{layer}": rng.standard_normal((12, 4)).astype(np.float32) for layer in range(3)}
    labels = {"labels": np.arange(6) % 2, "fit_labels": np.arange(12) % 2}
    header = {"schema": "creditscope-arrays/1", "reduction": "mean", "batch_size": 6, "headline_acc": [0.5, 0.6]}
    header |= {"frozen_baseline_acc": {"matched": [0.4, 0.5]}, "n_test": 100, "exact_layers": [2]}
    return {"header": json.dumps(header), "logits": layers["h_2"], **layers, **fit, **labels}


def write_record(path: Path, members: dict[str, Any]) -> None:
    if path.suffix == ".npz":
        np.savez(path, **members)
    else:
        rest = {k: np.asarray(v) for k, v in members.items() if k != "header"}
        save_file(rest, path, {"header": str(members["header"])} if "header" in members else None)


def spoilt(members: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """One array that is gone, of another name, shape, length or dtype, or not finite; or a header that is not one."""
    members = dict(members)
    name = rng.choice(sorted(members))
    value = members.pop(name)
    if name == "header":
        said: dict[str, Any] = json.loads(value)
        wrong = [
            ("schema", "creditscope-arrays/9"),
            ("reduction", "max"),
            ("batch_size", -1),
            ("kind", None),
            ("hats", 1),
        ]
        key, new = rng.choice(wrong)
        members["header"] = rng.choice([json.dumps({**said, key: new}), value[: rng.randrange(len(value))]])
        return members
    way = rng.randrange(6)
    if way == 0 and name[0] not in "hg":
        way = 1
    if way == 1:
        members[rng.choice(["H_0", "h_9", "g", "h_-1", "fit_g_0", "fit_a_1", "weights"])] = value
    elif way == 2:
        members[name] = value[: rng.randrange(len(value))]
    elif way == 3:
        members[name] = value.reshape(-1)[: rng.randrange(1, len(value))]
    elif way == 4:
        members[name] = np.tile(value, (2,) + (1,) * (value.ndim - 1))
    elif way == 5:
        members[name] = value.astype(rng.choice(["bool", "u8", "c8"]))
    return members


def fuzz_record(good: Good, work: Path, rng: random.Random) -> Callable[[], Any]:
    path = work / f"record{rng.choice(['.npz', '.npz', '.safetensors'])}"
    members = good_record()
    if rng.random() < 0.3:
        members["header"] = json.dumps(mangled_json(json.loads(members["header"]), rng))
    write_record(path, spoilt(members, rng) if rng.random() < 0.5 else members)
    if rng.random() < 0.6:
        damaged(path, good, rng)
    return lambda: str(read_record(path).diagnose())


def damaged_records(n: int, root: Path, seed: int = 0) -> tuple[int, int]:
    """(refused with one line each, read with the content of the good one) of n npz records with damaged bytes or members."""
    good = good_record()
    path = root / "record.npz"
    write_record(path, good)
    data = path.read_bytes()
    told = read_record(path).diagnose().to_dict()
    refused = same = 0
    for k in range(n):
        rng = random.Random(f"{seed}:{k}")
        if rng.random() < 0.5:
            path.write_bytes(mangled_bytes(data, rng))
        else:
            write_record(path, spoilt(good, rng))
        try:
            same += read_record(path).diagnose().to_dict() == told
        except CreditscopeError as error:
            refused += "\n" not in str(error)
    return refused, same


KINDS: dict[str, tuple[int, Callable[[Good, Path, random.Random], Callable[[], Any]]]] = {
    "bundle": (25, fuzz_bundle),
    "yaml spec": (20, fuzz_yaml),
    "json spec": (15, fuzz_spec),
    "report": (20, fuzz_report),
    "store": (10, fuzz_store),
    "cifar": (10, fuzz_cifar),
    "record": (10, fuzz_record),
}


def fingerprint(root: Path) -> dict[str, str]:
    """Content of every file below root, but for what a reader may write: index and cache of a store, an unpacked archive."""
    found = {}
    for p in sorted(root.rglob("*")):
        mine = "index.sqlite" in p.name or p.parent.name == "full" or p.parent.name.startswith("cifar-10-batches")
        if p.is_file() and not mine:
            found[str(p.relative_to(root))] = hashlib.sha256(p.read_bytes()).hexdigest()
    return found


@dataclass
class Outcome:
    counts: Counter[tuple[str, str]]
    offences: list[str]
    tried: int
    seconds: float


@mock.patch.object(cifar, "download", mock.Mock(side_effect=CreditscopeError("no network in this test")))
def fuzz(n: int, seconds: float, root: Path, seed: int = 0, only: str = "") -> Outcome:
    """n inputs, or as many as the time allows; the same ones for the same seed."""
    good = Good(root / "good", root / "canary")
    names, weights = [*KINDS], [weight for weight, _ in KINDS.values()]
    counts: Counter[tuple[str, str]] = Counter()
    offences: list[str] = []
    started = time.monotonic()
    tried = 0
    work = root / "work"
    while tried < n and time.monotonic() - started < seconds:
        rng = random.Random(f"{seed}:{tried}")
        kind = only or rng.choices(names, weights)[0]
        tried += 1
        work.mkdir()
        read = KINDS[kind][1](good, work, rng)
        before, since, found = fingerprint(work), time.monotonic(), ""
        try:
            read()
            counts[kind, RESULT] += 1
        except CreditscopeError as error:
            counts[kind, REFUSED] += 1
            if "\n" in str(error):
                found = f"an error of several lines: {str(error)[:200]!r}"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            where = traceback.extract_tb(error.__traceback__)[-1]
            found = f"{type(error).__name__}: {str(error)[:150]} at {Path(where.filename).name}:{where.lineno}"
        if time.monotonic() - since > SLOW:
            found = found or f"took {time.monotonic() - since:.1f} s"
        if good.canary.exists():
            found = "CODE WAS EXECUTED"
            good.canary.unlink()
        if fingerprint(work) != before:
            found = found or "files were changed or left behind"
        if found:
            counts[kind, "offence"] += 1
            offences.append(f"{kind} input {tried - 1} of seed {seed}: {found}")
        shutil.rmtree(work)
    return Outcome(counts, offences, tried, time.monotonic() - started)


def main(args: list[str]) -> int:
    import resource

    from tests.trust.record import put_row

    record, args = "--record" in args, [a for a in args if a != "--record"]

    import torch

    torch.set_num_threads(1)
    n, seconds = int(args[0]), float(args[1]) if len(args) > 1 else 900.0
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    with tempfile.TemporaryDirectory(prefix="creditscope-fuzz-") as directory:
        done = fuzz(n, seconds, Path(directory), only=args[2] if len(args) > 2 else "")
    print(f"{'kind':<12} {'results':>8} {'refused':>8} {'offences':>9}")
    for kind in KINDS:
        print(
            f"{kind:<12} {done.counts[kind, RESULT]:>8} {done.counts[kind, REFUSED]:>8} {done.counts[kind, 'offence']:>9}"
        )
    for text, count in Counter(
        o.split(": ", 1)[0].split(" input")[0] + ": " + o.split(": ", 1)[1] for o in done.offences
    ).most_common(40):
        print(f"  {count:>5} x {text}")
    for text in done.offences[:10]:
        print(f"  e.g. {text}")
    print(f"{done.tried} inputs in {done.seconds:.0f} s, {len(done.offences)} offences")
    if record:
        refused = sum(n for (_, what), n in done.counts.items() if what == REFUSED)
        read = sum(n for (_, what), n in done.counts.items() if what == RESULT)
        put_row(
            "`make fuzz`", [f"{done.tried:,}", f"{refused:,} refused, {read:,} read", f"{len(done.offences)} offences"]
        )
    return 1 if done.offences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
