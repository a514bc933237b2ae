"""The section with every published value, margin and verdict next to ours, and what was learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from markupsafe import escape

from creditscope.render.claims_charts import claims_charts
from creditscope.render.html.section import figure_of
from creditscope.render.numbers import mark
from creditscope.render.reproduction import (
    BOTH,
    COVERAGE_HEADER,
    HEADER,
    POLICIES,
    POLICY_HEADER,
    VERDICT_HEADER,
    VERDICTS,
    claim_cells,
    claims_lines,
    coverage_line,
    how_to_read,
    policies,
    verdict_cells,
    verdicts_line,
    where_from,
)
from creditscope.studies.coverage import AS_PLANNED, FEWER, OTHER_LENGTH, coverage
from creditscope.studies.learned import lessons
from creditscope.studies.reproduction import (
    NOT_COMPARABLE,
    NOT_ONE_RUN,
    NOT_REPRODUCED,
    NOT_RUN,
    ONE_NORM,
    ONE_RUN,
    REPRODUCED,
    Outcome,
    outcomes,
)
from creditscope.studies.result import Run
from creditscope.studies.verdicts import INCONCLUSIVE, NOT_ONE_OPEN, ONE_OPEN, VerdictOutcome, verdict_outcomes

BADGES = {
    REPRODUCED: ("pass", "✓"),
    ONE_RUN: ("pass", "✓"),
    ONE_NORM: ("inconclusive", "◐"),
    ONE_OPEN: ("inconclusive", "◐"),
    NOT_ONE_OPEN: ("inconclusive", "◐"),
    INCONCLUSIVE: ("inconclusive", "?"),
    NOT_REPRODUCED: ("fail", "✗"),
    NOT_ONE_RUN: ("fail", "✗"),
    NOT_COMPARABLE: ("none", "≠"),
    NOT_RUN: ("none", "–"),
    AS_PLANNED: ("pass", "✓"),
    FEWER: ("inconclusive", "◐"),
    OTHER_LENGTH: ("none", "≠"),
}
"""Kind of statement: its colour, and a mark for those who do not see it."""


def published_section(runs: Sequence[Run]) -> dict[str, Any] | None:
    """None where no published value is about any of the runs."""
    held, verdicts = outcomes(runs), verdict_outcomes(runs)
    if not any(o.ours for o in held):
        return None
    tables = [
        _table(name, HEADER, [o for o in held if o.claim.table == name])
        for name in dict.fromkeys(o.claim.table for o in held)
    ]
    return {
        "lines": [" ".join(claims_lines(held)), verdicts_line(verdicts)],
        "figures": [figure_of(panel) for panels in claims_charts(held).values() for panel in panels],
        "source": escape(where_from()),
        "how": escape(how_to_read()),
        "tables": [
            *tables,
            *(
                _table(name, VERDICT_HEADER, [o for o in verdicts if o.said.table == name], told)
                for name, told in VERDICTS.items()
            ),
            _by_policy(runs),
            _planned(runs),
        ],
        "lessons": [(title, escape(text)) for title, text in lessons(runs)],
    }


def _table(
    name: str, header: Sequence[str], held: Sequence[Outcome] | Sequence[VerdictOutcome], note: str = ""
) -> dict[str, Any]:
    counts = Counter(o.kind for o in held)
    return {
        "name": name,
        "header": header,
        "note": note,
        "counts": ", ".join(f"{counts[kind]} {kind}" for kind in BADGES if counts[kind]),
        "rows": [_row(o) for o in held],
    }


def _by_policy(runs: Sequence[Run]) -> dict[str, Any]:
    rows = [
        {
            "cells": cells[:-1],
            "statement": cells[-1],
            "status": four.status,
            "mark": mark(four.status).partition(" ")[0],
            "runs": [b.spec.hash for b in three.bundles],
        }
        for cells, three, four in policies(runs)
    ]
    return {"name": BOTH, "header": [*POLICY_HEADER, "runs"], "note": POLICIES, "counts": "", "rows": rows}


def _planned(runs: Sequence[Run]) -> dict[str, Any]:
    cells = coverage(r.spec for r in runs)
    return {
        "name": "Planned and run",
        "header": [*COVERAGE_HEADER, "runs"],
        "note": coverage_line(cells),
        "counts": "",
        "rows": [_line(c.words, c.statement, c.hashes) for c in cells],
    }


def _row(o: Outcome | VerdictOutcome) -> dict[str, Any]:
    words = claim_cells(o) if isinstance(o, Outcome) else verdict_cells(o)
    return _line(words, o.kind, [key for ours in o.ours for key in ours.hashes])


def _line(words: Sequence[str], kind: str, runs: Sequence[str]) -> dict[str, Any]:
    *cells, statement = words
    status, mark = BADGES[kind]
    return {"cells": cells, "statement": statement, "status": status, "mark": mark, "runs": list(dict.fromkeys(runs))}
