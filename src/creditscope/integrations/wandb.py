"""Lines of a Monitor, and reports, in a Weights & Biases run; offline unless asked otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from creditscope.integrations.base import PREFIX, layer_table, outcome, profile_curves, require, scalars

if TYPE_CHECKING:
    from creditscope import DiagnosticReport


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

    def write_report(self, report: DiagnosticReport) -> None:
        """A table of the layers, the curve of the depth profile, and the verdict in the summary of the run."""
        wandb = require("wandb", "wandb")
        columns, rows = layer_table(report)
        shown: dict[str, Any] = {f"{PREFIX}layers": wandb.Table(columns=columns, data=rows)}
        if curves := profile_curves(report):
            layers = list(range(report.facts.stream.depth + 1))
            shown[f"{PREFIX}profile"] = wandb.plot.line_series(
                xs=layers,
                ys=list(curves.values()),
                keys=list(curves),
                title="depth profile: readout by layer",
                xname="layer",
            )
        self.run.log(shown)
        self.run.summary.update(outcome(report))

    def close(self) -> None:
        if self._own:
            self.run.finish()
