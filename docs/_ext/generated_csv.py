"""A table of measured numbers, from a file in docs/data. Its cells are Markdown."""

from __future__ import annotations

import csv
from pathlib import Path

from md import table


def csv_table(name: str) -> str:
    with (Path(__file__).parents[1] / "data" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return table(header, rows)
