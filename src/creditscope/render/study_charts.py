"""The figure of every study, described from the plain numbers that its analysis left (`StudyResult.figure`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.render import study_lines as lines
from creditscope.render.charts import Cell, Dots, Figure, Level, Matrix, Row
from creditscope.render.study_lines import About, finite
from creditscope.studies.result import StudyResult

KINDS = {
    "accept": "good", "pass": "good", "reject": "bad", "fail": "bad",
    "not decidable": "open", "inconsistent": "open", "inconclusive": "open", "incomplete": "open", "mixed": "open",
}  # fmt: skip
MARKS = {"good": "✓ ", "bad": "✗ ", "open": "? ", "plain": ""}


def study_charts(result: StudyResult) -> list[Figure]:
    """The panels of a study's figure; empty where there is nothing to draw."""
    builder = BUILDERS.get(result.name)
    about = About(result.name, result.convention[:240])
    return [f for f in builder(result.figure, about) if _drawable(f)] if builder else []


def _drawable(figure: Figure) -> bool:
    if isinstance(figure, Dots):
        return any(finite(v) for row in figure.rows for _, v in (*row.marks, *row.hollow))
    return bool(figure.rows) if isinstance(figure, Matrix) else bool(figure.series)


def _seeds(values: Sequence[Any]) -> list[tuple[str, float]]:
    return [(f"run {k}" if len(values) > 1 else "run", float(v)) for k, v in enumerate(values, 1) if v is not None]


def _audited(name: Callable[[dict[str, Any]], str]) -> Callable[[dict[str, Any], About], list[Figure]]:
    """Accuracy, Γ or deep cosine, margin, growth and reference of audited groups, one row per group."""

    def build(figure: dict[str, Any], about: About) -> list[Figure]:
        limits, points = DiagnosticThresholds(), figure["points"]
        floor = limits.g_norm_floor

        def dots(key: str, title: str, x: str, rows: list[Row], **more: Any) -> Dots:
            return Dots(f"{about.name}-{key}", title, about.convention, x, rows, row_name="", **more)

        def rows(key: str) -> list[Row]:
            return [Row(name(p), _seeds(p[key])) for p in points]

        made: list[Figure] = [dots("accuracy", "Accuracy, one mark per seed", "accuracy", rows("accuracy"), zero=False)]
        if points and "gamma" in points[0]:
            made.append(dots("gamma", "Headline Γ", "Γ", rows("gamma")))
        else:
            deep = [Row(name(p), [("mean", p["deep_cosine"])] if finite(p["deep_cosine"]) else ()) for p in points]
            made.append(dots("cosine", "Deep cosine, mean over seeds", "deep cosine", deep))
        margins = [
            Row(
                name(p),
                [("mean over seeds", p["margin_pp"])] if finite(p["margin_pp"]) else (),
                None if p.get("margin_interval_pp") is None else tuple(p["margin_interval_pp"]),
            )
            for p in points
        ]
        needed = limits.frozen_acc_margin_pp
        level = Level(needed, f"D3 threshold {needed:g} pp")
        made.append(dots("margin", "Margin to matched null (bar: 95 % interval)", "pp", margins, levels=(level,)))
        growth = Level(limits.h_norm_explosion_ratio, f"D1 {limits.h_norm_explosion_ratio:g}")
        made.append(dots("growth", "Growth", "growth", rows("growth"), log=True, levels=(growth,)))
        made.append(
            dots(
                "reference",
                "‖g_L‖ / 128",
                "‖g_L‖ / 128",
                rows("reference"),
                log=True,
                levels=(Level(floor, f"floor of D2 {floor:.0e}".replace("e-0", "e-")),),
            )
        )
        return made

    return build


def _label(point: dict[str, Any]) -> str:
    return str(point["label"])


def _architecture(point: dict[str, Any]) -> str:
    return f"{point['architecture']} {point['label']}"


def _cell(words: str, kind: str) -> Cell:
    return Cell(MARKS[kind] + words, kind)


