"""The progress of one run, epoch by epoch: a moving bar in a terminal, one line per epoch in a log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from creditscope.render.numbers import share
from creditscope.training.loop import Progress as EpochProgress


@contextmanager
def epoch_bar(label: str, epochs: int | None, console: Console) -> Iterator[EpochProgress]:
    """What `train(progress=...)` takes."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
        console=console,
    )
    task = bar.add_task(label, total=epochs, state="")

    def progress(done: int, total: int, line: dict[str, Any]) -> None:
        fired = " ".join(line["fired"])
        state = f"accuracy {share(line['accuracy'])}  growth {float(line['growth']):.3g}" + (
            f"  {fired}" if fired else ""
        )
        if console.is_terminal:
            bar.start()  # not before the first line, so that a mistake leaves no bar behind
            bar.update(task, completed=done, state=state)
        else:
            console.print(f"epoch {done}/{total}  {state}", soft_wrap=True)

    try:
        yield progress
    finally:
        if bar.live.is_started:
            bar.stop()
