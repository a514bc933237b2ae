"""Lines of a Monitor as TensorBoard scalars."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from creditscope.integrations.base import require, scalars


class TensorBoardWriter:
    """Monitor(..., writers=[TensorBoardWriter("runs/dfa")]); one point per measurement, at step = epoch."""

    def __init__(self, log_dir: str | Path) -> None:
        require("tensorboard", "tensorboard")
        self._writer = require("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(log_dir))

    def write(self, line: Mapping[str, Any]) -> None:
        for name, value in scalars(line).items():
            self._writer.add_scalar(name, value, global_step=line["epoch"])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
