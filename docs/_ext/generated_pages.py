"""A line `<!-- generated: NAME ARGUMENTS -->` in a page is replaced by Markdown that is made from the code."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from generated_commands import cli
from generated_pitfalls import pitfall_list, pitfall_table
from generated_protocol import policies, threshold
from generated_rooms import rooms
from generated_rules import rule_facts, rule_options
from generated_studies import (
    study_columns,
    study_commands,
    study_grid,
    study_published,
    study_question,
    study_sizes,
)

MARK = re.compile(r"^<!-- generated: (?P<call>.+?) -->$", re.MULTILINE)

MAKERS: dict[str, Callable[..., str]] = {
    "cli": cli,
    "pitfall-list": pitfall_list,
    "pitfall-table": pitfall_table,
    "policies": policies,
    "threshold": threshold,
    "rooms": rooms,
    "rule-facts": rule_facts,
    "rule-options": rule_options,
    "study-question": study_question,
    "study-grid": study_grid,
    "study-commands": study_commands,
    "study-columns": study_columns,
    "study-published": study_published,
    "study-sizes": study_sizes,
}


def expand(text: str) -> str:
    """A page with every mark replaced; an unknown name is a KeyError, so that a wrong mark stops the build."""

    def made(match: re.Match[str]) -> str:
        name, *arguments = match["call"].split()
        return MAKERS[name](*arguments)

    return MARK.sub(made, text)


def setup(app: Any) -> dict[str, bool]:
    def on_read(app: Any, docname: str, source: list[str]) -> None:
        source[0] = expand(source[0])

    app.connect("source-read", on_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
