"""A short document of headings, paragraphs, lists and tables, as Markdown and as LaTeX; every string in it is inert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from creditscope.render import latex, markdown
from creditscope.render.numbers import printable

CLIP = 300
"""Characters of one text from outside."""


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Items:
    lines: Sequence[str]


@dataclass(frozen=True)
class Table:
    """`widths` are relative; by default they follow the longest cell."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    widths: Sequence[float] = ()
    label: str = ""


Block = Heading | Paragraph | Items | Table


def clip(text: object, longest: int = CLIP) -> str:
    """Text from outside: one line of limited length."""
    line = " ".join(printable(str(text)).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def to_markdown(blocks: Sequence[Block]) -> str:
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, Heading):
            lines += ["#" * block.level + " " + _md(block.text), ""]
        elif isinstance(block, Paragraph):
            lines += [_md(block.text), ""]
        elif isinstance(block, Items):
            lines += [*(f"- {_md(line)}" for line in block.lines), ""]
        else:
            rows = [[_md(cell) for cell in row] for row in block.rows]
            lines += [*([_md(block.caption), ""] if block.caption else [])]
            lines += [*markdown.table([_md(h) for h in block.header], rows), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _md(text: str) -> str:
    return markdown.escape(text, longest=None)


SECTIONS = {1: "section", 2: "section", 3: "subsection", 4: "paragraph"}
PREAMBLE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,longtable}
\begin{document}
"""
NEEDS = "% needs \\usepackage[T1]{fontenc}, \\usepackage[utf8]{inputenc} and \\usepackage{booktabs,longtable}\n"


def to_latex(blocks: Sequence[Block], standalone: bool = False) -> str:
    """A fragment to \\input, or with `standalone` a whole document."""
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, Heading):
            lines += [rf"\{SECTIONS[block.level]}{{{_tex(block.text)}}}", ""]
        elif isinstance(block, Paragraph):
            lines += [_tex(block.text), ""]
        elif isinstance(block, Items):
            if block.lines:
                lines += [
                    r"\begin{itemize}",
                    *(rf"\item {{}}{_tex(line)}" for line in block.lines),
                    r"\end{itemize}",
                    "",
                ]
        else:
            lines += _tex_table(block)
    body = "\n".join(lines)
    return PREAMBLE + body + "\\end{document}\n" if standalone else NEEDS + body


def _tex(text: str) -> str:
    """Inert; long words (hashes, paths) may break."""
    words = (_breakable(word) for word in printable(text).split())
    return " ".join(words)


def _breakable(word: str) -> str:
    if len(word) <= 24:
        return latex.numbers(word, longest=None)
    return r"\allowbreak{}".join(latex.escape(word[k : k + 10], longest=None) for k in range(0, len(word), 10))


def _tex_table(table: Table) -> list[str]:
    wanted = table.widths or [_needed([h, *(row[k] for row in table.rows)]) for k, h in enumerate(table.header)]
    room = 0.97 - 0.012 * len(table.header)
    shares = [room * w / sum(wanted) for w in wanted]
    mark = rf"\label{{{table.label}}}" if table.label else ""
    return [
        r"{\footnotesize\setlength{\tabcolsep}{3pt}",
        r"\begin{longtable}{@{}" + "".join(rf"p{{{s:.3f}\linewidth}}" for s in shares) + "@{}}",
        *([rf"\caption{{{_tex(table.caption)}}}{mark}\\"] if table.caption else []),
        r"\toprule",
        _tex_row(table.header),
        r"\midrule",
        r"\endhead",
        *map(_tex_row, table.rows),
        r"\bottomrule",
        r"\end{longtable}}",
        "",
    ]


def _tex_row(cells: Sequence[str]) -> str:
    return " & ".join(rf"{{\raggedright {_tex(c)}\par}}" for c in cells) + r" \\"


def _needed(column: Sequence[str]) -> float:
    """Letters that a column should hold: its longest word, or its mean cell, within bounds."""
    longest = max((len(word) for cell in column for word in cell.split()), default=0)
    return min(34.0, max(4.0, longest, sum(map(len, column)) / len(column)))
