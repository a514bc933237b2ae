"""Lines of a Monitor in a trackio run (a local database)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from creditscope.integrations.base import require, scalars


class TrackioWriter:
    """Monitor(..., writers=[TrackioWriter(project="dfa")]); one point per measurement, at step = epoch.

    `init` goes to trackio.init (name=, space_id=, ...); without a space_id nothing leaves the machine.
    """

    def __init__(self, project: str, **init: Any) -> None:
        self.run = require("trackio", "trackio").init(project=project, **init)

    def write(self, line: Mapping[str, Any]) -> None:
        self.run.log({"creditscope/epoch": line["epoch"], **scalars(line)}, step=line["epoch"])

    def close(self) -> None:
        self.run.finish()
