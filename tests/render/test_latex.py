"""Text for LaTeX is inert, and numbers look like numbers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from creditscope.render.document import latex_escape, latex_numbers

from .pages import HOSTILE

ALLOWED = {
    "textbackslash", "textasciicircum", "textasciitilde", "textless", "textgreater", "textbar", "ldots",
    "Gamma", "rho", "lambda", "beta", "varepsilon", "eta", "Sigma", "Vert", "pm", "times", "cdot", "geq", "leq",
}  # fmt: skip
OURS = {
    "documentclass", "usepackage", "begin", "end", "section", "subsection", "item", "footnotesize", "setlength", "tabcolsep",
    "caption", "label", "toprule", "midrule", "endhead", "bottomrule", "raggedright", "par", "linewidth", "allowbreak", "surd",
    "Delta", "approx", "to",
}  # fmt: skip
"""What the documents themselves command."""
needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")


def assert_inert(tex: str) -> None:
    """Nothing in a document but our own commands."""
    assert set(re.findall(r"\\([A-Za-z]+)", tex)) <= ALLOWED | OURS
    assert tex.isascii()


def compiled(path: Path) -> str:
    """What pdflatex says of the file, which it must compile."""
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-draftmode", path.name]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, (path.name, done.stdout[-2000:])
    return done.stdout


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_has_no_command_in_it(text):
    escaped = latex_escape(text)
    assert set(re.findall(r"\\([A-Za-z]+)", escaped)) <= ALLOWED
    rest = re.sub(r"\\([A-Za-z]+|[{}$&#%_])", "", escaped)
    assert not re.search(r"[\\$&#%_^~\x00\n]", rest)
    assert rest.count("{") == rest.count("}")
    assert escaped.isascii()
    assert len(escaped) < 12_000


def test_numbers_have_minus_signs_and_powers_of_ten():
    assert latex_numbers("3.6e-06 to 5.7e-06") == r"$3.6\times 10^{-6}$ to $5.7\times 10^{-6}$"
    assert latex_numbers("matched -1.3 [-3.4, +0.7]") == r"matched $-$1.3 {[}$-$3.4, +0.7{]}"
    assert latex_numbers("1.7e+04") == r"$1.7\times 10^{4}$"
    assert latex_numbers("0.55 ± 0.01 (n=3)") == r"0.55 $\pm$ 0.01 (n=3)"
