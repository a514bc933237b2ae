"""What is said, before it is written: sections with a title, a table and lines. Every format writes these; all text is inert."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from creditscope.render import markdown
from creditscope.render.numbers import printable


@dataclass(frozen=True)
class Section:
    """A title, a paragraph, a table and lines, in this order, as far as they are there."""

    title: str = ""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    lines: Sequence[str] = ()
    ordered: bool = False
    """The lines are steps, one after the other."""
    numbers: bool = False
    """The columns are numbers: set to the right."""
    empty: str = "not measured"
    """Why a cell holds nothing."""
    gap: int = 3
    """Spaces between columns in a terminal."""
    level: int = 0
    """Of the title as a heading; 0: it is bold."""
    text: str = ""
    caption: str = ""
    """Of the table."""
    widths: Sequence[float] = ()
    """Of the columns on paper, relative to each other; by default they follow the longest cell."""
    label: str = ""
    """What a LaTeX document calls the table."""

    def numbered(self, bullet: str, inert: Callable[[str], str] = str) -> list[str]:
        """The lines, made `inert`, with their number or with `bullet`."""
        return [(f"{k}. " if self.ordered else bullet) + inert(line) for k, line in enumerate(self.lines, 1)]


def to_markdown(sections: Iterable[Section], longest: int | None = None) -> str:
    """`longest`: letters of one text."""
    inert = partial(markdown.escape, longest=longest)
    parts = []
    for section in sections:
        if section.title:
            title = inert(section.title)
            parts.append(f"{'#' * section.level} {title}" if section.level else f"**{title}**")
        parts += [inert(text) for text in (section.text, section.caption) if text]
        if section.header:
            rows = [[*map(inert, row)] for row in section.rows]
            parts.append("\n".join(markdown.table([*map(inert, section.header)], rows)))
        if section.lines:
            parts.append("\n".join(section.numbered("- ", inert)))
    return "\n\n".join(parts) + "\n"


SECTIONS = {2: "section", 3: "subsection"}
PREAMBLE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,longtable}
\begin{document}
"""
NEEDS = "% needs \\usepackage[T1]{fontenc}, \\usepackage[utf8]{inputenc} and \\usepackage{booktabs,longtable}\n"


def to_latex(sections: Iterable[Section], standalone: bool = False) -> str:
    """A fragment to \\input, or with `standalone` a whole document."""
    lines: list[str] = []
    for section in sections:
        if section.title:
            lines += [rf"\{SECTIONS[section.level]}{{{_tex(section.title)}}}", ""]
        if section.text:
            lines += [_tex(section.text), ""]
        if section.header:
            lines += _tex_table(section)
        if section.lines:
            items = (rf"\item {{}}{_tex(line)}" for line in section.lines)
            lines += [r"\begin{itemize}", *items, r"\end{itemize}", ""]
    body = "\n".join(lines)
    return PREAMBLE + body + "\\end{document}\n" if standalone else NEEDS + body


def _tex(text: str) -> str:
    """Inert; long words (hashes, paths) may break."""
    return " ".join(map(_breakable, printable(text).split()))


def _breakable(word: str) -> str:
    if len(word) <= 24:
        return latex_numbers(word)
    return r"\allowbreak{}".join(latex_escape(word[k : k + 10]) for k in range(0, len(word), 10))


def _tex_table(table: Section) -> list[str]:
    wanted = table.widths or [_needed(column) for column in zip(table.header, *table.rows, strict=True)]
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


# ---- text for LaTeX: nothing in it that the reader's text could command ----------------------------------------------------


SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': '{"}',
    "`": "{`}",
    "[": "{[}",  # after a line end, a bracket would be read as its argument
    "]": "{]}",
}
SYMBOLS = {
    "Γ": r"$\Gamma$",
    "ρ": r"$\rho$",
    "λ": r"$\lambda$",
    "β": r"$\beta$",
    "ε": r"$\varepsilon$",
    "η": r"$\eta$",
    "Σ": r"$\Sigma$",
    "‖": r"$\Vert$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "–": "--",
    "…": r"\ldots{}",
    "²": r"$^2$",
    "Δ": r"$\Delta$",
    "≈": r"$\approx$",
    "→": r"$\to$",
    "✓": r"$\surd$",
    "✗": r"$\times$",
    "√": r"$\surd$",
    "“": "``",
    "”": "''",
}
"""What the tables themselves use; any other character outside Latin is shown as "?"."""


def latex_escape(text: str) -> str:
    """One line of inert text."""
    text = " ".join(printable(str(text)).split())
    return re.sub(r"-(?=-)", "-{}", "".join(map(_character, text)))  # two hyphens stay two


def _character(c: str) -> str:
    shown = c if c.isascii() or "À" <= c <= "ſ" else "?"
    return SPECIAL.get(c) or SYMBOLS.get(c) or shown


def latex_numbers(text: str) -> str:
    """Our own numbers: real minus signs, powers of ten."""
    power = r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]\d+)"
    text = re.sub(power, lambda m: rf"${m[1]}\times 10^{{{int(m[2])}}}$", latex_escape(text))
    return re.sub(r"(?<![\w{])-(?=[\d$])", "$-$", text)
