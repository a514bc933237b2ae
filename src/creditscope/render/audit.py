"""The audit table as text and Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group as Together
from rich.table import Table
from rich.text import Text

from creditscope.measure.facts import DepthMargin
from creditscope.render.markdown import escape, table
from creditscope.render.numbers import STYLES, accuracy, num, signed
from creditscope.studies.audit import Group

HEADER = (
    "method",
    "accuracy",
    "Γ",
    "accuracy + Γ would claim",
    "growth",
    "‖g_L‖/128",
    "margin to matched null, pp",
    "to bp null, pp",
    "the protocol finds",
)


def span(values: Sequence[float]) -> str:
    """Smallest to largest over seeds."""
    if not values:
        return "–"
    low, high = num(min(values), 2), num(max(values), 2)
    return low if low == high else f"{low} to {high}"


def mean_gamma(group: Group) -> str:
    values = group.values("gamma")
    if not values:
        return "–"
    return signed(sum(values) / len(values), 2) + (
        " (withheld)" if any(r.verdict.gamma_withheld for r in group.reports) else ""
    )


def margin(group: Group, kind: str) -> str:
    depth = group.reports[0].facts.depth
    found: DepthMargin | None = next((m for m in depth.margins if m.null == kind), None) if depth else None
    if found is None:
        return "–"
    interval = f" [{signed(found.low_pp, 1)}, {signed(found.high_pp, 1)}]" if found.low_pp is not None else ""
    return signed(found.margin_pp, 1) + interval


def cells(group: Group) -> list[str]:
    return [
        group.label,
        accuracy(group.accuracies),
        mean_gamma(group),
        group.claim,
        span(group.values("growth")),
        span(group.values("reference")),
        margin(group, "matched" if group.spec.method != "bp" else "bp"),
        margin(group, "bp"),
        group.finding,
    ]


def caption(groups: Sequence[Group]) -> str:
    """The convention of every number in the table."""
    c, protocol = groups[0].reports[0].facts.convention, groups[0].reports[0].protocol
    seeds = ", ".join(map(str, groups[0].seeds))
    depth = groups[0].reports[0].facts.depth
    kind = depth.margins[0].interval if depth and depth.margins else "no null"
    return (
        f"Protocol {protocol}. Seeds {seeds}. Accuracy: mean ± sample standard deviation over seeds, final checkpoint. "
        f"Γ: mean over layers of the mean per-sample cosine ({c.cosine_dtype}), mean over seeds. growth and ‖g_L‖: smallest to "
        f"largest over seeds; ‖g_L‖ is the mean per-sample norm divided by 128 (batch-mean convention). {c.n_samples} "
        f"evaluation samples, {c.dtype}. Margins in percentage points with 95 % interval ({kind})."
    )


def audit_renderable(groups: Sequence[Group], title: str) -> Together:
    grid = Table(title=title, title_justify="left", title_style="bold", show_lines=True)
    for k, name in enumerate(HEADER):
        grid.add_column(name, min_width=10 if k in (0, 3) else None, overflow="fold")
    for group in groups:
        row: list[Text | str] = list(cells(group))
        statuses = {r.status for r in group.reports}
        style = STYLES.get("fail" if "fail" in statuses else next(iter(statuses)), "")
        grid.add_row(*row[:-1], Text(str(row[-1]), style=style))
    return Together(grid, Text(caption(groups), style="dim"))


def audit_markdown(groups: Sequence[Group], title: str) -> str:
    rows = [[escape(cell) for cell in cells(group)] for group in groups]
    return "\n".join(
        [f"## {escape(title)}", "", *table(list(HEADER), rows), "", escape(caption(groups)).replace("\\", ""), ""]
    )
