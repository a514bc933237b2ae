"""A locality certificate: as text, Markdown, a figure, a notebook card and a data frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from creditscope.measure.certificate import Answer, Certificate
from creditscope.render.card import card
from creditscope.render.charts import Cell as Box
from creditscope.render.charts import Matrix
from creditscope.render.document import Section, to_markdown
from creditscope.render.markdown import LONGEST
from creditscope.render.numbers import printable
from creditscope.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from creditscope.render.plots import Drawing

COUNTS = 1e-6
"""From this change on a cell is marked; the answers say what was judged."""
DISTANCES = {"backpropagation": "relative difference", "head": "1 - cosine"}
"""Questions whose number is a distance to the exact gradient, not a change: which one."""
HEADER = ("question", "answer", "change", "floor", "detail")


def text(certificate: Certificate) -> str:
    return "\n".join(certificate_lines(certificate))


def markdown(certificate: Certificate) -> str:
    return to_markdown([certificate_section(certificate)], LONGEST)


def html(certificate: Certificate) -> str:
    section = certificate_section(certificate)
    return card(section.title, "", section.lines, section, plot(certificate))


def plot(certificate: Certificate) -> Drawing:
    """Row: the block whose weights are perturbed; column: the block whose update is looked at."""
    from creditscope.render.plots import figure

    return figure([certificate_matrix(certificate)])


def frame(certificate: Certificate) -> Any:
    """One row per question."""
    answers = certificate.answers.items()
    rows = [Row({"name": Cell(key), **{n: Cell(getattr(a, n)) for n in HEADER}}) for key, a in answers]
    return Table("certificate", certificate.label, tuple(map(Column, ("name", *HEADER))), tuple(rows)).to_frame()


def certificate_lines(certificate: Certificate) -> list[str]:
    """The label, its reason, one line per question, the notes."""
    lines = [*_why(certificate), *(_line(certificate, name) for name in certificate.answers), *_notes(certificate)]
    return [printable(line) for line in (certificate_title(certificate), *(f"  {line}" for line in lines))]


def certificate_title(certificate: Certificate) -> str:
    """The label, which names its scope; one line."""
    return f"LOCALITY: {certificate.label}"


def _why(certificate: Certificate) -> list[str]:
    return [f"why: {certificate.reason}"] if certificate.reason else []


def _notes(certificate: Certificate) -> list[str]:
    mode = certificate.conditions.get("mode")
    tested = [f"tested in {mode} mode, as the model was given"] if mode else []
    return [f"note: {note}" for note in (*tested, *certificate.notes)]


def certificate_section(certificate: Certificate) -> Section:
    rows = []
    for a in certificate.answers.values():
        change, floor = ("–" if value is None else f"{value:.2g}" for value in (a.change, a.floor))
        rows.append([a.question, a.answer, change, floor, a.detail or "–"])
    lines = [*_why(certificate), *_notes(certificate)]
    return Section(certificate_title(certificate), HEADER, rows, lines, empty="nothing to add")


def _line(certificate: Certificate, name: str) -> str:
    answer = certificate.answers[name]
    number = f" [{_judged_number(name, answer)}]" if answer.change is not None else ""
    return f"{answer.question}: {answer.answer}{number}{f' ({answer.detail})' if answer.detail else ''}"


def _judged_number(name: str, answer: Answer) -> str:
    """The number behind an answer, with the bound that decided it; with the floor where none was stored."""
    if answer.bound is None:
        return f"{answer.change:.2g}" + ("" if answer.floor is None else f", floor {answer.floor:.2g}")
    if name in DISTANCES:
        return f"{DISTANCES[name]} {answer.change:.2g}, equal up to {answer.bound:.2g}"
    return f"change {answer.change:.2g}, counts from {answer.bound:.2g}"


def certificate_matrix(certificate: Certificate) -> Matrix:
    names = [printable(name) for name in certificate.blocks]
    convention = (
        "relative change of the update of a block (column) when weights of a block (row) move in the null space of the batch; "
        "diagonal: of the first weight of a block, when those behind it move"
    )
    rows = [(f"weights of {n}", [*map(_box, row)]) for n, row in zip(names, certificate.matrix, strict=True)]
    return Matrix("locality", f"Locality: {certificate.label}", convention, [f"update of {n}" for n in names], rows)


def _box(value: float | None) -> Box:
    if value is None:
        return Box("not tested", "open")
    return Box(f"{value:.1g}", "bad" if value > COUNTS else "good")
