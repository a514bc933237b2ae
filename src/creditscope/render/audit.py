"""The audit table as text and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import HORIZONTALS
from rich.console import Group as Together
from rich.text import Text

from creditscope.measure.facts import DepthMargin
from creditscope.protocol.wording import over_all_layers
from creditscope.render.markdown import CAPTION, escape, table
from creditscope.render.numbers import STYLES, accuracy, num, printable_lines, signed
from creditscope.render.sheet import Sheet
from creditscope.studies.audit import AuditRow, Group

HEADER = (
    "method",
    "accuracy",
    "Γ",
    "accuracy + Γ would claim",
    "growth",
    "‖g_L‖/128",
    "margin to null (pp)",
    "the protocol finds",
)
WIDTHS = (9, 8, 5, 11, 8, 9, 27, 17)


def span(values: Sequence[float]) -> str:
    """Smallest to largest over seeds."""
    if not values:
        return "–"
    low, high = num(min(values), 2), num(max(values), 2)
    return low if low == high else f"{low} to {high}"


def mean_gamma(group: AuditRow) -> str:
    values = group.values("gamma")
    if not values:
        return "–"
    behind = {r.facts.alignment.layers_behind for r in group.reports if r.facts.alignment}
    value, others = sum(values) / len(values), group.values("gamma_all_layers")
    both = over_all_layers(value, sum(others) / len(others), 2) if others else ""
    return signed(value, 2) + ("; ".join(sorted(behind - {""}))) + both


def margins(group: AuditRow) -> str:
    """One line per null: margin and interval."""
    return "\n".join(f"{m.null} {_margin(m)}" for m in group.margins) or "–"


def _margin(m: DepthMargin) -> str:
    interval = f" [{signed(m.low_pp, 1)}, {signed(m.high_pp, 1)}]" if m.low_pp is not None else ""
    return signed(m.margin_pp, 1) + interval


def spread(values: Sequence[float]) -> str:
    """Mean ± sample standard deviation (one value: the value)."""
    return accuracy(tuple(values)).split(" (")[0]


def cells(group: AuditRow) -> list[str]:
    return [
        group.label,
        spread(group.accuracies),
        mean_gamma(group),
        group.claim,
        span(group.values("growth")),
        span(group.values("reference")),
        margins(group),
        group.finding,
    ]


def caption(groups: Sequence[AuditRow]) -> str:
    """The convention of every number in the table."""
    c = groups[0].reports[0].facts.convention
    seeds = ", ".join(map(str, sorted({seed for g in groups if isinstance(g, Group) for seed in g.seeds})))
    margins = [m for g in groups for m in g.margins]
    kind = "; ".join(dict.fromkeys(m.interval for m in margins)) or "no null"
    return (
        f"Protocol {protocols(groups)}. {f'Seeds {seeds}. ' if seeds else ''}In brackets: credit_norm; credit_site is input "
        f"where no site is named. Accuracy: mean ± sample standard deviation over seeds, final checkpoint. "
        "Γ: mean over the measurable layers that count (whose credit trains something) of the mean per-sample cosine "
        f"({c.cosine_dtype}), mean over seeds; "
        '"credit aligned" means Γ > 0, however small. growth and '
        "‖g_L‖: smallest to largest over seeds; ‖g_L‖ is the mean per-sample norm divided by 128 (batch-mean convention). "
        f"{c.n_samples} evaluation samples, {c.dtype}. Margins in percentage points with 95 % interval ({kind})."
    )


def protocols(groups: Sequence[AuditRow]) -> str:
    """The policy that judged; where a given report was judged by another, which."""
    by: dict[str, list[str]] = {}
    for group in groups:
        by.setdefault(group.reports[0].protocol, []).append(group.label)
    first, *others = by
    return "; ".join([first, *(f"{policy} ({', '.join(by[policy])}, as it was given)" for policy in others)])


def audit_renderable(groups: Sequence[AuditRow], title: str) -> Together:
    rows: list[list[str | Text]] = []
    for group in groups:
        *row, finding = map(printable_lines, cells(group))
        rows.append([*row, Text(finding, style=STYLES.get(group.status, ""))])
    look: dict[str, Any] = {
        "title": title,
        "title_justify": "left",
        "title_style": "bold",
        "show_lines": True,
        "box": HORIZONTALS,
    }
    grid = Sheet(HEADER, rows, preferred=WIDTHS, padding=(0, 1), **look)
    return Together(grid, Text(caption(groups), style="dim"))


def audit_markdown(groups: Sequence[AuditRow], title: str) -> str:
    rows = [["<br>".join(map(escape, cell.splitlines())) for cell in cells(group)] for group in groups]
    return "\n".join([f"## {escape(title)}", "", *table(list(HEADER), rows), "", escape(caption(groups), CAPTION), ""])
