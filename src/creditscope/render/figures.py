"""What is drawn of networks: of one its layers and epochs, of several their layers, depth profiles, epochs and audit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.errors import CreditscopeError
from creditscope.files import make_directory
from creditscope.measure.facts import DepthProfile, Facts, Nudging, Perturbation, Readout, batch_mean
from creditscope.protocol.report import DiagnosticReport
from creditscope.protocol.wording import null_name
from creditscope.render.charts import LIMITS, RULES, Band, Chart, Dots, Event, Level, Panel, Row, Series, Spread, rule
from creditscope.render.numbers import share, shortened
from creditscope.runs.groups import AuditRow, Group
from creditscope.tables import grouped_by

if TYPE_CHECKING:
    from creditscope.render.plots import Drawing

LONGEST = 24
"""Letters of a group's name."""
MOST = 12
"""Groups in one figure."""
SIZE_128 = "mean per-sample norm / 128 (batch-mean convention, B = 128)"
SHARES, COSINES, POINTS = 0.1, 0.2, 10.0
"""Smallest range of an axis of accuracies, of cosines, and of margins in percentage points."""


def report_figure(report: DiagnosticReport) -> Drawing:
    """Everything about one network that has a value per layer."""
    from creditscope.render.plots import figure

    return figure(layer_panels(report.facts), columns=3, quick=True)


def over(x: str, xs: Sequence[float], prefix: str = "") -> Callable[..., Chart]:
    """Charts over one axis; what their own axis shows is their title."""

    def chart(key: str, title: str, convention: str, *series: Series, **more: Any) -> Chart:
        return Chart(f"{prefix}{key}", title, convention, title, xs, series, x, **more)

    return chart


def layer_panels(facts: Facts) -> list[Panel]:
    c, chart = facts.convention, over("layer", range(facts.stream.depth + 1))
    of = f" of the {facts.stream.vector}" if facts.stream.vector else ""
    raw = f"raw norms{of}, mean over {c.n_samples} samples, {c.dtype}"
    made: list[Panel] = [
        chart("h", "mean ‖h_l‖", raw, Series("mean ‖h_l‖", facts.scale.mean), log=True),
        chart(
            "g", "‖g_l‖ / 128", f"{SIZE_128}, {c.dtype}", Series("‖g_l‖ / 128", facts.reference.batch_mean_128), log=True,
            levels=_norm_rules(c.dtype),
        ),
    ]  # fmt: skip
    if (al := facts.alignment) is not None:
        convention = f"mean of per-sample cosines ({c.cosine_dtype}); bars: sd over samples"
        cosines = Series("cos(a_l, g_l)", al.mean, al.std)
        made.append(
            chart("cosine", "cos(a_l, g_l)", convention, cosines, zero=True, band=_null_band(facts), least=COSINES)
        )
    if facts.profile is not None:
        made.append(profile_panel({"network": [facts.profile]}))
    if any(v is not None for v in facts.stability.per_layer):
        convention = f"mean pairwise cosine of batch-mean gradients, {facts.stability.groups} groups of {c.group_size}"
        levels = (rule("stability_drift_ceiling"),)
        series = Series("stability", facts.stability.per_layer)
        made.append(chart("stability", "stability of g_l", convention, series, zero=True, levels=levels, least=COSINES))
    if (p := facts.perturbation) is not None and (lines := _kinds(p)):
        convention = f"{p.directions} directions, ε = {p.epsilon:g}, {p.n_samples} samples, {p.dtype}"
        made.append(chart("rho", "perturbation correlation ρ", convention, *lines, zero=True))
    if (n := facts.nudging) is not None and (lines := _kinds(n)):
        convention = f"step {n.step:g} against the credit, {n.n_samples} samples, {n.dtype}"
        made.append(chart("nudging", "loss change by nudging", convention, *lines, zero=True))
    if (b := facts.fresh_b) is not None and b.trained is not None:
        draws = [v for v in b.draws if v is not None]
        trained = Series("trained feedback", [b.trained], (), [0], line=False)
        redrawn = Series("redrawn feedback", draws, (), [1] * len(draws), line=False, role="random")
        convention = f"layers {', '.join(map(str, b.layers))}, {b.n_samples} samples"
        title, look = "fresh-B null: deep mean cosine", {"zero": True, "places": ["trained", "redrawn"]}
        made.append(over("feedback", [0, 1])("fresh-b", title, convention, trained, redrawn, **look))
    return made


def _floor(dtype: str) -> Level:
    floor = LIMITS.floor_for(dtype)  # 5.96e-7 of float16 is told as 6e-7
    return Level(floor, RULES["g_norm_floor"].format(f"{floor:.0e}".replace("e-0", "e-")))


