"""The section of one study: conclusion, figure, and the table with published | ours | difference marked."""

from __future__ import annotations

from typing import Any

from creditscope.render.html.section import figure_of
from creditscope.render.study import arranged
from creditscope.render.study_charts import study_charts
from creditscope.studies.result import StudyResult

TALL = 14
"""Rows from which a table scrolls inside its frame."""


def study_section(preset: str, result: StudyResult) -> dict[str, Any]:
    columns, rows = arranged(result)
    kinds = [_kind([row[k] for row in rows]) for k in range(len(columns))]
    groups: list[dict[str, Any]] = []
    for column, kind in zip(columns, kinds, strict=True):
        if column.group and groups and groups[-1]["name"] == column.group:
            groups[-1]["parts"].append(column)
        elif column.group:
            groups.append({"name": column.group, "parts": [column]})
        else:
            groups.append({"name": column.name, "parts": [], "kind": kind})
    return {
        "key": study_key(preset, result),
        "name": result.name,
        "preset": preset,
        "question": result.question,
        "conclusion": result.conclusion,
        "convention": result.convention,
        "notes": result.notes,
        "groups": groups,
        "compared": any(g["parts"] for g in groups),
        "columns": columns,
        "kinds": kinds,
        "rows": rows,
        "tall": len(rows) > TALL,
        "figures": [figure_of(*charts, title=f"Figure of the study {result.name}")]
        if (charts := study_charts(result))
        else [],
    }


def _kind(cells: list[str]) -> str:
    """Class of a column: names and sentences are set to the left, sentences may wrap, numbers do neither."""
    together = "".join(cells)
    letters = sum(c.isalpha() or c.isspace() for c in together)
    longest = max(map(len, cells), default=0)
    if longest <= 18 or letters <= 0.6 * len(together):
        return ""
    return "words" if longest > 40 else "name"


def study_key(preset: str, result: StudyResult) -> str:
    return f"study-{result.name}-{preset}"


def study_data(preset: str, result: StudyResult) -> dict[str, Any]:
    """What the page holds of a study as JSON."""
    return {"key": study_key(preset, result), "preset": preset, **result.to_dict()}
