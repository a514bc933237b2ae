"""The audit table as LaTeX: a table environment for booktabs, nothing in it that the reader's text could command."""

from __future__ import annotations

import re
from collections.abc import Sequence

from creditscope.render import audit as audit_table
from creditscope.render.numbers import accuracy, printable
from creditscope.studies.audit import AuditRow

LONGEST = 500

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

PREAMBLE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{booktabs,longtable}
\begin{document}
"""
HEADER = (
    "method",
    "accuracy",
    r"$\Gamma$",
    r"accuracy + $\Gamma$ would claim",
    "growth",
    r"$\Vert g_L\Vert/128$",
    "margin to null (pp)",
    "the protocol finds",
)
ONE_PAGE = 12
"""Rows from which a table may break over pages."""
SHARES = (0.1, 0.1, 0.07, 0.1, 0.1, 0.11, 0.14, 0.15)
"""Width of each column as a share of the line."""
COLUMNS = "@{}" + "".join(rf"p{{{w}\linewidth}}" for w in SHARES) + "@{}"


def escape(text: str, longest: int | None = LONGEST) -> str:
    """One line of inert text of limited length (None: as long as it is)."""
    text = " ".join(printable(str(text)).split())
    text = text if longest is None or len(text) <= longest else text[: longest - 1] + "…"
    return re.sub(r"-(?=-)", "-{}", "".join(map(_character, text)))  # two hyphens stay two


def _character(c: str) -> str:
    if c in SPECIAL:
        return SPECIAL[c]
    if c in SYMBOLS:
        return SYMBOLS[c]
    return c if c.isascii() or "À" <= c <= "ſ" else "?"


def numbers(text: str, longest: int | None = LONGEST) -> str:
    """Our own numbers: real minus signs, powers of ten."""
    text = re.sub(
        r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]\d+)", lambda m: rf"${m[1]}\times 10^{{{int(m[2])}}}$", escape(text, longest)
    )
    return re.sub(r"(?<![\w{])-(?=[\d$])", "$-$", text)


def audit_latex(groups: Sequence[AuditRow], *, standalone: bool = False, label: str = "tab:creditscope-audit") -> str:
    """A table environment (needs \\usepackage{booktabs}), or with `standalone` a whole document."""
    rows = []
    for group in groups:
        cells = audit_table.cells(group)
        cells[1] = accuracy(group.accuracies)
        rows.append([escape(cells[0]), *(numbers(c) for c in cells[1:3]), escape(cells[3]), *map(_lines, cells[4:7])])
        rows[-1].append(escape(cells[7]))
    caption = rf"\caption{{What accuracy + $\Gamma$ would have claimed, and what the protocol finds. {escape_caption(groups)}}}"
    header = [r"\toprule", _row(HEADER), r"\midrule"]
    body = [_row(row) for row in rows]
    if len(rows) > ONE_PAGE:  # a table environment cannot break over pages
        lines = [
            r"{\scriptsize",
            r"\setlength{\tabcolsep}{3pt}",
            rf"\begin{{longtable}}{{{COLUMNS}}}",
            caption + rf"\label{{{label}}}\\",
            *(*header, r"\endfirsthead"),
            *(*header, r"\endhead"),
            *(*body, r"\bottomrule", r"\end{longtable}}", ""),
        ]
    else:
        lines = [
            *(r"\begin{table}[tbp]", r"\centering", r"\scriptsize", r"\setlength{\tabcolsep}{3pt}"),
            *(caption, rf"\label{{{label}}}", rf"\begin{{tabular}}{{{COLUMNS}}}"),
            *(*header, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""),
        ]
    table = "\n".join(lines)
    needs = "% needs \\usepackage{booktabs,longtable}\n" if len(rows) > ONE_PAGE else "% needs \\usepackage{booktabs}\n"
    return PREAMBLE + table + "\\end{document}\n" if standalone else needs + table


def _row(cells: Sequence[str]) -> str:
    return " & ".join(map(_wrapped, cells)) + r" \\"


def escape_caption(groups: Sequence[AuditRow]) -> str:
    """The convention of every number; longer than other texts, and all our own words but for the names in it."""
    text = printable(audit_table.caption(groups)).replace("‖g_L‖", "\0")
    return "".join(map(_character, text)).replace("\0", r"$\Vert g_L\Vert$")


def _lines(cell: str) -> str:
    return r" \newline ".join(numbers(line) for line in cell.splitlines())


def _wrapped(cell: str) -> str:
    """Ragged inside its column, without the array package."""
    return rf"{{\raggedright {cell}\par}}"
