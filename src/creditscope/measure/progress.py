"""How long a measurement will take, and how far it is: one line and a bar on the standard error, where it is worth it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from creditscope.stream.ranks import is_first

LONG = 10.0
"""Seconds from which on a measurement says how long it will take."""
WIDTH = 30


class Progress:
    """Counts equal parts of a measurement; the first one tells how long all will take."""

    def __init__(
        self, what: str, total: int, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.what, self.total, self.clock = what, total, clock
        self.out = out or sys.stderr
        self.done = 0
        self._began = clock()
        self._shown = False

    def step(self) -> None:
        """One part is done."""
        self.done += 1
        taken = self.clock() - self._began
        if self.done == 1:
            self._shown = taken * self.total >= LONG and is_first()
            if self._shown:
                self.out.write(f"creditscope: {self.what}: about {spoken(taken * self.total)}\n")
        if self._shown and self.out.isatty():
            full = WIDTH * self.done // self.total
            left = spoken(taken / self.done * (self.total - self.done))
            end = "\n" if self.done == self.total else ""
            self.out.write(f"\r[{'#' * full}{' ' * (WIDTH - full)}] {self.done} of {self.total}, {left} left  {end}")
        if self._shown:
            self.out.flush()


def spoken(seconds: float) -> str:
    """ "40 s", "3 min", "2.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
