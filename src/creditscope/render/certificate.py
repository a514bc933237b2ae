"""A locality certificate as lines and as a figure."""

from __future__ import annotations

import io

from creditscope.measure.certificate import Certificate
from creditscope.render.charts import Cell, Matrix
from creditscope.render.numbers import printable

FORMATS = (".svg", ".pdf", ".png")
COUNTS = 1e-6
"""From this change on a cell is marked; the answers say what was judged."""


def certificate_lines(certificate: Certificate) -> list[str]:
    return [printable(line) for line in str(certificate).splitlines()]


def certificate_matrix(certificate: Certificate) -> Matrix:
    """Row: the block whose weights are perturbed; column: the block whose update is looked at."""
    names = [printable(name) for name in certificate.blocks]
    return Matrix(
        "locality",
        f"Locality: {certificate.label}",
        "relative change of the update of a block (column) when weights of a block (row) move in the null space of the batch; "
        "diagonal: of the first weight of a block, when those behind it move",
        [f"update of {name}" for name in names],
        [
            (f"weights of {name}", [_cell(value) for value in row])
            for name, row in zip(names, certificate.matrix, strict=True)
        ],
    )


def _cell(value: float | None) -> Cell:
    if value is None:
        return Cell("not tested", "open")
    return Cell(f"{value:.1g}", "bad" if value > COUNTS else "good")


def drawn(certificate: Certificate, suffix: str) -> bytes:
    """The matrix as the bytes of a file."""
    from creditscope.render.figures import UNDATED
    from creditscope.render.plots import plot

    buffer = io.BytesIO()
    kind = suffix.removeprefix(".")
    plot([certificate_matrix(certificate)]).savefig(buffer, format=kind, dpi=200, metadata=UNDATED[kind])
    return buffer.getvalue()
