"""A card for a notebook: what was found, a table and a figure, in the notebook's own colours, whether it is light or dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from creditscope.render.document import Section
from creditscope.render.numbers import mark, shortened

if TYPE_CHECKING:
    from creditscope.render.plots import Drawing

LONGEST = 600
STYLE = """
.cs-card{max-width:60em;line-height:1.4;color:inherit}
.cs-card table{border-collapse:collapse;margin:.5em 0}
.cs-card th,.cs-card td{text-align:left !important;vertical-align:top;padding:2px 10px 2px 0;background:none;color:inherit}
.cs-card td{border-bottom:1px solid rgba(127,127,127,.35)}
.cs-card .cs-status{font-weight:600;border:1px solid currentColor;border-radius:4px;padding:0 6px}
.cs-card svg{max-width:100%;height:auto;display:block;color:inherit}
.cs-card .drawing text:not([class]),.cs-card .f6,.cs-card .fgrey{fill:currentColor}
.cs-card .l6,.cs-card .lgrey,.cs-card .lgrid{stroke:currentColor}
.cs-card .lgrid{stroke-opacity:.18}
.cs-card .frule{fill:#d1242f}.cs-card .lrule{stroke:#d1242f}
.cs-card .fgood{fill:rgba(0,114,178,.2)}.cs-card .fbad{fill:rgba(213,94,0,.3)}
.cs-card .fopen,.cs-card .fplain{fill:rgba(127,127,127,.15)}
""".strip()


def card(title: str, status: str, lines: Sequence[str], section: Section | None, drawing: Drawing | None) -> str:
    """Nothing in it is markup but ours; text takes the colour of the page around it."""
    badge = f' <span class="cs-status">{_text(mark(status))}</span>' if status else ""
    parts = [f"<p><strong>{_text(title)}</strong>{badge}</p>", *(f"<p>{_text(line)}</p>" for line in lines if line)]
    if section is not None:
        head = "".join(f"<th>{_text(h)}</th>" for h in section.header)
        rows = "".join("<tr>" + "".join(f"<td>{_text(c)}</td>" for c in row) + "</tr>" for row in section.rows)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
    if drawing is not None:
        from creditscope.render.svg import svg  # with matplotlib: only to draw

        note = f"<p>{_text(drawing.note)}</p>" if drawing.note else ""
        parts += [str(svg(drawing)), note]
    return f'<div class="cs-card"><style>{STYLE}</style>{"".join(parts)}</div>'


def _text(value: str) -> str:
    return escape(shortened(value, LONGEST))
