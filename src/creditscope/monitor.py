"""Diagnostics during training: the facts and the checks that fire, at one moment of a run or all along it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from creditscope.credit.base import as_rule
from creditscope.errors import CreditscopeError, with_article
from creditscope.files import dump_line, make_directory, write_atomic, write_new
from creditscope.measure.facts import Facts
from creditscope.measure.loss import LossFn, cross_entropy
from creditscope.measure.sweep import dtype_of, facts_from, facts_of_ranks, measured
from creditscope.protocol import DiagnosticThresholds
from creditscope.protocol.trajectory import trajectory_line
from creditscope.stream.batches import as_batches, device_of
from creditscope.stream.eager import original
from creditscope.stream.interface import make_stream
from creditscope.stream.ranks import ranks_of
from creditscope.stream.untouched import untouched

TRAJECTORY = "trajectory.jsonl"
LIVE_CHECKS = ("D1", "D2", "C")
"""Checks that one network can answer; D3 needs the accuracy of a null."""


class Writer(Protocol):
    """Where the lines of a monitor go besides its history (`creditscope.integrations`)."""

    def write(self, line: Mapping[str, Any]) -> None:
        """Take one line of the trajectory; `line["epoch"]` is its place."""


class Monitor:
    """Measures a network inside your own training loop.

        monitor = Monitor(model, eval_batches, credit=rule)
        for epoch in range(1, epochs + 1):
            ...                     # the loop as it was
            fired = monitor.step(epoch)
            if monitor.should_stop:
                break

    model: as for `diagnose`; the very object that is trained. It is left as found at every step (RNG included).
    eval_batches: read once, when the monitor is made; 8 disjoint batches of 128 are best.
    every: "epoch" measures at every `step`; a number n at steps 0, n, 2n, ... only.
    stop_on: `should_stop` turns true once one of these holds in `patience` consecutive measurements: the id of a check (D1, D2,
        C), or several joined by "&". A network that has diverged raises D1 and D2.
    path: a directory (or a .jsonl file) for trajectory.jsonl, written whole after every measurement.
    writers: objects with write(line), see `creditscope.integrations`.
    Under DistributedDataParallel and `fully_shard` every rank makes a Monitor with its own share of the batches and calls `step`;
    history, checks and should_stop are the same on all, files and writers are the first rank's.
    blocks, read, loss_fn, forward_kwargs, shift_labels, thresholds: as for `diagnose`.
    """

    def __init__(
        self,
        model: nn.Module,
        eval_batches: Iterable[Any],
        credit: Any = None,
        every: str | int = "epoch",
        stop_on: Sequence[str] = ("D1&D2",),
        patience: int = 1,
        path: str | Path | None = None,
        blocks: Any = None,
        thresholds: DiagnosticThresholds | None = None,
        writers: Sequence[Writer] = (),
        *,
        read: str | None = None,
        loss_fn: LossFn | None = None,
        forward_kwargs: Mapping[str, Any] | None = None,
        shift_labels: bool | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise CreditscopeError(f"model is {with_article(model)}; give a torch.nn.Module")
        self.every = _checked_every(every)
        self.stop_on = _checked_stop(stop_on)
        if not _is_count(patience, 1):
            raise CreditscopeError(f"patience is {patience!r}; give a number of consecutive measurements, 1 or more")
        self.patience = patience
        self.ranks = ranks_of(model)
        """The processes that hold the model; None: this one alone."""
        self.path = self._agreed_path(path)
        self.model = original(model)
        self.credit = as_rule(credit)
        self.thresholds = thresholds or DiagnosticThresholds()
        self.writers = tuple(writers)
        self.history: list[dict[str, Any]] = []
        self.should_stop = False
        self._running = dict.fromkeys(self.stop_on, 0)
        self._loss_fn = loss_fn or cross_entropy
        self._place = _place(self.model)
        self._blocks, self._read = blocks, read
        self._parts: tuple[str, ...] | None = None
        """The model's parts, where its blocks were found: in another model they have to be found again."""
        if self.ranks is not None:
            eval_batches = self.ranks.whole(eval_batches)
        self._given = eval_batches, forward_kwargs, loss_fn is not None, shift_labels
        if self.ranks is None:
            self._seen()
        else:
            self.ranks.answer(self._seen)

    def _seen(self) -> str:
        """Reads the batches and sees the model once: what cannot be seen is said before training."""
        eval_batches, forward_kwargs, own_loss, shift_labels = self._given
        with untouched(self.model, reads=eval_batches):
            self._batches = as_batches(self.model, eval_batches, forward_kwargs, own_loss, shift_labels)
        with untouched(self.model):
            inputs, y = self._batches[0]
            stream = make_stream(self.model, inputs, len(y), self._blocks, self._read)
            if self._blocks is None and stream.names:
                self._blocks = list(dict.fromkeys(stream.names))  # found once, and said once
                self._parts = _parts(self.model)
            if self.credit is not None:
                self.credit.attach(stream)
        return ""

    def _agreed_path(self, path: str | Path | None) -> Path | None:
        """Of several processes the first one writes."""
        if self.ranks is None:
            return _checked_path(path)
        found: Path | None = None
        with self.ranks.agreed():
            found = _checked_path(path) if self.ranks.first else None
        return found

    def _facts(self) -> Facts:
        """Training changes what the network shows, so it is seen and proved anew at every measurement."""
        with untouched(self.model):
            if self._parts not in (None, _parts(self.model)):
                self._blocks, self._parts = None, _parts(self.model)
            stream, got, proof = measured(
                self.model, self._batches, self.credit, self._blocks, self._read, self._loss_fn, hashed=False
            )
        if self._blocks is None and stream.names and self._parts is not None:
            self._blocks = list(dict.fromkeys(stream.names))
        return facts_from(got, stream, self.credit, self.thresholds.floor_for(dtype_of(self.model)), proof=proof)

    def __str__(self) -> str:
        """The last measurement in one line."""
        if not self.history:
            return "Monitor: nothing measured yet"
        last, n = self.history[-1], len(self.history)
        fired = ", ".join(self._fired(last)) or "no check"
        gamma = "" if last["gamma"] is None else f", Γ {last['gamma']:+.3f}"
        return (
            f"Monitor: {n} measurement{'s' * (n > 1)}; epoch {last['epoch']}: growth {last['growth']:.3g}{gamma}; {fired} fired"
            + ("; should stop" if self.should_stop else "")
        )

    def _fired(self, line: Mapping[str, Any]) -> tuple[str, ...]:
        """C decides nothing, so it is told only where it was asked for; the history keeps it."""
        asked = any("C" in ids for ids in self.stop_on.values())
        return tuple(check for check in line["fired"] if check != "C" or asked)

    def step(self, epoch: int) -> tuple[str, ...]:
        """Measure (if it is the turn of this epoch) and give back the ids of the checks that fire: D1, D2, and C where `stop_on`
        names it."""
        if not _is_count(epoch, 0):
            raise CreditscopeError(f"epoch is {epoch!r}; give its number, 0 (before training) or more")
        if isinstance(self.every, int) and epoch % self.every:
            return ()
        now = _place(self.model)
        if now != self._place:
            raise CreditscopeError(
                f"the Monitor was made for a model on {self._place} and the model is now on {now}; make a new Monitor"
            )
        facts = facts_of_ranks(self.ranks, self._facts)
        line: dict[str, Any] = {"epoch": epoch, "eval_accuracy": facts.accuracy, "eval_loss": facts.loss}
        line |= trajectory_line(facts, self.thresholds)
        self.history.append(line)
        if self.path is not None:
            write = write_atomic if len(self.history) > 1 else write_new  # never over what another Monitor wrote
            write(self.path, b"".join(map(dump_line, self.history)))
        for writer in self.writers if self.ranks is None or self.ranks.first else ():
            writer.write(line)
        for rule, ids in self.stop_on.items():
            self._running[rule] = self._running[rule] + 1 if ids <= set(line["fired"]) else 0
            self.should_stop |= self._running[rule] >= self.patience
        return self._fired(line)


