"""A bundle: one directory that holds a trained network and everything that is needed to measure it again.

    spec.json            schema version, full spec and its hash, library versions, device, sha256 of the other files
    model.safetensors    weights and buffers
    credit.safetensors   the rule's whole state (feedback matrices, auxiliary networks)
    trajectory.jsonl     one line per epoch
    report.json          basic report of the final network, without a null
    epoch-NNN.safetensors   weights (model.*) and rule (credit.*) after epoch NNN, where the spec asks for them

It appears under its name only when it is whole. Loading verifies every checksum; a missing or altered part is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.errors import CreditscopeError, with_article
from creditscope.files import MAX_JSON, check_schema, dump_json, read_json, read_tensors, sha256_file, write_atomic
from creditscope.training.spec import SCHEMA_VERSION, RunSpec, recorded_spec

if TYPE_CHECKING:
    import torch

    from creditscope.credit.base import CreditRule
    from creditscope.data import Dataset
    from creditscope.models.parts import StreamModel

PARTS = MODEL, CREDIT, TRAJECTORY, REPORT = (
    "model.safetensors",
    "credit.safetensors",
    "trajectory.jsonl",
    "report.json",
)
SPEC = "spec.json"
LIBRARIES = ("creditscope", "torch", "numpy", "safetensors")


def versions() -> dict[str, str]:
    """Versions of the libraries that decide the bits of a result."""
    return {name: metadata.version(name) for name in LIBRARIES}


def write_spec(directory: Path, spec: RunSpec, with_files: bool, device: dict[str, Any] | None = None) -> None:
    """spec.json; with the checksums of the parts once they are all there. `device`: as `stream.devices.described` gives it."""
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "spec": spec.model_dump(),
        "spec_hash": spec.hash,
        "versions": versions(),
        "device": device or {},
    }
    if with_files:
        content["files"] = {name: sha256_file(directory / name) for name in (*PARTS, *checkpoints_in(directory))}
    write_atomic(directory / SPEC, dump_json(content))


def checkpoints_in(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.glob("epoch-*.safetensors"))


def checkpoint_name(epoch: int) -> str:
    return f"epoch-{epoch:03d}.safetensors"


@dataclass(frozen=True)
class Bundle:
    """A finished run on disk."""

    path: Path
    spec: RunSpec
    versions: dict[str, str]
    files: dict[str, str]
    device: dict[str, Any] = field(default_factory=dict)
    """What trained it: type, name, driver, flags. Empty: a CPU, from before it was recorded."""

    @cached_property
    def trajectory(self) -> list[dict[str, Any]]:
        return read_trajectory(self.path / TRAJECTORY)

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last epoch."""
        value = self.trajectory[-1].get("accuracy")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise CreditscopeError(f"{self.path / TRAJECTORY} has accuracy {value!r} in its last line; train it again")
        return float(value)

    @property
    def n_test(self) -> int | None:
        """Size of the test set behind `accuracy`."""
        n = self.report.get("n_test")
        return n if isinstance(n, int) and n > 0 else None

    @property
    def report(self) -> dict[str, Any]:
        """The report that training wrote (basic level, no null), as JSON data."""
        content = read_json(self.path / REPORT, "the report of a bundle")
        if not isinstance(content, dict):
            raise CreditscopeError(f"{self.path / REPORT} is {with_article(content)}, not a report; train it again")
        return content

    def dataset(self, data_dir: str | Path | None = None, device: torch.device | None = None) -> Dataset:
        """The data that it was trained on, on `device` (None: the CPU); `data_dir`: where the CIFAR files are."""
        from creditscope.data import load_dataset
        from creditscope.data.dataset import on_device
        from creditscope.stream.devices import CPU

        return on_device(load_dataset(self.spec.dataset, data_dir), device or CPU)

    def model(self, dataset: Dataset, epoch: int | None = None) -> StreamModel:
        """The trained network, on the device of the data: at the end, or after `epoch` (one of the spec's checkpoint_epochs)."""
        from creditscope.training.build import build_model

        model = build_model(self.spec, dataset.input_shape, dataset.n_classes)
        tensors = self._tensors("model", epoch, "the weights of a bundle")
        expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
        found = {name: tuple(t.shape) for name, t in tensors.items()}
        if expected != found:
            wrong = sorted(k for k in expected.keys() | found.keys() if expected.get(k) != found.get(k))
            raise CreditscopeError(f"{self.path / MODEL} does not fit its spec at {wrong[0]!r}; train the run again")
        model.load_state_dict(tensors)
        return model.to(dataset.test_y.device)

    def rule(self, epoch: int | None = None, device: torch.device | str = "cpu") -> CreditRule:
        """The credit rule with the state it had at the end of training, or after `epoch`; on `device`."""
        from creditscope.credit.registry import make_rule

        rule = make_rule(self.spec.method, self.spec.options)
        rule.credit_site, rule.first_trained = self.spec.credit_site or rule.site, self.spec.first_trained
        try:
            rule.load(self._tensors("credit", epoch, f"the state of credit rule {self.spec.method!r}"))
        except KeyError as error:
            raise CreditscopeError(
                f"{self.path / CREDIT} lacks {error} of rule {self.spec.method!r}; train it again"
            ) from None
        return rule.to(device)

    def _tensors(self, kind: str, epoch: int | None, what: str) -> dict[str, Any]:
        if epoch is None:
            return read_tensors(self.path / {"model": MODEL, "credit": CREDIT}[kind], what)
        tensors = read_tensors(self.path / checkpoint_name(epoch), what)
        return {name.removeprefix(f"{kind}."): t for name, t in tensors.items() if name.startswith(f"{kind}.")}