def _norm_rules(dtype: str) -> tuple[Level, Level]:
    """What a reference norm is compared with."""
    return _floor(dtype), Level(1e-8, "cosine eps 1e-8")


def _kinds(fact: Perturbation | Nudging) -> list[Series]:
    made = [Series("credit a", fact.credit.mean)] if fact.credit else []
    made += [Series("control a = g", fact.reference.mean, role="gradient")] if fact.reference else []
    return [*made, *([Series("control random", fact.random.mean, role="random")] if fact.random else [])]


def _null_band(facts: Facts) -> Band | None:
    b = facts.fresh_b
    if b is None or b.mean is None or b.std is None or not b.layers or not math.isfinite(b.mean + b.std):
        return None
    label = f"fresh-B null of the deep mean, mean ± 2 sd of {len(b.draws)} draws"
    return Band(b.mean - 2 * b.std, b.mean + 2 * b.std, min(b.layers), max(b.layers), label)


def profile_figure(reports: Sequence[DiagnosticReport | DepthProfile]) -> Drawing:
    """Accuracy of a linear readout over depth, one line per method, with the twins' as a band."""
    from creditscope.render.plots import figure

    found: dict[str, list[DepthProfile]] = {}
    for given in reports:
        profile = given if isinstance(given, DepthProfile) else given.facts.profile
        if profile is not None:
            name = "" if isinstance(given, DepthProfile) else given.method_name
            found.setdefault(name or "network", []).append(profile)
    if not found:
        raise CreditscopeError("none of the reports has a depth profile; measure it: diagnose(..., fit_batches=...)")
    return figure([profile_panel(found)])


def profile_panel(methods: Mapping[str, Sequence[DepthProfile]]) -> Chart:
    """Lines: mean over a method's networks, with the range over them (one network: its 95 % interval). Band: all twins."""
    every = [p for profiles in methods.values() for p in profiles]
    layers = range(max(len(p.curve) for p in every))
    series = [_readouts(name, [p.curve for p in profiles]) for name, profiles in methods.items()]
    twins = _readouts("twin: random blocks", [p.twin for p in every], band=True)
    raws = [p.raw.accuracy for p in every if p.raw and p.raw.accuracy is not None]
    raw = statistics.fmean(raws) if raws else None
    rows = sorted({(p.fit_rows, p.test_rows) for p in every})
    fitted = " or ".join(f"fitted on {fit:,}, tested on {test:,}" for fit, test in rows)
    several = any(len(profiles) > 1 for profiles in methods.values())
    spread = "ranges over networks" if several else "95 % intervals"
    convention = f"accuracy of a ridge readout, {fitted}; {spread}; twin: random blocks"
    levels = () if raw is None else (Level(raw, f"raw input {share(raw)}"),)
    title, lines = "linear readout of h_l", [*series, twins]
    return Chart("profile", title, convention, "accuracy", layers, lines, levels=levels, least=SHARES)


def _readouts(name: str, curves: Sequence[Sequence[Readout]], band: bool = False) -> Series:
    values: list[float | None] = []
    spread: list[Spread] = []
    for states in zip(*curves, strict=False):
        known = [r for r in states if r.accuracy is not None]
        values.append(statistics.fmean(r.accuracy or 0.0 for r in known) if known else None)
        if len(known) > 1 and not band:
            ends = [r.accuracy or 0.0 for r in known]
        else:
            ends = [v for r in known for v in (r.low, r.high) if v is not None]
        spread.append((min(ends), max(ends)) if ends else None)
    return Series(name, values, spread, range(len(values)), band=band, role="random" if band else "")


def epoch_panels(columns: Mapping[str, Sequence[Any]], fired: Sequence[tuple[str, int]], dtype: str) -> list[Panel]:
    """Accuracy, growth and reference of one run over its epochs; `fired`: (check, first epoch at which it was raised)."""
    by_epoch: dict[int, list[str]] = {}
    for check, epoch in fired:
        by_epoch.setdefault(epoch, []).append(check)
    events = [
        Event(e, f"{' + '.join(checks)} first fired: epoch {e}", " + ".join(checks)) for e, checks in by_epoch.items()
    ]
    dotted = "; dotted: a check first fires" if events else ""
    chart = partial(over("epoch", columns["epoch"], "epoch-"), events=events)
    lines = [[Series(EPOCHS[name], columns[name])] for name in EPOCHS]
    conventions = ("test set", "largest mean‖h_{l+1}‖ / mean‖h_l‖", SIZE_128)
    return _epoch_charts(chart, [words + dotted for words in conventions], lines, dtype)


EPOCHS = {"accuracy": "test accuracy", "growth": "growth", "reference_norm_128": "‖g_L‖ / 128"}
"""What is drawn over epochs, and its title."""


