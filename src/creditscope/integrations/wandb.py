"""Lines of a Monitor in a Weights & Biases run; offline unless asked otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from creditscope.integrations.base import require, scalars


class WandbWriter:
    """Monitor(..., writers=[WandbWriter(project="dfa")]); nothing leaves the machine unless mode="online" is given.

    run: a run that is already open (it is then left open); otherwise `init` goes to wandb.init.
    """

    def __init__(self, run: Any = None, **init: Any) -> None:
        wandb = require("wandb", "wandb")
        self._own = run is None
        self.run = wandb.init(**{"mode": "offline", **init}) if run is None else run

    def write(self, line: Mapping[str, Any]) -> None:
        # no step=: a run that somebody else logs to as well has its own count
        self.run.log({"creditscope/epoch": line["epoch"], **scalars(line)})

    def close(self) -> None:
        if self._own:
            self.run.finish()
