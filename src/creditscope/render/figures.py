"""Figures for papers with matplotlib: SVG, PDF and PNG, text as text, colours and markers that do without each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.errors import CreditscopeError
from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.render.charts import Figure as Described
from creditscope.render.numbers import printable
from creditscope.render.plots import COLOURS, MARKERS, SETTINGS, legend, log_scale, plot, style
from creditscope.runs.groups import AuditRow, Group

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "pdf", "png")
COSINE_EPS = 1e-8
LONGEST = 24
MOST = 12
"""Groups in one figure."""
UNDATED: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


def write_figures(
    groups: Sequence[Group],
    directory: Path,
    described: Mapping[str, Sequence[Described]] | None = None,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """audit, layers and temporal of the groups, and the described figures (file name -> panels), in every format.

    Networks of different shape or task get figures of their own. Returns the paths that were written.
    """
    import matplotlib

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CreditscopeError(f"cannot make {directory}: {error.strerror or error}") from error
    drawings: dict[str, Callable[[Sequence[Group]], Figure]] = {
        "audit": audit_figure,
        "layers": layers_figure,
        "temporal": temporal_figure,
    }
    written: list[Path] = []
    settings: Any = SETTINGS
    with matplotlib.rc_context(settings):
        for suffix, found in alike(groups).items():
            for name, drawing in drawings.items():
                written += _save(drawing(found), directory, f"{name}{suffix}", formats)
        for name, panels in (described or {}).items():
            if panels:
                written += _save(plot(panels), directory, name, formats)
    return written


def _save(figure: Figure, directory: Path, name: str, formats: Sequence[str]) -> list[Path]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    written = []
    for suffix in formats:
        path = directory / f"{name}.{suffix}"
        try:
            figure.savefig(path, format=suffix, dpi=200, metadata=UNDATED[suffix])
        except OSError as error:
            raise CreditscopeError(f"cannot write {path}: {error.strerror or error}") from error
        written.append(path)
    return written


def alike(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups that fit one figure, by the end of its file name: same task, shape and length, at most a dozen."""
    found: dict[str, list[Group]] = {}
    for g in groups:
        s = g.spec
        found.setdefault(f"-{s.dataset}-{s.arch}-d{s.width}-L{s.depth}-{s.epochs}epochs", []).append(g)
    if len(groups) <= MOST and len({(g.spec.dataset, g.spec.arch, g.spec.depth) for g in groups}) == 1:
        return {"": list(groups)} if groups else {}
    parts = {}
    for name, same in found.items():
        for k in range(0, len(same), MOST):
            parts[name if len(same) <= MOST else f"{name}-{k // MOST + 1}"] = same[k : k + MOST]
    return parts


TOLD = {
    "arch": "{}",
    "dataset": "{}",
    "terminal_norm": "norm {}",
    "depth": "L={}",
    "width": "d={}",
    "epochs": "{} epochs",
    "checkpoint_epochs": "kept {}",
}
"""What can tell two groups of one method apart, and how it is written."""


def names(rows: Sequence[AuditRow], longest: int = LONGEST) -> list[str]:
    """Labels that tell the rows apart: the method and, where that is not enough, what differs between those of its name.

    A long label is cut before what tells it apart.
    """
    made = []
    groups = [row for row in rows if isinstance(row, Group)]
    for row in rows:
        suffix = ""
        if isinstance(row, Group):
            needed = _needed([g for g in groups if g.label == row.label])
            if row.spec.arch != groups[0].spec.arch and "arch" not in needed:
                needed = ["arch", *needed]
            suffix = "".join(f" {TOLD[n].format(getattr(row.spec, n))}" for n in needed)
        elif any(other.label == row.label for other in rows if other is not row):
            suffix = " (report)"
        name, room = printable(row.label), max(4, longest - len(suffix))
        made.append((name if len(name) <= room else name[: room - 1] + "…") + suffix)
    return made


def _needed(groups: Sequence[Group]) -> list[str]:
    """The architecture if it differs, then what tells most apart, one setting after the other, until all are."""

    def parts(settings: Sequence[str]) -> int:
        return len({tuple(getattr(g.spec, n) for n in settings) for g in groups})

    chosen = ["arch"] if parts(["arch"]) > 1 else []
    while parts(chosen) < len(groups):
        best = max(TOLD, key=lambda n: parts([*chosen, n]))
        if parts([*chosen, best]) == parts(chosen):
            break  # nothing that is listed tells them apart
        chosen.append(best)
    return [n for n in TOLD if n in chosen]


