"""Lines of a Monitor as TensorBoard scalars; reports as curves over layers, histograms, figures and text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from creditscope.integrations.base import PREFIX, layer_table, outcome, require, scalars

if TYPE_CHECKING:
    from creditscope import DiagnosticReport


class TensorBoardWriter:
    """Monitor(..., writers=[TensorBoardWriter("runs/dfa")]); one point per measurement, at step = epoch."""

    def __init__(self, log_dir: str | Path) -> None:
        require("tensorboard", "tensorboard")
        self._writer = require("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(log_dir))

    def write(self, line: Mapping[str, Any]) -> None:
        for name, value in scalars(line).items():
            self._writer.add_scalar(name, value, global_step=line["epoch"])
        self._writer.flush()

    def write_report(self, report: DiagnosticReport, step: int = 0) -> None:
        """Curves over the layers (step = layer) with their histograms, the figures of the report, and the verdict as text."""
        columns, rows = layer_table(report)
        for name, values in zip(columns[1:], list(zip(*rows, strict=True))[1:], strict=True):
            known = [(layer, value) for layer, value in enumerate(values) if value is not None]
            for layer, value in known:
                self._writer.add_scalar(f"{PREFIX}layers/{name}", value, global_step=layer)
            if known:
                self._writer.add_histogram(f"{PREFIX}layers/{name}", np.array([v for _, v in known]), global_step=step)
        self._writer.add_figure(f"{PREFIX}report", _on_canvas(report.plot()), global_step=step)
        if report.facts.profile is not None:
            self._writer.add_figure(f"{PREFIX}profile", _on_canvas(report.facts.profile.plot()), global_step=step)
        for name, text in {**outcome(report), f"{PREFIX}report": report.to_markdown()}.items():
            self._writer.add_text(name, text, global_step=step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _on_canvas(figure: Any) -> Any:
    """A figure that was made without pyplot has no canvas to be drawn on yet."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    return figure
