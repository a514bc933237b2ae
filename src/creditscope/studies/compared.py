"""One table for the studies that compare audited groups along one axis (architecture, depth, trained blocks, norm)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from creditscope.render.numbers import signed
from creditscope.studies.audit import Group, convention, margin_interval, margin_pp, margin_text
from creditscope.studies.published import Published
from creditscope.studies.result import StudyResult, beside, deep_cosine, known, mean, pm, span


def deep(group: Group) -> float | None:
    values = known(deep_cosine(r.facts) for r in group.reports)
    return mean(values) if values else None


def compared(
    name: str,
    question: str,
    groups: Sequence[Group],
    axis: str,
    at: Callable[[Group], str],
    published: Callable[[Group], Published | None],
    conclusion: str,
) -> StudyResult:
    """A row per group: its place on the axis, accuracy next to the published one, scale, reference, margin, verdict."""
    rows = [
        [
            at(g),
            g.label,
            str(len(g.seeds)),
            pm(g.accuracies),
            *beside(published(g), mean(g.accuracies)),
            signed(deep(g)),
            span(g.values("growth")),
            span(g.values("reference")),
            margin_text(g, "matched"),
            margin_text(g, "bp"),
            g.finding,
        ]
        for g in groups
    ]
    header = [
        axis,
        "method",
        "n",
        "accuracy",
        "published",
        "difference",
        "deep cosine",
        "growth",
        "‖g_L‖/128",
        "margin to matched null (pp)",
        "to bp null (pp)",
        "the protocol finds",
    ]
    points = [
        {
            axis: at(g),
            "label": g.label,
            "accuracy": list(g.accuracies),
            "deep_cosine": deep(g),
            "growth": g.values("growth"),
            "reference": g.values("reference"),
            "margin_pp": margin_pp(g),
            "margin_interval_pp": margin_interval(g),
        }
        for g in groups
    ]
    figure = {"kind": "lines", "x": axis, "points": points}
    return StudyResult(name, question, header, rows, figure, conclusion, convention(groups))
