"""Text for LaTeX: nothing in it that the reader's text could command."""

from __future__ import annotations

import re

from creditscope.render.numbers import printable

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


def escape(text: str) -> str:
    """One line of inert text."""
    text = " ".join(printable(str(text)).split())
    return re.sub(r"-(?=-)", "-{}", "".join(map(_character, text)))  # two hyphens stay two


def _character(c: str) -> str:
    shown = c if c.isascii() or "À" <= c <= "ſ" else "?"
    return SPECIAL.get(c) or SYMBOLS.get(c) or shown


def numbers(text: str) -> str:
    """Our own numbers: real minus signs, powers of ten."""
    power = r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]\d+)"
    text = re.sub(power, lambda m: rf"${m[1]}\times 10^{{{int(m[2])}}}$", escape(text))
    return re.sub(r"(?<![\w{])-(?=[\d$])", "$-$", text)
