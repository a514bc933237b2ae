"""The one training loop: any architecture, any credit rule; resumes after an interruption to the same bits."""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from creditscope.credit.adamw import AdamW
from creditscope.credit.base import CreditRule, Later
from creditscope.credit.registry import make_rule
from creditscope.credit.round_trip import check_round_trip
from creditscope.data import Dataset, load_dataset
from creditscope.data.dataset import (
    epoch_batches,
    epoch_order,
    eval_batches,
    normalise,
    on_device,
    profile_batches,
    test_batches,
)
from creditscope.errors import CreditscopeError
from creditscope.files import dump_line, is_locked, locked, read_metadata, read_tensors, write_atomic, write_tensors
from creditscope.measure.concentration import mean_of
from creditscope.models.parts import StreamModel
from creditscope.protocol.diagnosis import diagnose
from creditscope.protocol.trajectory import snapshot
from creditscope.stream.devices import (
    CPU,
    described,
    deterministic,
    device_text,
    find_device,
    full_precision,
    has_float64,
    has_products,
)
from creditscope.stream.interface import InterfaceStream
from creditscope.training import bundle as bundles
from creditscope.training.build import EPOCH, FEEDBACK, TARGETS, build_model, build_stream, derived_seed
from creditscope.training.bundle import Bundle
from creditscope.training.objective import AUTOCAST, Objective, freeze_first
from creditscope.training.spec import RunSpec

RESUME = "resume.safetensors"
TEST_BATCH = 1000
ROUND_TRIP = 8
"""Samples on which a rule must give the same credit after it was saved and loaded."""

Progress = Callable[[int, int, dict[str, Any]], None]
"""progress(epochs done, epochs in all, the trajectory line of the last one)."""


def train(
    spec: RunSpec,
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    dataset: Dataset | None = None,
    progress: Progress | None = None,
    device: str | torch.device = "cpu",
) -> Bundle:
    """Train one run into the directory `out`; an interrupted run resumes, a finished one is loaded.

    `dataset`: the data of `spec.dataset` where they are in memory already. `device`: where the network is trained and measured;
    `auto` takes the accelerator that is there. It is recorded in the bundle and is no part of the spec: every random number is
    the same on every device, and only arithmetic rounds otherwise.
    """
    out = Path(out)
    if bundles.is_bundle(out):
        done = bundles.load_bundle(out)
        if done.spec.hash != spec.hash:
            raise CreditscopeError(f"{out} holds another run ({done.spec.slug}); choose another --out or remove it")
        return done
    if out.exists() and (not out.is_dir() or any(out.iterdir())) and not bundles.is_bundle(out):
        raise CreditscopeError(f"{out} exists and is not a bundle; choose another --out or empty it")
    place = find_device(device)
    dataset = dataset or load_dataset(spec.dataset, data_dir)
    if dataset.name != spec.dataset:
        raise CreditscopeError(f"the spec asks for dataset {spec.dataset} and the data given are {dataset.name}")
    partial = out.with_name(f".{out.name}.partial")
    _make(partial.parent, partial)
    busy = RunBusy(f"{out} is being trained by another process; wait for it or stop it")
    with locked(_lock_file(out), busy), settled(place):  # two processes never train the same run
        if not bundles.is_bundle(out):  # else another process finished it between our first look and the lock
            if partial.is_symlink():
                raise CreditscopeError(
                    f"{partial} is a symbolic link; a run is trained inside its own directory: remove the link"
                )
            _make(partial, partial)
            _Run(spec, dataset, partial, place).go(progress)
            try:
                if out.exists():
                    out.rmdir()
                os.replace(partial, out)
            except OSError as error:
                raise CreditscopeError(
                    f"cannot move the finished run to {out}: {error.strerror}; it is in {partial}"
                ) from None
    return bundles.load_bundle(out)


