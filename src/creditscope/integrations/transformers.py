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
        return self._step(control, epoch=round(state.epoch or 0), step=state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        return self._step(control, step=state.global_step)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        return self._step(control, epoch=round(state.epoch))

    def _step(self, control: Any, epoch: int | None = None, step: int | None = None) -> Any:
        """Measure where an epoch, or where an optimiser step has ended, as the monitor counts."""
        assert self.monitor is not None
        place = epoch if self.monitor.every == "epoch" else step
        if place is not None:
            self.monitor.step(place)
            control.should_training_stop = control.should_training_stop or self.monitor.should_stop
        return control