def _epoch_charts(
    chart: Callable[..., Chart], conventions: Sequence[str], lines: Sequence[Sequence[Series]], dtype: str
) -> list[Panel]:
    """`conventions` and `lines` of each quantity of EPOCHS."""
    looks: tuple[dict[str, Any], ...] = (
        {"least": SHARES},
        {"log": True, "levels": (rule("h_norm_explosion_ratio"),)},
        {"log": True, "levels": (_floor(dtype),)},
    )
    given = zip(("accuracy", "growth", "reference"), EPOCHS.values(), conventions, lines, looks, strict=True)
    return [chart(key, title, convention, *series, **look) for key, title, convention, series, look in given]


# ---- several networks ---------------------------------------------------------------------------------------------------


def write_figures(
    groups: Sequence[Group],
    directory: Path,
    described: Mapping[str, Sequence[Panel]] | None = None,
    formats: Sequence[str] = ("svg", "pdf", "png"),
) -> list[Path]:
    """audit, layers, temporal and profile of the groups, and the described figures (file name -> panels), in every format.

    Networks of different shape or task get figures of their own. Returns the paths that were written.
    """
    from creditscope.render.plots import figure

    make_directory(directory, f"cannot make {directory}")
    wanted: dict[str, Sequence[Panel]] = {}
    for suffix, found in alike(groups).items():
        wanted |= {
            f"audit{suffix}": audit_panels(found),
            f"layers{suffix}": layers_panels(found),
            f"temporal{suffix}": temporal_panels(found),
        }
        named = zip(names(found), found, strict=True)
        profiles = {n: p for n, g in named if (p := [r.facts.profile for r in g.reports if r.facts.profile])}
        if profiles:
            wanted[f"profile{suffix}"] = [profile_panel(profiles)]
    wanted |= described or {}
    drawn = {name: figure(panels) for name, panels in wanted.items() if panels}
    return [made.save(directory / f"{name}.{kind}") for name, made in drawn.items() for kind in formats]


