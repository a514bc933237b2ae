"""A study as text, Markdown, LaTeX and JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rich.box import HORIZONTALS
from rich.console import Group, RenderableType
from rich.text import Text

from creditscope.render import latex
from creditscope.render.markdown import CAPTION, escape, table
from creditscope.render.numbers import printable
from creditscope.render.sheet import Sheet
from creditscope.render.text import columns, to_text
from creditscope.studies.result import StudyResult

NARROW = 40
PAPER = ("published", "difference")
"""Columns that belong to the quantity before them."""


def study_text(result: StudyResult) -> str:
    used = _used(result)
    rows = [[printable(row[k]) for k in used] for row in result.rows]
    grid = Sheet(
        [result.header[k] for k in used],
        rows,
        widest=NARROW,
        show_lines=True,
        box=HORIZONTALS,
        padding=(0, 1),
        pad_edge=False,
    )
    parts: list[RenderableType] = [
        grid,
        Text(),
        Text(result.conclusion, style="bold"),
        Text(result.convention, style="dim"),
    ]
    # a wide terminal shows wide tables unbroken
    return to_text(Group(*parts, *(Text(f"note: {printable(n)}") for n in result.notes)), columns())


def _used(result: StudyResult) -> list[int]:
    """Where no published value applies, its columns are left out of the text."""
    return [k for k, h in enumerate(result.header) if h not in PAPER or any(row[k] != "–" for row in result.rows)]


@dataclass(frozen=True)
class Column:
    """One column of a study's table; `group` is the quantity that is published, ours, and their difference."""

    name: str
    group: str = ""


def arranged(result: StudyResult) -> tuple[list[Column], list[list[str]]]:
    """The table with published | ours | difference side by side, under the quantity they belong to."""
    used = _used(result)
    columns: list[Column] = []
    order: list[int] = []
    for k in used:
        name = result.header[k]
        if name in PAPER:
            continue  # it was placed with the quantity before it
        after = [j for j in (k + 1, k + 2) if j in used and result.header[j] in PAPER and result.header[k + 1] in PAPER]
        named = {result.header[j]: j for j in after}
        if "published" not in named:
            columns.append(Column(name))
            order.append(k)
            continue
        columns += [Column("published", name), Column("ours", name)]
        order += [named["published"], k]
        if "difference" in named:
            columns.append(Column("difference", name))
            order.append(named["difference"])
    return columns, [[row[k] for k in order] for row in result.rows]


def study_markdown(result: StudyResult) -> str:
    rows = [[escape(cell) for cell in row] for row in result.rows]
    lines = [
        f"## {escape(result.name)}: {escape(result.question)}",
        "",
        *table([escape(h) for h in result.header], rows),
    ]
    lines += [
        "",
        f"**{escape(result.conclusion, CAPTION)}**",
        "",
        escape(result.convention, None),
        *(f"- note: {escape(n, None)}" for n in result.notes),
    ]
    return "\n".join(lines) + "\n"


def study_latex(result: StudyResult) -> str:
    """A booktabs table, shrunk to the line where it is wider; its caption is the conclusion and the convention."""
    columns, rows = arranged(result)
    header = [f"{c.group}: {c.name}" if c.group and c.name != "difference" else c.name for c in columns]
    lines = [
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}[tbp]",
        r"\centering",
        r"\scriptsize",
        rf"\caption{{{_tex(f'{result.conclusion} {result.convention}.')}}}",
        rf"\label{{tab:creditscope-{result.name}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        r"\begin{tabular}{@{}l" + "r" * (len(columns) - 1) + "@{}}",
        r"\toprule",
    ]
    lines += [" & ".join(map(_tex, header)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(_tex, row)) + r" \\" for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table}"]) + "\n"


def _tex(text: str) -> str:
    return latex.numbers(text, longest=CAPTION)


def study_json(result: StudyResult) -> str:
    return json.dumps(result.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
