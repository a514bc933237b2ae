"""The audit table of `creditscope report`."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.render.tables import texts
from creditscope.render.words import paragraph
from creditscope.runs.groups import AuditRow
from creditscope.studies.audit import audit_table


def header(groups: Sequence[AuditRow]) -> list[str]:
    return texts(audit_table(groups, ""))[0]


def cells(groups: Sequence[AuditRow]) -> list[list[str]]:
    """A row of text per group."""
    return texts(audit_table(groups, ""))[1]


def caption(groups: Sequence[AuditRow]) -> str:
    """The convention of every number in the table."""
    return paragraph(audit_table(groups, "").convention)
