"""Lines of a Monitor in a trackio run (a local database)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from creditscope.integrations.base import require, scalars


class TrackioWriter:
    """Monitor(..., writers=[TrackioWriter(project="dfa")]); `init` goes to trackio.init."""

    def __init__(self, project: str, **init: Any) -> None:
        self.run = require("trackio", "trackio").init(project=project, **init)

    def write(self, line: Mapping[str, Any]) -> None:
        self.run.log({"creditscope/epoch": line["epoch"], **scalars(line)})

    def close(self) -> None:
        self.run.finish()