def _ablation(figure: dict[str, Any], about: About) -> list[Figure]:
    columns = list(figure["columns"])
    told = [
        (label, [_cell(str(d[c]), KINDS.get(str(d[c]), "plain")) for c in columns])
        for label, d in figure["rows"].items()
    ]
    return [Matrix(f"{about.name}-a", "What each reporting strategy decides", about.convention, columns, told)]


def _counted(about: About, key: str, title: str, counts: dict[str, dict[str, int]]) -> Matrix:
    columns = [s for s in KINDS if any(s in c for c in counts.values())]
    rows = []
    for label, mine in counts.items():
        total = sum(mine.values())
        rows.append(
            (
                label,
                [
                    _cell(f"{mine[c]} of {total}", KINDS[c]) if mine.get(c) else Cell(f"0 of {total}", "plain")
                    for c in columns
                ],
            )
        )
    return Matrix(f"{about.name}-{key}", title, about.convention, columns, rows)


def _thresholds(figure: dict[str, Any], about: About) -> list[Figure]:
    n = math.prod(len(figure[k]) for k in ("growth", "floor", "margin_pp"))
    made: list[Figure] = [_counted(about, "counts", f"Verdicts over {n} settings of the thresholds", figure["counts"])]
    gaps = [Row(name, [("separation", float(v))]) for name, v in figure["gap"].items() if finite(v) and v > 0]
    level = Level(1.0, "1: they overlap below")
    made.append(
        Dots(
            f"{about.name}-gap",
            "Separation of networks with and without Mode 1",
            about.convention,
            "times",
            gaps,
            levels=(level,),
            log=True,
            row_name="",
        )
    )
    return made


def _shares(figure: dict[str, Any], about: About) -> list[Figure]:
    methods = figure["methods"]
    rows = [
        Row(label, [(f"{m['fail']} of {m['n']} seeds", m["fail"] / m["n"])], (m["low"], m["high"]))
        for label, m in methods.items()
        if m["n"]
    ]
    needed = DiagnosticThresholds().frozen_acc_margin_pp
    margin = Dots(
        f"{about.name}-margin",
        "Margin to the matched null, one mark per seed",
        about.convention,
        "pp",
        [Row(label, [(f"seed {seed}", pp) for seed, pp in m["margins"] if finite(pp)]) for label, m in methods.items()],
        levels=(Level(needed, f"D3 threshold {needed:g} pp"),),
        row_name="",
    )
    counts = {label: {s: m["verdicts"].count(s) for s in dict.fromkeys(m["verdicts"])} for label, m in methods.items()}
    share = Dots(
        f"{about.name}-share",
        "Share of seeds that fail (bar: 95 % Clopper-Pearson)",
        about.convention,
        "share",
        rows,
        row_name="",
    )
    return [margin, share, _counted(about, "verdicts", "Verdicts over all seeds, none selected", counts)]


def _fresh_b(figure: dict[str, Any], about: About) -> list[Figure]:
    rows = [
        Row(
            f"{p['label']} s{p['seed']}",
            [("trained", p["trained"])],
            hollow=[(f"draw {k}", v) for k, v in enumerate(p["draws"], 1) if v is not None],
        )
        for p in figure["points"]
    ]
    return [
        Dots(
            f"{about.name}-strips",
            "Deep cosine: trained feedback (filled) and redrawn feedback (open)",
            about.convention,
            "deep mean cosine",
            rows,
            row_name="",
            marks="trained feedback",
            hollow="redrawn feedback",
        )
    ]


BUILDERS: dict[str, Callable[[dict[str, Any], About], Sequence[Figure]]] = {
    "audit": _audited(_label),
    "ablation": _ablation,
    "temporal": lines.temporal,
    "early": lines.early,
    "triangulation": lines.triangulation,
    "penalty": lines.penalty,
    "capacity": lines.capacity,
    "functional": lines.functional,
    "freshb": _fresh_b,
    "architectures": _audited(_architecture),
    "cifar100": _audited(_label),
    "depth": lines.depth,
    "ladder": lines.ladder,
    "random-target": lines.random_target,
    "thresholds": _thresholds,
    "seeds": _shares,
    "credit-norm": _audited(_label),
    "recipe": _audited(_label),
    "rescue": _audited(_label),
    "ep-relaxation": _audited(_label),
}