def alike(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups that fit one figure, by the end of its file name: same task, shape and length, at most a dozen."""

    def shape(g: Group) -> str:
        return f"-{g.spec.dataset}-{g.spec.arch}-d{g.spec.width}-L{g.spec.depth}-{g.spec.epochs}epochs"

    if len(groups) <= MOST and len({(g.spec.dataset, g.spec.arch, g.spec.depth) for g in groups}) == 1:
        return {"": list(groups)} if groups else {}
    parts = {}
    for name, same in grouped_by(groups, shape).items():
        for k in range(0, len(same), MOST):
            parts[name if len(same) <= MOST else f"{name}-{k // MOST + 1}"] = same[k : k + MOST]
    return parts


SETTINGS = {
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
            suffix = "".join(f" {SETTINGS[n].format(getattr(row.spec, n))}" for n in needed)
        elif any(other.label == row.label for other in rows if other is not row):
            suffix = " (report)"
        made.append(shortened(row.label, max(4, longest - len(suffix))) + suffix)
    return made


def _needed(groups: Sequence[Group]) -> list[str]:
    """The architecture if it differs, then what tells most apart, one setting after the other, until all are."""

    def parts(settings: Sequence[str]) -> int:
        return len({tuple(getattr(g.spec, n) for n in settings) for g in groups})

    chosen = ["arch"] if parts(["arch"]) > 1 else []
    while parts(chosen) < len(groups):
        best = max(SETTINGS, key=lambda n: parts([*chosen, n]))
        if parts([*chosen, best]) == parts(chosen):
            break  # nothing that is listed tells them apart
        chosen.append(best)
    return [n for n in SETTINGS if n in chosen]


def audit_panels(groups: Sequence[AuditRow], longest: int = LONGEST) -> list[Panel]:
    """Accuracy with its nulls, Γ, and the margin to each null with its interval; one row per method, one dot per seed."""
    if not groups:
        return []
    limit = groups[0].reports[0].checks["D3"].threshold
    rows: dict[str, list[Row]] = {"accuracy": [], "gamma": []}
    labels = names(groups, longest)
    by_null = [{m.null: m for m in group.margins} for group in groups]
    for name, group, margins in zip(labels, groups, by_null, strict=True):
        nulls = [(f"{m.null} null, mean", m.null_accuracy) for m in margins.values()]
        rows["accuracy"].append(Row(name, group.marked_accuracies, hollow=nulls))
        found = [
            (seed, r.facts.aggregate.headline)
            for seed, r in zip(group.names, group.reports, strict=True)
            if r.facts.aggregate is not None and r.facts.aggregate.headline is not None
        ]
        rows["gamma"].append(Row(name, found))
    c = groups[0].reports[0].facts.convention
    cosine = f"mean over layers of the mean per-sample cosine, {c.cosine_dtype}"
    made: list[Panel] = [
        Dots(
            "audit-accuracy", "accuracy", "final checkpoint, test set", "accuracy", rows["accuracy"], zero=False,
            marks="network, one per seed", hollow="null (random-blocks baseline)", least=SHARES,
        ),
        Dots("audit-gamma", "headline Γ", cosine, "Γ", rows["gamma"], least=COSINES),
    ]  # fmt: skip
    for null in dict.fromkeys(null for margins in by_null for null in margins):
        mine = []
        for name, group in zip(labels, groups, strict=True):
            m = group.margin(null)  # BP's matched null is its bp null
            marks = [] if m is None else [(f"mean of n={m.n}, {null_name(null)}", m.margin_pp)]
            mine.append(Row(name, marks, None if m is None else m.ends))
        level = rule("frozen_acc_margin_pp", limit)
        convention = "trained minus null, percentage points; bar: 95 % interval"
        title = f"margin to {null_name(null)}"
        made.append(Dots(f"audit-margin-{null}", title, convention, "pp", mine, levels=(level,), least=POINTS))
    return made


def layers_panels(groups: Sequence[Group]) -> list[Panel]:
    """‖h_l‖, ‖g_l‖ / 128 with the floor and the eps of a usual cosine, and cos(a_l, g_l), over layers; mean over seeds."""
    facts = [(name, [r.facts for r in g.reports]) for name, g in zip(names(groups), groups, strict=True)]
    layers = range(max(f.stream.depth for _, found in facts for f in found) + 1)
    means = "mean over seeds"
    h = [_over_seeds(name, [f.scale.mean for f in found], log=True) for name, found in facts]
    g = [_over_seeds(name, [f.reference.batch_mean_128 for f in found], log=True) for name, found in facts]
    cosines = [_over_seeds(name, [f.alignment.mean for f in found if f.alignment]) for name, found in facts]
    rules = _norm_rules(facts[0][1][0].convention.dtype)
    chart = over("layer", layers, "layers-")
    return [
        chart("h", "mean ‖h_l‖", f"geometric {means}", *h, log=True),
        chart("g", "‖g_l‖ / 128", f"geometric {means}", *g, log=True, levels=rules),
        chart("cosine", "cos(a_l, g_l)", means, *cosines, zero=True),
    ]


def temporal_panels(groups: Sequence[Group]) -> list[Panel]:
    """Accuracy, growth and ‖g_L‖ / 128 over epochs, mean over seeds; ring: a check first fires (median seed)."""
    lines: list[list[Series]] = [[] for _ in EPOCHS]
    epochs: set[int] = set()
    for name, group in zip(names(groups), groups, strict=True):
        runs = [b.trajectory for b in group.records]
        xs = [int(line["epoch"]) for line in min(runs, key=len)]
        epochs |= set(xs)

        def rings(check: str, runs: Any = runs) -> list[float]:
            first = [next((int(x["epoch"]) for x in run if check in x.get("fired", ())), None) for run in runs]
            fired = [epoch for epoch in first if epoch is not None]
            return [statistics.median_high(fired)] if fired else []

        accuracy = [[float(line["accuracy"]) for line in run] for run in runs]
        growth = [[float(line["growth"]) for line in run] for run in runs]
        reference = [[batch_mean(line["g_per_sample"][-1]) for line in run] for run in runs]
        lines[0].append(_over_seeds(name, accuracy, xs=xs))
        lines[1].append(_over_seeds(name, growth, xs=xs, log=True, fired=rings("D1")))
        lines[2].append(_over_seeds(name, reference, xs=xs, log=True, fired=rings("D2")))
    captions = [f"geometric mean over seeds; ring: {check} first fires, median seed" for check in ("D1", "D2")]
    chart = over("epoch", sorted(epochs), "temporal-")
    return _epoch_charts(chart, ["mean over seeds", *captions], lines, groups[0].reports[0].facts.convention.dtype)


def _over_seeds(
    name: str,
    runs: Sequence[Sequence[float | None]],
    *,
    xs: Sequence[float] | None = None,
    log: bool = False,
    fired: Sequence[float] = (),
) -> Series:
    """Mean over seeds (geometric for `log`) up to the shortest; None where nothing finite was measured."""
    result: list[float | None] = []
    for values in zip(*runs, strict=False):
        finite = [v for v in values if v is not None and math.isfinite(v) and (not log or v > 0)]
        average = statistics.geometric_mean if log else statistics.fmean
        result.append(average(finite) if finite else None)
    return Series(name, result, (), range(len(result)) if xs is None else xs, fired=fired)
