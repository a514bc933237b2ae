"""The section of one study: conclusion, figure and table."""

from __future__ import annotations

import json
from typing import Any

from creditscope.render.draw import table_panels
from creditscope.render.html.section import figure_of
from creditscope.render.tables import kinds, table_json, texts, three_digits
from creditscope.render.words import paragraph, words
from creditscope.tables import Table

TALL = 14
"""Rows from which a table scrolls inside its frame."""


def study_section(preset: str, table: Table) -> dict[str, Any]:
    header, rows = texts(three_digits(table))
    panels = table_panels(table, words)
    return {
        "key": study_key(preset, table),
        "name": table.name,
        "preset": preset,
        "question": table.title,
        "conclusion": paragraph(table.conclusion),
        "convention": paragraph(table.convention, ""),
        "notes": table.notes,
        "columns": list(zip(header, kinds(rows) or [""] * len(header), (c.holds for c in table.columns), strict=True)),
        "rows": rows,
        "tall": len(rows) > TALL,
        "figures": [figure_of(*panels, title=f"Figure of the study {table.name}")] if panels else [],
    }


def study_key(preset: str, table: Table) -> str:
    return f"study-{table.name}-{preset}"


def study_data(preset: str, table: Table) -> dict[str, Any]:
    """What the page holds of a study as JSON."""
    return {"key": study_key(preset, table), "preset": preset, **json.loads(table_json(table))}