def _parts(model: nn.Module) -> tuple[str, ...]:
    return tuple(f"{name} {type(module).__name__}" for name, module in model.named_modules())


def _place(model: nn.Module) -> str:
    """Device and dtype, as far as a measurement depends on them."""
    return f"{device_of(model)} in {dtype_of(model)}"


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _checked_every(every: str | int) -> str | int:
    if every == "epoch" or _is_count(every, 1):
        return every
    raise CreditscopeError(f'every is {every!r}; give "epoch" or a number of steps, 1 or more')


def _checked_stop(stop_on: Sequence[str]) -> dict[str, set[str]]:
    """("D1&D2", "C") -> {"D1&D2": {"D1", "D2"}, "C": {"C"}}."""
    wanted = [stop_on] if isinstance(stop_on, str) else stop_on
    rules = {rule: {part.strip() for part in rule.split("&")} for rule in wanted}
    for rule, ids in rules.items():
        unknown = sorted(ids - set(LIVE_CHECKS))
        if unknown:
            raise CreditscopeError(
                f"stop_on {rule!r} names {unknown[0]!r}; choose from {', '.join(LIVE_CHECKS)}, joined by & (D3 needs a null)"
            )
    return rules


def _checked_path(path: str | Path | None) -> Path | None:
    if path is None:
        return None
    path = Path(path)
    path = path if path.suffix == ".jsonl" else path / TRAJECTORY
    if path.exists():
        raise CreditscopeError(f"{path} exists already; give the Monitor another path, or remove the file")
    make_directory(path.parent, f"cannot create {path.parent}", "; give another path")
    return path
