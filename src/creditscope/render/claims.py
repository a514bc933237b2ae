"""A claim next to its audit, in words: what is over, what is not decided, and what nobody has checked."""

from __future__ import annotations

from xml.sax.saxutils import escape

from creditscope.board.claim import FILE
from creditscope.board.entry import Audit, Comparison, Entry
from creditscope.board.make import slug
from creditscope.render.numbers import mark, printable, share, signed, span_of
from creditscope.render.words import REACHES

AS_STATED = (
    "names, paper, code, licence, data, device and dates, and the numbers of a report from which no other follows "
    "(loss, medians, standard deviations)"
)


def accuracy_words(entry: Entry) -> str:
    """The claimed accuracy against the audited; "" where none is claimed."""
    return _words(entry.claim.claimed.accuracy, entry.accuracy, 100, "pp", 1, least=0.0)


def gamma_words(entry: Entry) -> str:
    """The claimed Γ against the audited; "" where none is claimed."""
    gamma = _words(entry.claim.claimed.gamma, entry.gamma, 1, "", 3, least=-1.0)
    return f"{gamma} ({entry.gamma.interval.kind})" if gamma and entry.gamma else gamma


def _words(claimed: float | None, found: Comparison | None, factor: float, unit: str, digits: int, least: float) -> str:
    """`least`: the smallest value that is possible."""
    if claimed is None or found is None:
        return "" if claimed is None else "not audited: the reports hold none"
    interval, n = found.interval, len(found.audited)
    networks = "one network" if n == 1 else f"{n} networks"
    difference = f"{signed(factor * found.over, digits)} {unit}".strip()
    reach = f"{difference}: {REACHES[found.reach].format(networks=networks)}"
    if interval.low < interval.high:
        reach += f", 95 % interval {span_of(interval.low, interval.high, least)}"
    return f"{reach}; above every audited network" if found.above_all and found.reach == "undecided" else reach


def renamed(entry: Entry, audit: Audit | None = None) -> str:
    """The method as the report of an audit (the current one) names it, where the claim has another name for it."""
    name = (audit or entry.current).reports[0].method_name
    return "" if not name or slug(name) == slug(entry.claim.method) else name


def marks(entry: Entry) -> list[str]:
    """One line for each claimed number that the audit does not bear out or cannot decide."""
    claimed, lines = entry.claim.claimed, []
    for name, value, found, words in (
        ("accuracy", claimed.accuracy, entry.accuracy, accuracy_words(entry)),
        ("Γ", claimed.gamma, entry.gamma, gamma_words(entry)),
    ):
        if value is not None and (found is None or found.reach in ("above", "undecided")):
            lines.append(f"claimed {name} {share(value)}, {words}")
    return lines


def not_checked(entry: Entry) -> str:
    """What nothing in the entry proves, and how one would find out."""
    check = f"creditscope claim check board/entries/{entry.claim.name} --retrain"
    how = f"`{check}` trains every network again" if entry.current.stated.spec else _recipe(entry)
    return f"As stated by its authors, not checked: {AS_STATED}. {how}."


def _recipe(entry: Entry) -> str:
    recipe = entry.current.stated.recipe
    return f"The recipe trains the network again: {recipe}" if recipe else f"{FILE} names no recipe"


# ---- the verdict on a claim and the version of the protocol, as a small SVG ------------------------------------------------


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
