"""A badge: the verdict on a claim and the version of the protocol, as a small SVG."""

from __future__ import annotations

from xml.sax.saxutils import escape

from creditscope.board.entry import Audit
from creditscope.render.numbers import mark, printable

COLOURS = {"pass": "#0a5f33", "fail": "#9b1420"}
OPEN = "#6d4300"
LETTER = 6.6
"""Width of a letter at 11 px, in the widest of the fonts that a browser may take."""


def badge(audit: Audit) -> str:
    left, right = f"creditscope {audit.stated.protocol}", mark(audit.status)
    a, b = (round(len(t) * LETTER + 14) for t in (left, right))
    words = [escape(printable(t)) for t in (left, right)]
    title = escape(printable(f"{left}: {audit.line}"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{a + b}" height="20" role="img" aria-label="{words[0]}: {words[1]}">'
        f"<title>{title}</title>"
        f'<rect width="{a + b}" height="20" rx="3" fill="#3b4651"/>'
        f'<path d="M{a} 0h{b - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{b - 3}z" fill="{COLOURS.get(audit.status, OPEN)}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{a / 2:g}" y="14">{words[0]}</text><text x="{a + b / 2:g}" y="14">{words[1]}</text></g></svg>\n'
    )
