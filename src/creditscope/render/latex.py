"""Text for LaTeX: nothing in it that the reader's text could command."""

from __future__ import annotations

import re

from creditscope.render.numbers import printable

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
