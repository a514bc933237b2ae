"""A Monitor as a callback of the transformers Trainer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from creditscope.integrations.base import require
from creditscope.monitor import Monitor

TrainerCallback: Any = require("transformers", "hf").TrainerCallback


class MonitorCallback(TrainerCallback):  # type: ignore[misc]
    """Trainer(..., callbacks=[MonitorCallback(eval_batches, credit=rule)]): measures, and stops the training.

    eval_batches and options: as for `Monitor` (every: "epoch", or every n optimiser steps).
    The line of epoch 0 is the network before training; the line of epoch k the network after k epochs.
    """

    def __init__(self, eval_batches: Iterable[Any], **options: Any) -> None:
        self._eval_batches, self._options = eval_batches, options
        self.monitor: Monitor | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> Any:
        if self.monitor is None:  # by now the model is where it will be trained
            self.monitor = Monitor(model, self._eval_batches, **self._options)
        by_epoch = self.monitor.every == "epoch"
        return self._step(round(state.epoch or 0) if by_epoch else state.global_step, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if self.monitor is not None and self.monitor.every != "epoch":
            return self._step(state.global_step, control)
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if self.monitor is not None and self.monitor.every == "epoch":
            return self._step(round(state.epoch), control)
        return control

    def _step(self, place: int, control: Any) -> Any:
        assert self.monitor is not None
        self.monitor.step(place)
        control.should_training_stop = control.should_training_stop or self.monitor.should_stop
        return control
