"""The audit table of `creditscope report`, row by row, for the page."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.render.tables import texts, three_digits
from creditscope.render.words import paragraph
from creditscope.runs.groups import AuditRow
from creditscope.studies.audit import audit_table


def cells(group: AuditRow) -> dict[str, str]:
    """The row of a group as text, by the names of the columns."""
    table = three_digits(audit_table([group], ""))
    return dict(zip(table.by_name, texts(table)[1][0], strict=True))


def caption(groups: Sequence[AuditRow]) -> str:
    """The convention of every number in the table."""
    return paragraph(audit_table(groups, "").convention)
