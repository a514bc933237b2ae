"""The table of docs/census.md, from the lines of the census."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.trust.census import Line

START, END = "<!-- census -->", "<!-- end of the census -->"


def written(page: str, lines: list[Line]) -> str:
    """The page with its part between the marks made anew."""
    before, _, rest = page.partition(START)
    return f"{before}{START}\n{table(lines)}\n{END}{rest.partition(END)[2]}"


def table(lines: list[Line]) -> str:
    count = Counter(one.outcome for one in lines)
    ran = sum(count.values()) - count["not run"]
    kinds = Counter((one.kind, one.outcome) for one in lines)
    rows = [
        f"{ran} architectures of transformers {version('transformers')} ran: {count['equal']} equal "
        f"({100 * count['equal'] / ran:.0f} %), {count['refused']} refused, {count['wrong']} wrong. "
        f"{count['not run']} did not run from a tiny configuration and do not count.",
        "",
        "| kind | equal | refused | wrong | not run |",
        "|---|---|---|---|---|",
    ]
    outcomes = ("equal", "refused", "wrong", "not run")
    rows += [
        f"| {kind} | {' | '.join(str(kinds[kind, each]) for each in outcomes)} |"
        for kind in dict.fromkeys(one.kind for one in lines)
    ]
    rows += ["", "| refused | the line |", "|---|---|"]
    rows += [f"| {one.architecture} | {_plain(one.note)} |" for one in lines if one.outcome == "refused"]
    rows += ["", "| equal | class | blocks | read |", "|---|---|---|---|"]
    rows += [
        f"| {one.architecture} | `{one.head}` | {one.blocks} | {one.read} |" for one in lines if one.outcome == "equal"
    ]
    rows += ["", "Not run: " + ", ".join(one.architecture for one in lines if one.outcome == "not run") + "."]
    return "\n".join(rows)


def _plain(note: str) -> str:
    """Without what a table of Markdown would read as its own."""
    return note.replace("|", "/").replace("*", r"\*").replace("<", "&lt;")