def is_bundle(path: Path) -> bool:
    return (path / SPEC).is_file()


def _read_spec_file(path: Path) -> dict[str, Any]:
    content = read_json(path / SPEC, "a bundle, the directory that was --out of `creditscope train`")
    if not isinstance(content, dict) or not isinstance(content.get("spec"), dict):
        raise CreditscopeError(f"{path / SPEC} is not the spec of a bundle; it has no 'spec' entry")
    return content


def read_spec(path: Path) -> RunSpec:
    """What a bundle says that it is, also where its other files are damaged."""
    return recorded_spec(_read_spec_file(path)["spec"])


def load_bundle(path: str | Path, verify: bool = True) -> Bundle:
    """Open a bundle and check that every part is there and unaltered."""
    path = Path(path)
    if not path.is_dir():
        raise CreditscopeError(f"{path} {_no_directory(path)}; give the directory of a bundle (it holds {SPEC})")
    content = _read_spec_file(path)
    check_schema(content.get("schema_version"), SCHEMA_VERSION, path / SPEC, f"{path / SPEC} has")
    spec = recorded_spec(content["spec"])
    if content.get("spec_hash") != spec.hash:
        raise CreditscopeError(
            f"{path / SPEC} was altered: its spec does not have the hash that it states; train it again"
        )
    files = content.get("files")
    if not isinstance(files, dict):
        raise CreditscopeError(
            f"{path} is not finished: {SPEC} lists no files; run the same train command to resume it"
        )
    for name in PARTS:
        if name not in files or not (path / name).is_file():
            raise CreditscopeError(f"{path / name} is missing; a bundle without it cannot be measured: train it again")
    for name, digest in files.items():
        if Path(name).name != name:
            raise CreditscopeError(f"{path / SPEC} names a file outside the bundle: {name!r}")
        if verify and (not (path / name).is_file() or sha256_file(path / name) != digest):
            raise CreditscopeError(
                f"{path / name} is missing or was altered (checksum differs); train or copy it again"
            )
    for name, verb in (("versions", "are"), ("device", "is")):
        if not isinstance(value := content.get(name, {}), dict):
            kind = type(value).__name__
            raise CreditscopeError(f"{path / SPEC} was altered: its {name} {verb} {kind}, not a mapping")
    return Bundle(path, spec, content.get("versions", {}), files, content.get("device", {}))


def read_trajectory(path: Path) -> list[dict[str, Any]]:
    try:
        if path.stat().st_size > MAX_JSON:
            raise CreditscopeError(f"{path} has more than {MAX_JSON:,} bytes; a trajectory has a line per epoch")
        lines = [json.loads(line) for line in path.read_text().splitlines() if line]
    except FileNotFoundError:
        raise CreditscopeError(f"{path} is missing") from None
    except CreditscopeError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise CreditscopeError(f"{path} cannot be read as JSON lines ({error}); it may be truncated") from None
    if not lines or not all(isinstance(line, dict) for line in lines):
        raise CreditscopeError(f"{path} is not a trajectory; it has a JSON object per epoch, from 0 on")
    return lines


def find_bundles(paths: Iterable[str | Path], on_error: Callable[[str], None] | None = None) -> list[Bundle]:
    """Bundles at the given directories, or directly inside them; in order, each once.

    A damaged bundle inside a directory is an error, or is told to `on_error` and left out.
    """
    found: dict[Path, Bundle] = {}
    for path in map(Path, paths):
        for p in bundles_at(path):
            try:
                found.setdefault(p.resolve(), load_bundle(p))
            except CreditscopeError as error:
                if on_error is None or p == path:
                    raise
                on_error(str(error))
    return list(found.values())


def _no_directory(path: Path) -> str:
    return "is not a directory" if path.exists() else "does not exist"


def bundles_at(path: Path) -> list[Path]:
    """The bundle at `path`, or the bundles directly inside it; none is an error."""
    if not path.is_dir():
        raise CreditscopeError(f"{path} {_no_directory(path)}; give bundles or directories that hold bundles")
    if is_bundle(path):
        return [path]
    inside = sorted(p for p in path.iterdir() if not p.name.startswith(".") and is_bundle(p))
    if not inside:
        raise CreditscopeError(f"{path} holds no bundle; `creditscope train --out {path}/NAME` makes one")
    return inside