def audit_figure(groups: Sequence[Group]) -> Figure:
    """Accuracy with its null, Γ, and margin with its interval; one line per method, one dot per seed."""
    figure, (left, middle, right) = _panels(height=1.1 + 0.28 * len(groups), sharey=True)
    limit = groups[0].reports[0].checks["D3"].threshold
    labelled: set[str] = set()

    def once(label: str) -> str:
        new = "" if label in labelled else label
        labelled.add(label)
        return new or "_nolegend_"

    for k, group in enumerate(groups):
        left.plot(
            group.accuracies, [k] * len(group.seeds), "o", color=COLOURS[0], ms=4, label=once("network, one per seed")
        )
        gammas = [v for v in group.values("gamma") if math.isfinite(v)]
        middle.plot(gammas, [k] * len(gammas), "o", color=COLOURS[0], ms=4)
        depth = group.reports[0].facts.depth
        for m in depth.margins if depth else ():
            if group.spec.method == "bp" and m.null != "bp":
                continue  # the same null
            bp = m.null == "bp"
            colour, marker, shift = (COLOURS[2], "s", 0.16) if bp else (COLOURS[1], "D", -0.16)
            label = once(f"{m.null} null")
            left.plot([m.null_accuracy], [k + shift], marker, ms=4, mfc="none", color=colour)
            error = None
            if m.low_pp is not None and m.high_pp is not None:
                error = [[m.margin_pp - m.low_pp], [m.high_pp - m.margin_pp]]
            right.errorbar(
                [m.margin_pp], [k + shift], xerr=error, fmt=marker, color=colour, ms=4, capsize=2, lw=1, label=label
            )
    right.axvline(limit, color="0.3", ls="--", lw=0.8, label=f"threshold of D3, {limit:g} pp")
    for axes in (middle, right):
        axes.axvline(0, color="0.75", lw=0.8, zorder=0)
    left.set_yticks(range(len(groups)), names(groups))
    left.set_ylim(len(groups) - 0.5, -0.5)
    for axes, title in zip((left, middle, right), ("accuracy", "headline Γ", "margin to null (pp)"), strict=True):
        axes.set_xlabel(title)
        axes.tick_params(axis="y", length=0)
    legend(figure, (left, right))
    return figure


def layers_figure(groups: Sequence[Group]) -> Figure:
    """‖h_l‖, ‖g_l‖ / 128 with the floor and the eps of a usual cosine, and cos(a_l, g_l), over layers; mean over seeds."""
    figure, (left, middle, right) = _panels(height=2.9)
    for k, (group, name) in enumerate(zip(groups, names(groups), strict=True)):
        facts = [r.facts for r in group.reports]
        look = style(k)
        left.plot(_mean([f.scale.mean for f in facts], True), label=name, **look)
        middle.plot(_mean([f.reference.batch_mean_128 for f in facts], True), **look)
        cosines = [f.alignment.mean for f in facts if f.alignment]
        if cosines:
            right.plot(_mean(cosines), **look)
    floor = DiagnosticThresholds().floor_for(groups[0].reports[0].facts.convention.dtype)
    middle.axhline(floor, color="0.3", ls="--", lw=0.8, label=f"floor of D2, {floor:g}")
    middle.axhline(COSINE_EPS, color="0.3", ls=":", lw=0.8, label="cosine eps, 1e-08")
    right.axhline(0, color="0.75", lw=0.8, zorder=0)
    for axes, title in zip((left, middle, right), ("mean ‖h_l‖", "‖g_l‖ / 128", "cos(a_l, g_l)"), strict=True):
        axes.set_title(title)
        axes.set_xlabel("layer l")
        axes.xaxis.get_major_locator().set_params(integer=True)
    for axes in (left, middle):
        log_scale(axes)
    legend(figure, (left, middle))
    return figure


def temporal_figure(groups: Sequence[Group]) -> Figure:
    """Accuracy, growth and ‖g_L‖ / 128 over epochs, mean over seeds; large open marks: a check first fires (median seed)."""
    figure, (left, middle, right) = _panels(height=2.9)
    limits = DiagnosticThresholds()
    for k, (group, name) in enumerate(zip(groups, names(groups), strict=True)):
        runs = [b.trajectory for b in group.bundles]
        epochs = [int(line["epoch"]) for line in min(runs, key=len)]
        look = {**style(k), "markevery": (k % 3, max(1, len(epochs) // 6))}
        curves = {
            left: _mean([[float(line["accuracy"]) for line in run] for run in runs]),
            middle: _mean([[float(line["growth"]) for line in run] for run in runs], True),
            right: _mean([[float(line["g_per_sample"][-1]) / 128 for line in run] for run in runs], True),
        }
        for axes, curve in curves.items():
            axes.plot(epochs, curve, label=name if axes is left else "_nolegend_", **look)
        for axes, check in ((middle, "D1"), (right, "D2")):
            first = [next((int(x["epoch"]) for x in run if check in x.get("fired", ())), None) for run in runs]
            fired = sorted(epoch for epoch in first if epoch is not None)
            if fired and fired[len(fired) // 2] in epochs:
                at = epochs.index(fired[len(fired) // 2])
                marker = MARKERS[k % len(MARKERS)]
                axes.plot([epochs[at]], [curves[axes][at]], marker, ms=9, mfc="none", color=look["color"])
    middle.axhline(limits.h_norm_explosion_ratio, color="0.3", ls="-.", lw=0.8, label="threshold of D1, 50")
    floor = limits.floor_for(groups[0].reports[0].facts.convention.dtype)
    right.axhline(floor, color="0.3", ls="--", lw=0.8, label=f"floor of D2, {floor:g}")
    for axes, title in zip(
        (left, middle, right),
        ("test accuracy", "growth", "‖g_L‖ / 128"),
        strict=True,
    ):
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
    for axes in (middle, right):
        log_scale(axes)
    middle.plot([], [], "o", ms=9, mfc="none", color="0.3", label="D1 (D2) first fires, median seed")
    legend(figure, (left, middle, right))
    return figure


def _panels(height: float, sharey: bool = False) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, height), layout="constrained")
    return figure, figure.subplots(1, 3, sharey=sharey)


def _mean(runs: Sequence[Sequence[float | None]], log: bool = False) -> list[float]:
    """Mean over seeds (geometric for `log`) up to the shortest; NaN where nothing finite was measured."""
    result = []
    for values in zip(*runs, strict=False):
        finite = [v for v in values if v is not None and math.isfinite(v) and (not log or v > 0)]
        if not finite:
            result.append(math.nan)
        elif log:
            result.append(math.exp(sum(map(math.log, finite)) / len(finite)))
        else:
            result.append(sum(finite) / len(finite))
    return result
