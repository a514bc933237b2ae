"""Text for LaTeX is inert, and numbers look like numbers."""

from __future__ import annotations

import re

import pytest

from creditscope.render.latex import escape, numbers

from .pages import HOSTILE

ALLOWED = {
    "textbackslash", "textasciicircum", "textasciitilde", "textless", "textgreater", "textbar", "ldots",
    "Gamma", "rho", "lambda", "beta", "varepsilon", "eta", "Sigma", "Vert", "pm", "times", "cdot", "geq", "leq",
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_has_no_command_in_it(text):
    escaped = escape(text)
    assert set(re.findall(r"\\([A-Za-z]+)", escaped)) <= ALLOWED
    rest = re.sub(r"\\([A-Za-z]+|[{}$&#%_])", "", escaped)
    assert not re.search(r"[\\$&#%_^~\x00\n]", rest)
    assert rest.count("{") == rest.count("}")
    assert escaped.isascii()
    assert len(escaped) < 12_000


def test_numbers_have_minus_signs_and_powers_of_ten():
    assert numbers("3.6e-06 to 5.7e-06") == r"$3.6\times 10^{-6}$ to $5.7\times 10^{-6}$"
    assert numbers("matched -1.3 [-3.4, +0.7]") == r"matched $-$1.3 {[}$-$3.4, +0.7{]}"
    assert numbers("1.7e+04") == r"$1.7\times 10^{4}$"
    assert numbers("0.55 ± 0.01 (n=3)") == r"0.55 $\pm$ 0.01 (n=3)"