def _make(directory: Path, partial: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CreditscopeError(f"cannot create {partial}: {error.strerror}; choose another --out") from None


class RunBusy(CreditscopeError):
    """Another process trains this run now."""


def is_busy(out: str | Path) -> bool:
    """True while a process trains this run."""
    return is_locked(_lock_file(Path(out)))


class _Run:
    """The state of a run between two epochs; all of it is in the resume file."""

    def __init__(self, spec: RunSpec, dataset: Dataset, directory: Path, device: torch.device = CPU) -> None:
        _require(spec, device)
        self.host_labels = None if device.type == "cpu" else dataset.train_y
        dataset = on_device(dataset, device)
        self.spec, self.dataset, self.directory, self.device = spec, dataset, directory, device
        self.recorded = described(device)
        self.batches = eval_batches(dataset)
        self.model: StreamModel = build_model(spec, dataset.input_shape, dataset.n_classes).to(device)
        example = normalise(dataset, dataset.test_x[:3])
        self.stream: InterfaceStream = build_stream(self.model, example)
        self.rule = self._new_rule()
        few = slice(0, ROUND_TRIP)
        x, y = normalise(dataset, dataset.test_x[few]), dataset.test_y[few]
        check_round_trip(self._new_rule(), make_rule(spec.method, spec.options), self.model, self.stream, x, y)
        self.later = None if device.type == "cpu" else Later()
        first = freeze_first(self.stream, spec.train_last)
        self.rule.credit_site, self.rule.first_trained = spec.credit_site or self.rule.site, first
        self.objective = Objective(
            self.stream,
            self.rule,
            spec.credit_norm,
            self.rule.credit_site,
            spec.penalty,
            first,
            spec.precision,
            spec.grad_clip,
            spec.clip_over,
            self.later,
        )
        self.params = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = AdamW(self.params, spec.lr or 0.0, spec.weight_decay, _factors(spec, self.params))
        self.lines: list[dict[str, Any]] = []

    def _new_rule(self) -> CreditRule:
        rule = make_rule(self.spec.method, self.spec.options)
        generator = torch.Generator().manual_seed(derived_seed(self.spec.seed, FEEDBACK))
        rule.setup(self.stream, self.dataset.n_classes, generator)
        return rule.to(self.device)

    def go(self, progress: Progress | None) -> None:
        spec, directory = self.spec, self.directory
        epochs = spec.epochs or 0
        start = self._resume()
        if start is None:
            bundles.write_spec(directory, spec, with_files=False, device=self.recorded)
            self._record(0, float("nan"))
            start = 0
        if progress is not None:
            progress(start, epochs, self.lines[-1])
        for epoch in range(start + 1, epochs + 1):
            loss = self._epoch(epoch)
            self._record(epoch, loss)
            if epoch in spec.checkpoint_epochs:
                write_tensors(directory / bundles.checkpoint_name(epoch), self._state())
            if epoch < epochs:
                self._save_resume(epoch)
            if progress is not None:
                progress(epoch, epochs, self.lines[-1])
        self._finish()

    # ---- one epoch ----------------------------------------------------------------------------------------------

    def _epoch(self, epoch: int) -> float:
        """Train one epoch; the mean training loss over its samples. The host waits for the device once, at the end."""
        spec = self.spec
        steps = math.ceil(len(self.dataset.train_y) / spec.batch_size)
        total = Total()
        targets = torch.Generator().manual_seed(derived_seed(spec.seed, TARGETS, epoch))
        with _own_numbers(self.device):
            torch.manual_seed(derived_seed(spec.seed, EPOCH, epoch))
            self.model.train()
            self.rule.begin_epoch(epoch, spec.schedule_epochs or 0)
            batches = epoch_batches(self.dataset, spec.batch_size, spec.seed, epoch, bool(spec.augment))
            known = self._known_labels(epoch)
            for step, (x, y) in enumerate(batches):
                labels = next(known)
                if spec.targets == "random":
                    labels = torch.randint(0, self.dataset.n_classes, y.shape, generator=targets)
                    y = labels.to(self.device, non_blocking=True)
                self._set_lr((epoch - 1) * steps + step, steps)
                self.optimizer.zero_grad()
                loss = self.objective.backward(x, y, labels)
                self.optimizer.step()
                self.rule.after_step(self.stream, self.optimizer)
                total.add(loss, len(y))
        return total.mean(self.later)

    def _known_labels(self, epoch: int) -> Iterator[Tensor | None]:
        """The labels of each batch where they are on the CPU without a copy from the device; None: they are there anyway."""
        if self.host_labels is None:
            return repeat(None)
        return iter(self.host_labels[epoch_order(self.dataset, self.spec.seed, epoch)].split(self.spec.batch_size))

    def _set_lr(self, step: int, steps_per_epoch: int) -> None:
        """Cosine schedule in closed form: nothing to save, nothing to restore."""
        fraction = step / ((self.spec.schedule_epochs or 1) * steps_per_epoch)
        self.optimizer.lr = (self.spec.lr or 0.0) * 0.5 * (1 + math.cos(math.pi * fraction))

    @torch.no_grad()
    def _accuracy(self) -> float:
        self.model.eval()
        right = [(self.model(x).argmax(1) == y).sum() for x, y in test_batches(self.dataset, TEST_BATCH)]
        return int(torch.stack(right).sum()) / len(self.dataset.test_y)

    def measure(self) -> dict[str, Any]:
        """What is measured after every epoch."""
        accuracy = self._accuracy()
        model, batches, rule, stream = self._measured()
        line = {"accuracy": accuracy, **snapshot(model, batches, rule, stream=stream)}
        return {**line, "gamma_all_layers": mean_of(line["cosine"] or [])}

    def _measured(self) -> tuple[StreamModel, list[tuple[Tensor, Tensor]], CreditRule, InterfaceStream]:
        """What measurement looks at: the network itself, or its copy on the CPU where the device has no float64."""
        if has_float64(self.device):
            return self.model, self.batches, self.rule, self.stream
        batches = [(x.cpu(), y.cpu()) for x, y in self.batches]
        model = copy.deepcopy(self.model).cpu()
        rule = make_rule(self.spec.method, self.spec.options)
        rule.credit_site, rule.first_trained = self.rule.credit_site, self.rule.first_trained
        rule.load({name: t.detach().cpu().clone() for name, t in self.rule.state().items()})
        return model, batches, rule, build_stream(model, batches[0][0][:3])

    def _record(self, epoch: int, train_loss: float) -> None:
        """Add the trajectory line of this epoch (0: the initialisation)."""
        measured = self.measure()
        line = {"epoch": epoch, "accuracy": measured.pop("accuracy"), "train_loss": train_loss, **measured}
        if numbers := self.rule.diagnostics():
            line["rule"] = numbers
        self.lines.append(line)
        write_atomic(self.directory / bundles.TRAJECTORY, b"".join(dump_line(x) for x in self.lines))

    # ---- stop and go on -----------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Tensor]:
        """Weights and the rule's state, with prefixed names."""
        tensors: dict[str, Tensor] = {f"model.{n}": t for n, t in self.model.state_dict().items()}
        return tensors | {f"credit.{n}": t for n, t in self.rule.state().items()}

    def _save_resume(self, epoch: int) -> None:
        tensors = self._state() | {f"optim.{name}": t for name, t in self.optimizer.state().items()}
        stated = {"epoch": str(epoch), "spec_hash": self.spec.hash, "device": json.dumps(self.recorded)}
        write_tensors(self.directory / RESUME, tensors, stated)

    def _resume(self) -> int | None:
        """Take up the last saved epoch; None if there is none."""
        path = self.directory / RESUME
        if not path.exists():
            return None
        tensors = read_tensors(path, "the state of an interrupted run")
        stated = read_metadata(path)
        if stated.get("spec_hash") != self.spec.hash:
            raise CreditscopeError(f"{path} belongs to another run; remove {self.directory} to start again")
        self._go_on_from(json.loads(stated.get("device", "{}")))
        part = {kind: {} for kind in ("model", "credit", "optim")}  # type: dict[str, dict[str, Tensor]]
        for key, t in tensors.items():
            kind, _, name = key.partition(".")
            part[kind][name] = t
        self.model.load_state_dict(part["model"])
        self.rule.load(part["credit"])
        self.rule.to(self.device)
        self.optimizer.load(part["optim"])
        epoch = int(stated["epoch"])
        self.lines = bundles.read_trajectory(self.directory / bundles.TRAJECTORY)[: epoch + 1]
        return epoch

    def _go_on_from(self, device: dict[str, Any]) -> None:
        """One kind of device trains a run; one of another name is recorded beside the first."""
        if device.get("type", "cpu") != self.device.type:
            raise CreditscopeError(
                f"{self.directory} was begun on {device_text(device)} and this is {device_text(self.recorded)}; go on there "
                f"(--device {device.get('type', 'cpu')}), or remove it to start again"
            )
        if device.get("name", self.recorded["name"]) != self.recorded["name"]:
            self.recorded["name"] = f"{device['name']}, then {self.recorded['name']}"

    def _finish(self) -> None:
        spec, directory = self.spec, self.directory
        write_tensors(directory / bundles.MODEL, self.model.state_dict())
        write_tensors(directory / bundles.CREDIT, self.rule.state())
        model, batches, rule, _ = self._measured()
        dataset = self.dataset if has_float64(self.device) else on_device(self.dataset, CPU)
        report = diagnose(
            model,
            batches,
            headline_acc=self.lines[-1]["accuracy"],
            network_acc=self.lines[-1]["accuracy"],
            n_test=len(self.dataset.test_y),
            method_name=spec.label,
            credit=rule,
            **({} if spec.frozen else profile_batches(dataset)),
        )
        report.to_json(directory / bundles.REPORT)
        bundles.write_spec(directory, spec, with_files=True, device=self.recorded)
        killed = directory.glob(".*.tmp")  # what a process leaves that is killed while it writes
        for path in (directory / RESUME, *killed):
            path.unlink(missing_ok=True)


def _factors(spec: RunSpec, names: Iterable[str]) -> dict[str, float]:
    """Learning rate of head and terminal norm over that of the rest, where it is another one."""
    if spec.head_lr is None or spec.lr is None:
        return {}
    return {name: spec.head_lr / spec.lr for name in names if name.startswith(("out_ln.", "out_head."))}


class Total:
    """Mean of a loss over samples, summed in float64; the losses stay on their device until it is asked for."""

    def __init__(self) -> None:
        self._means: list[Tensor] = []
        self._counts: list[int] = []

    def add(self, mean: Tensor, n: int) -> None:
        self._means.append(mean)
        self._counts.append(n)

    def mean(self, later: Later | None = None) -> float:
        """The mean; the questions of `later` are answered by the same copy to the host."""
        asked = [flags] if later is not None and (flags := later.answers()) is not None else []
        values = torch.cat([torch.stack(self._means), *(flags.to(self._means[0].dtype) for flags in asked)]).tolist()
        if later is not None and asked:
            later.settle(values[len(self._means) :])
        total = 0.0
        for m, n in zip(values, self._counts, strict=False):  # one after the other: `sum` compensates since Python 3.12
            total += m * n
        return total / sum(self._counts)


def _require(spec: RunSpec, device: torch.device) -> None:
    """Refuse, in one line, what the device cannot compute."""
    if make_rule(spec.method, spec.options).needs_float64 and not has_float64(device):
        raise CreditscopeError(
            f"method {spec.method} computes in float64, which {device} does not have; use --device cpu"
        )
    if spec.precision in AUTOCAST and not has_products(device, AUTOCAST[spec.precision]):
        raise CreditscopeError(f"{device} cannot multiply in {spec.precision}; use --precision fp32")


@contextmanager
def _own_numbers(device: torch.device) -> Iterator[None]:
    """The global generators, of the CPU and of this device, are left as they were."""
    kept = [device] if device.type in ("cuda", "xpu") else []
    with torch.random.fork_rng(devices=kept, device_type=device.type if kept else "cuda"):
        yield


@contextmanager
def settled(device: torch.device) -> Iterator[None]:
    """How training computes: one thread (results do not depend on the number of cores), products of fp32 with all their
    bits (no TF32), and kernels that give the same bits every time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with full_precision(), deterministic(device):
            yield
    finally:
        torch.set_num_threads(before)


def _lock_file(out: Path) -> Path:
    """Beside the run, not in it: the directory of an unfinished run is renamed when it is whole."""
    return out.with_name(f".{out.name}.lock")


def discard_partial(out: str | Path) -> None:
    """Forget an interrupted run."""
    out = Path(out)
    shutil.rmtree(out.with_name(f".{out.name}.partial"), ignore_errors=True)
