"""Markdown that is made from the code, in place of a mark in a page.

`<!-- generated: NAME ARGUMENTS -->` alone is replaced where the site is built. With a line `<!-- end of generated -->` behind it,
the page holds the Markdown, so that a reader of the repository sees it: `make generated` writes it anew, and a test compares.
`<!-- generated: NAME; in git: OTHER -->` is NAME on the site and OTHER, which is shorter, in the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from generated_api import api_list
from generated_commands import cli, cli_list
from generated_csv import csv_table
from generated_pitfalls import pitfall_lines, pitfall_list, pitfall_table
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

MARK = re.compile(
    r"^(?P<mark><!-- generated: (?P<site>[^;\n]+?)(?:; in git: (?P<git>[^;\n]+?))? -->)$"
    r"(?P<held>\n(?:(?!^<!-- generated:).)*?^<!-- end of generated -->$)?",
    re.MULTILINE | re.DOTALL,
)

MAKERS: dict[str, Callable[..., str]] = {
    "api-list": api_list,
    "csv": csv_table,
    "cli": cli,
    "cli-list": cli_list,
    "pitfall-lines": pitfall_lines,
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


def made(call: str) -> str:
    name, *arguments = call.split()
    return MAKERS[name](*arguments).strip()


def expand(text: str) -> str:
    """A page as the site shows it; an unknown name is a KeyError, so that a wrong mark stops the build."""
    return MARK.sub(lambda match: made(match["site"]) + "\n", text)


def refresh(text: str) -> str:
    """A page as git holds it: what stands between a mark and its end is made anew."""

    def held(match: re.Match[str]) -> str:
        if match["held"] is None:
            return match[0]
        return f"{match['mark']}\n\n{made(match['git'] or match['site'])}\n\n<!-- end of generated -->"

    return MARK.sub(held, text)


def setup(app: Any) -> dict[str, bool]:
    def on_read(app: Any, docname: str, source: list[str]) -> None:
        source[0] = expand(source[0])

    app.connect("source-read", on_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    for page in sorted(Path(__file__).parents[1].glob("**/*.md")):
        before = page.read_text(encoding="utf-8")
        if "_build" not in page.parts and (after := refresh(before)) != before:
            page.write_text(after, encoding="utf-8")
            print(page)
