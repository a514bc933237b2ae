"""The LaTeX table: complete, inert, and it compiles where there is a LaTeX."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from creditscope.render.latex import audit_latex, escape, numbers
from creditscope.studies.audit import audit

from .pages import HOSTILE, renamed, trained

ALLOWED = {
    "textbackslash", "textasciicircum", "textasciitilde", "textless", "textgreater", "textbar", "ldots",
    "Gamma", "rho", "lambda", "beta", "varepsilon", "eta", "Sigma", "Vert", "pm", "times", "cdot", "geq", "leq",
}  # fmt: skip


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    return audit(trained(tmp_path_factory.mktemp("runs")))


def test_table_has_a_row_per_group_and_its_conventions_in_the_caption(groups):
    text = audit_latex(groups)
    assert r"\documentclass" not in text
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(rows) == len(groups)
    assert all(row.count(" & ") == 7 for row in rows)
    caption = re.search(r"\\caption\{(.*)\}\n", text)[1]  # type: ignore[index]
    for words in ("Protocol three-check/1.1", "per-sample cosine", "divided by 128", r"95 \% interval"):
        assert words in caption


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


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
@pytest.mark.parametrize("hostile", [False, True])
def test_it_compiles(groups, tmp_path, hostile):
    made = [renamed(groups[0], method_name=text) for text in HOSTILE] if hostile else groups
    (tmp_path / "table.tex").write_text(audit_latex(made, standalone=True))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "root:" not in done.stdout


def test_many_rows_break_over_pages(groups):
    text = audit_latex([groups[0]] * 13)
    assert text.startswith("% needs \\usepackage{booktabs,longtable}\n")
    assert r"\begin{longtable}" in text
    assert r"\begin{table}" not in text
    assert text.count(r"\endhead") == 1
