"""A Monitor as a Lightning callback."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from creditscope.errors import CreditscopeError
from creditscope.integrations.base import require, scalars
from creditscope.monitor import Monitor

Callback: Any = require("lightning.pytorch", "lightning").Callback


class MonitorCallback(Callback):  # type: ignore[misc]
    """Trainer(callbacks=[MonitorCallback(eval_batches, credit=rule)]): measures, logs, and stops the fit.

    eval_batches and options: as for `Monitor` (every: "epoch", or every n optimiser steps).
    network: which module is measured: None for the LightningModule itself, the name of its part, or a function of it.
    The line of epoch 0 is the network before training; the line of epoch k the network after k epochs.
    """

    def __init__(
        self, eval_batches: Iterable[Any], network: str | Callable[[Any], nn.Module] | None = None, **options: Any
    ) -> None:
        self._eval_batches, self._network, self._options = eval_batches, network, options
        self.monitor: Monitor | None = None
        self._last = -1

    def _pick(self, module: Any) -> nn.Module:
        if self._network is None:
            return module
        if not isinstance(self._network, str):
            picked = self._network(module)
            if not isinstance(picked, nn.Module):
                raise CreditscopeError(
                    f"network(module) returned a {type(picked).__name__}; return the torch module to measure"
                )
            return picked
        try:
            return module.get_submodule(self._network)
        except AttributeError:
            parts = ", ".join(name for name, _ in module.named_children()) or "none"
            raise CreditscopeError(
                f"network={self._network!r} is no part of {type(module).__name__}; name one of its parts: {parts}"
            ) from None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self.monitor is None:  # by now the module is where it will be trained
            self.monitor = Monitor(self._pick(pl_module), self._eval_batches, **self._options)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._step(trainer, epoch=trainer.current_epoch, step=trainer.global_step)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._step(trainer, step=trainer.global_step)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._step(trainer, epoch=trainer.current_epoch + 1)

    def _step(self, trainer: Any, epoch: int | None = None, step: int | None = None) -> None:
        """Measure where an epoch, or where an optimiser step has ended, as the monitor counts."""
        monitor = self.monitor
        assert monitor is not None
        place = epoch if monitor.every == "epoch" else step
        if place is None or place == self._last:  # accumulated gradients: several batches, one optimiser step
            return
        self._last = place
        before = len(monitor.history)
        monitor.step(place)
        for line in monitor.history[before:]:
            for logger in trainer.loggers:
                logger.log_metrics(scalars(line), step=trainer.global_step)
        trainer.should_stop = trainer.should_stop or monitor.should_stop
