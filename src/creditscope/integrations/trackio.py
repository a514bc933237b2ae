"""Lines of a Monitor, and reports, in a trackio run (a local database)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from creditscope.integrations.base import PREFIX, layer_table, outcome, profile_curves, require, scalars

if TYPE_CHECKING:
    from creditscope import DiagnosticReport


class TrackioWriter:
    """Monitor(..., writers=[TrackioWriter(project="dfa")]); one point per measurement, at step = epoch.

    `init` goes to trackio.init (name=, space_id=, ...); without a space_id nothing leaves the machine.
    """

    def __init__(self, project: str, **init: Any) -> None:
        self.run = require("trackio", "trackio").init(project=project, **init)

    def write(self, line: Mapping[str, Any]) -> None:
        self.run.log({"creditscope/epoch": line["epoch"], **scalars(line)}, step=line["epoch"])

    def write_report(self, report: DiagnosticReport) -> None:
        """Tables of the layers and of the depth profile, the card as Markdown with the verdict, and the status by check."""
        trackio = require("trackio", "trackio")
        columns, rows = layer_table(report)
        shown: dict[str, Any] = {f"{PREFIX}layers": trackio.Table(columns=columns, data=rows)}
        if curves := profile_curves(report):
            points = [[k, *values] for k, values in enumerate(zip(*curves.values(), strict=True))]
            shown[f"{PREFIX}profile"] = trackio.Table(columns=["layer", *curves], data=points)
        self.run.log({**shown, **outcome(report), f"{PREFIX}report": trackio.Markdown(report.to_markdown())})

    def close(self) -> None:
        self.run.finish()
