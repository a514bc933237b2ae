"""One HTML page for a set of audited networks: self-contained, no request to anywhere, inert to what stands in the files.

The page is whole without scripts (every figure is SVG, every number is in a table); the script adds opening one network at a
time, sorting, filtering, hovering and saving.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from creditscope.files import plain
from creditscope.measure.facts import Facts, LayerMeans
from creditscope.protocol.report import DiagnosticReport
from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.render import audit as audit_table
from creditscope.render.figures import names
from creditscope.render.functional import functional_lines, functional_table
from creditscope.render.numbers import MARKS, accuracy, mark, num, printable, signed
from creditscope.render.svg import (
    Band,
    Chart,
    Dots,
    Event,
    Level,
    Row,
    Series,
    chart_svg,
    dots_svg,
    missing,
)
from creditscope.render.text import gamma_text, margin_lines
from creditscope.studies.audit import Group
from creditscope.training.bundle import Bundle

ASSETS = Path(__file__).parent / "html"
LONGEST = 1000
"""Characters of one text on the page; the JSON holds all of it."""
DIGITS = 6
"""Significant digits of the trajectory in the page (the bundle holds all of them)."""
COSINE_EPS = 1e-8
FULL_LEVEL = ("perturbation", "nudging", "fresh_b", "training")
PASS_SENTENCE = "No audited failure was found. This is a minimum bar, not a proof."


@dataclass(frozen=True)
class Network:
    """One network of the page: its report and, where it comes from a bundle, its run."""

    report: DiagnosticReport
    spec: Mapping[str, Any] = field(default_factory=dict)
    trajectory: Sequence[Mapping[str, Any]] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    accuracy: float | None = None
    """Of this network (the report's headline may be over seeds)."""
    null: bool = False
    """A frozen-blocks null: shown, not judged."""

    @property
    def key(self) -> str:
        """Name of its section in the page."""
        content = f"{self.path}\n{self.report.run}\n{self.report.method_name}\n{self.report.notes}"
        return "run-" + hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:12]


def networks(
    groups: Sequence[Group], pool: Iterable[Bundle] = (), extra: Iterable[DiagnosticReport] = ()
) -> list[Network]:
    """Every network of the groups, then the nulls of the pool, then reports that no bundle of the groups stands behind.

    A report in `extra` with the run hash of a network adds what only it has measured (the full level).
    """
    given = list(extra)
    fuller = {r.run: r for r in given if r.run}
    made: list[Network] = []
    for group in groups:
        for bundle, report in zip(group.bundles, group.reports, strict=True):
            if (more := fuller.pop(report.run, None)) is not None:
                report = report.model_copy(update={"facts": _merged(report.facts, more.facts)})
            made.append(_network(bundle, report))
    for bundle in pool:
        if bundle.spec.frozen:
            stored = DiagnosticReport.from_dict(bundle.report, str(bundle.path / "report.json"))
            spec = bundle.spec
            notes = f"{spec.dataset}, {spec.arch} d={spec.width} L={spec.depth}, seed {spec.seed}"
            report = stored.model_copy(update={"method_name": spec.label, "notes": notes, "run": spec.hash})
            made.append(_network(bundle, report, null=True))
    made += [Network(report) for report in given if not report.run or report.run in fuller]
    return made


def _network(bundle: Bundle, report: DiagnosticReport, null: bool = False) -> Network:
    return Network(
        report,
        spec=bundle.spec.model_dump(),
        trajectory=bundle.trajectory,
        versions=bundle.versions,
        path=str(bundle.path),
        accuracy=bundle.accuracy,
        null=null,
    )


def _merged(stored: Facts, more: Facts) -> Facts:
    found = {name: getattr(more, name) for name in FULL_LEVEL if getattr(more, name) is not None}
    return stored.model_copy(update=found)


def html_page(
    groups: Sequence[Group],
    shown: Sequence[Network],
    title: str = "creditscope audit",
    thresholds: DiagnosticThresholds | None = None,
) -> str:
    """The page: the audit table over seeds (where there are groups), the overview, one section per network."""
    limits = thresholds or DiagnosticThresholds()
    styles, script = _asset("page.css"), _asset("page.js")
    sections = [_section(n, limits) for n in shown]
    judged = [n for n in shown if not n.null]
    protocols = list(dict.fromkeys(n.report.protocol for n in judged))
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            styles=Markup(styles),
            script=Markup(script),
            policy=Markup(
                f"default-src 'none'; style-src {_digest(styles)}; script-src {_digest(script)}; img-src data:; "
                "base-uri 'none'; form-action 'none'"
            ),
            data=_embedded({"networks": [_data(n) for n in shown]}),
            protocols=protocols,
            summary=_summary(groups, judged),
            audit=[_audit_row(g, shown) for g in groups],
            audit_header=audit_table.HEADER,
            caption=audit_table.caption(groups) if groups else "",
            panels=_panels(groups),
            networks=sections,
            n_nulls=sum(n.null for n in shown),
            methods=sorted({s["method"] for s in sections}),
            statuses=list(dict.fromkeys(s["status"] for s in sections)),
            marks=MARKS,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(num=num, signed=signed)
    return environment


def _shown(value: Any) -> Any:
    """Text from outside: one line, without control characters, of limited length."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    value = printable(value)
    return value if len(value) <= LONGEST else value[: LONGEST - 1] + "…"


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _embedded(value: Any) -> Markup:
    """JSON that cannot leave its script element."""
    dumped = json.dumps(plain(value), allow_nan=False, separators=(",", ":"))
    return Markup(dumped.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _number(value: Any) -> float:
    """A number of a trajectory ("NaN" and infinities stand as strings)."""
    return float(value)


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _columns(network: Network) -> dict[str, list[Any]]:
    """The trajectory as lists over epochs."""
    lines = network.trajectory
    if not lines:
        return {}
    columns: dict[str, list[Any]] = {"epoch": [int(line["epoch"]) for line in lines]}
    for name in ("accuracy", "train_loss", "gamma", "growth", "stability"):
        values = [line.get(name) for line in lines]
        columns[name] = [None if v is None else _round(_number(v)) for v in values]
    columns["reference_128"] = [_round(_number(line["g_per_sample"][-1]) / 128) for line in lines]
    columns["fired"] = [list(line.get("fired", ())) for line in lines]
    return columns


def _data(network: Network) -> dict[str, Any]:
    """What the page holds of a network as JSON, and what it offers to save."""
    return {
        "key": network.key,
        "path": network.path,
        "null": network.null,
        "accuracy": network.accuracy,
        "spec": dict(network.spec),
        "versions": dict(network.versions),
        "report": network.report.to_dict(),
        "trajectory": _columns(network),
    }


# The audit over seeds


def _summary(groups: Sequence[Group], judged: Sequence[Network]) -> list[dict[str, Any]]:
    """What is claimed and what holds, in numbers: (count, words, status)."""
    statuses: list[str] = [_group_status(g) for g in groups] if groups else [n.report.status for n in judged]
    noun = "method" if groups else "network"
    claims = (
        sum(g.claim == "learns, credit aligned" for g in groups)
        if groups
        else sum(
            (n.report.facts.aggregate is not None and (n.report.facts.aggregate.headline or 0) > 0) for n in judged
        )
    )
    words = {
        "pass": "no audited failure found",
        "fail": "needs walk-back",
        "inconclusive": "inconclusive",
        "incomplete": "incomplete: a check was not measured",
    }
    total = len(statuses)
    first = {
        "count": f"{claims} of {total}",
        "words": f"{noun}s that accuracy + Γ alone would call aligned",
        "status": "claim",
    }
    return [
        first,
        *(
            {"count": f"{statuses.count(s)} of {total}", "words": w, "status": s}
            for s, w in words.items()
            if s in statuses or s in ("pass", "fail")
        ),
    ]


def _group_status(group: Group) -> str:
    """One status over seeds: the gravest (fail, inconclusive, incomplete, pass)."""
    statuses = {r.status for r in group.reports}
    return next(s for s in ("fail", "inconclusive", "incomplete", "pass") if s in statuses)


def _audit_row(group: Group, shown: Sequence[Network]) -> dict[str, Any]:
    by_run = {n.report.run: n.key for n in shown}
    cells = audit_table.cells(group)
    status = _group_status(group)
    return {
        "cells": [cell.splitlines() for cell in cells],
        "finding": cells[-1].removeprefix(f"{status}: "),  # the badge says it already
        "status": status,
        "mark": mark(status),
        "seeds": [(seed, by_run[r.run]) for seed, r in zip(group.seeds, group.reports, strict=True)],
        "spec": group.spec,
    }


def _panels(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Accuracy with its nulls, Γ, and margin: one dot per seed."""
    if not groups:
        return []
    limit = next(c.threshold for c in groups[0].reports[0].verdict.checks if c.id == "D3")
    accuracy_rows, gamma_rows, margin_rows = [], [], []
    for name, group in zip(names(groups), groups, strict=True):
        seeds = [f"seed {s}" for s in group.seeds]
        depth = group.reports[0].facts.depth
        margins = {m.null: m for m in depth.margins} if depth else {}
        null = next((margins[k] for k in ("matched", "kind unstated", "bp") if k in margins), None)
        accuracy_rows.append(
            Row(
                name,
                list(zip(seeds, group.accuracies, strict=True)),
                hollow=[(f"{null.null} null, mean", null.null_accuracy)] if null else (),
            )
        )
        gammas = [
            (seed, r.facts.aggregate.headline)
            for seed, r in zip(seeds, group.reports, strict=True)
            if r.facts.aggregate is not None and r.facts.aggregate.headline is not None
        ]
        gamma_rows.append(Row(name, gammas))
        if null is not None:
            interval = None if null.low_pp is None or null.high_pp is None else (null.low_pp, null.high_pp)
            margin_rows.append(Row(name, [(f"mean of n={null.n}, {null.null} null", null.margin_pp)], interval))
        else:
            margin_rows.append(Row(name, ()))
    c = groups[0].reports[0].facts.convention
    run = "all networks"
    dots = [
        Dots(
            "audit-accuracy",
            "Accuracy (dots: seeds; squares: frozen-blocks null)",
            run,
            "final checkpoint, test set",
            "accuracy",
            accuracy_rows,
            zero=False,
        ),
        Dots(
            "audit-gamma",
            "Headline Γ (dots: seeds)",
            run,
            f"mean over layers of the mean per-sample cosine, {c.cosine_dtype}",
            "Γ",
            gamma_rows,
        ),
        Dots(
            "audit-margin",
            "Margin to the frozen-blocks null (bar: 95 % interval)",
            run,
            "trained minus null, percentage points",
            "pp",
            margin_rows,
            levels=(Level(limit, f"D3 threshold {limit:g} pp"),),
        ),
    ]
    return [{"title": d.title, "svg": dots_svg(d), "key": d.key, "note": ""} for d in dots]


# One network


def _section(network: Network, limits: DiagnosticThresholds) -> dict[str, Any]:
    report, facts, spec = network.report, network.report.facts, network.spec
    d2 = report.checks["D2"]
    raw = facts.aggregate.headline if facts.aggregate else None
    status = "null" if network.null else report.status
    header, rows = functional_table(facts)
    return {
        "key": network.key,
        "name": report.method_name or "network",
        "notes": report.notes,
        "method": str(spec.get("method") or report.method_name or "network"),
        "arch": f"{spec['arch']} d={spec['width']} L={spec['depth']}" if spec else f"L={facts.stream.depth}",
        "dataset": spec.get("dataset", "–"),
        "norm": spec.get("credit_norm") or "–",
        "seed": spec.get("seed", "–"),
        "null": network.null,
        "run": report.run,
        "path": network.path,
        "status": status,
        "mark": "▫ null" if network.null else mark(report.status),
        "verdict": "frozen-blocks null, not judged"
        if network.null
        else report.verdict.line.removeprefix("VERDICT: ").removeprefix(f"{report.status}: "),
        "sentences": _sentences(network),
        "accuracy": network.accuracy,
        "headline": accuracy(report.headline_acc),
        "gamma": raw,
        "gamma_text": gamma_text(report),
        "claim": report.chain[0] if report.chain else None,
        "chain": [] if network.null else report.chain,
        "checks": report.verdict.checks,
        "answers": {c.id: mark(c.answer) for c in report.verdict.checks},
        "d1": report.checks["D1"],
        "d2": d2,
        "d3": report.checks["D3"],
        "growth": facts.scale.growth,
        "reference": facts.reference.batch_mean_128[-1],
        "margin": report.checks["D3"].value,
        "warnings": () if network.null else report.verdict.warnings,
        "alternative": report.verdict.alternative,
        "margins": margin_lines(facts),
        "figures": [_figure(c) for c in _charts(network, limits)],
        "layers": _layer_table(facts),
        "functional": {"header": header, "rows": rows, "lines": functional_lines(facts)},
        "stability": facts.stability,
        "convention": _flat(facts.convention.model_dump()),
        "stream": _flat(facts.stream.model_dump()),
        "spec_rows": _flat(spec),
        "versions": _flat(network.versions),
        "protocol": report.protocol,
        "epochs": len(network.trajectory) - 1 if network.trajectory else None,
        "fired": _first_fired(network),
    }


def _sentences(network: Network) -> Sequence[str]:
    report = network.report
    if network.null:
        return ("Its residual blocks stay as they were drawn; it is what the trained networks are compared with.",)
    if report.verdict.reasons:
        return report.verdict.reasons
    if report.status == "pass":
        return (PASS_SENTENCE,)
    return [c.sentence for c in report.verdict.checks if c.id != "C" and c.answer not in ("pass", "fail")]


def _flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values as text."""
    rows = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += [(f"{name}.{inner}", entry) for inner, entry in _flat(value)]
        elif isinstance(value, list | tuple):
            rows.append((name, ", ".join(map(str, value)) or "–"))
        else:
            rows.append((name, "–" if value is None or value == "" else str(value)))
    return rows


def _layer_table(facts: Facts) -> dict[str, Any]:
    header = ["l", "mean ‖h_l‖", "‖g_l‖ per sample", "‖g_l‖ / 128", "clamp batch size"]
    al, exact = facts.alignment, facts.concentration.exact_layers if facts.concentration else ()
    if al:
        header += ["cos(a_l, g_l)", "sd over samples", "measurable", "under floor"]
    rows = []
    for layer in range(facts.stream.depth + 1):
        row = [
            str(layer),
            num(facts.scale.mean[layer]),
            num(facts.reference.per_sample[layer]),
            num(facts.reference.batch_mean_128[layer]),
            num(facts.reference.clamp_batch_size[layer]),
        ]
        if al:
            row += [
                signed(al.mean[layer]) + ("*" if layer in exact else ""),
                num(al.std[layer], 2),
                str(al.measurable[layer]),
                f"{al.under_floor[layer]:.0%}",
            ]
        rows.append(row)
    return {"header": header, "rows": rows, "exact": bool(al and exact)}


def _first_fired(network: Network) -> list[tuple[str, int]]:
    """(check, first epoch at which it was raised) in the order of the checks."""
    first: dict[str, int] = {}
    for line in network.trajectory:
        for check in line.get("fired", ()):
            first.setdefault(str(check), int(line["epoch"]))
    return sorted(first.items(), key=lambda item: (item[1], item[0]))


def _figure(chart: Chart | Dots) -> dict[str, Any]:
    drawn = chart_svg(chart) if isinstance(chart, Chart) else dots_svg(chart)
    note = missing(chart) if isinstance(chart, Chart) else ""
    if isinstance(chart, Chart) and chart.band:
        note = "; ".join(filter(None, [note, f"band: {chart.band.label}"]))
    return {
        "title": chart.title,
        "key": chart.key,
        "svg": drawn,
        "note": note,
        "epochs": isinstance(chart, Chart) and chart.x == "epoch",
    }


def _charts(network: Network, limits: DiagnosticThresholds) -> list[Chart | Dots]:
    facts = network.report.facts
    name = network.report.method_name or "network"
    run = f"{name}, {network.report.notes}" if network.report.notes else name
    run = run if len(run) <= 160 else run[:159] + "…"
    return [*_layer_charts(facts, run, limits), *_functional_charts(facts, run), *_epoch_charts(network, run, limits)]


def _layer_charts(facts: Facts, run: str, limits: DiagnosticThresholds) -> list[Chart | Dots]:
    c, layers = facts.convention, range(facts.stream.depth + 1)
    floor = limits.floor_for(c.dtype)
    charts: list[Chart | Dots] = [
        Chart(
            "h",
            "Scale: mean ‖h_l‖ by layer",
            run,
            f"raw norms, mean over {c.n_samples} samples, {c.dtype}",
            "mean ‖h_l‖",
            layers,
            [Series("‖h_l‖", facts.scale.mean)],
            log=True,
        ),
        Chart(
            "g",
            "Reference: ‖g_l‖ / 128 by layer",
            run,
            f"mean per-sample norm / 128 (batch-mean convention, B = 128), {c.dtype}",
            "‖g_l‖ / 128",
            layers,
            [Series("‖g_l‖ / 128", facts.reference.batch_mean_128)],
            log=True,
            levels=(
                Level(floor, f"floor of D2 {floor:.0e}".replace("e-0", "e-")),
                Level(COSINE_EPS, "cosine eps 1e-8"),
            ),
        ),
    ]
    if (al := facts.alignment) is not None:
        charts.append(
            Chart(
                "cosine",
                "Alignment: cos(a_l, g_l) by layer",
                run,
                f"mean of per-sample cosines ({c.cosine_dtype}); whiskers: sd over samples",
                "cos(a_l, g_l)",
                layers,
                [Series("cosine", al.mean, al.std)],
                zero=True,
                band=_null_band(facts),
            )
        )
    if (ag := facts.aggregate) is not None:
        named = [
            ("headline: layer mean", ag.headline),
            ("concatenated", ag.concat),
            ("weighted by ‖g_l‖", ag.norm_weighted),
            ("flattened", ag.flattened),
            ("eps-clamped, B=128", ag.clamped_128),
        ]
        charts.append(
            Dots(
                "aggregations",
                "Γ under every aggregation",
                run,
                "the same cosines, aggregated in five ways",
                "Γ",
                [Row(label, [("Γ", value)] if value is not None else ()) for label, value in named],
                row_name="",
            )
        )
    if any(v is not None for v in facts.stability.per_layer):
        charts.append(
            Chart(
                "stability",
                "Direction stability by layer",
                run,
                f"mean pairwise cosine of batch-mean gradients, {facts.stability.groups} groups of {c.group_size}",
                "stability",
                layers,
                [Series("stability", facts.stability.per_layer)],
                zero=True,
                levels=(Level(limits.stability_drift_ceiling, f"C {limits.stability_drift_ceiling:g}"),),
            )
        )
    return charts


def _null_band(facts: Facts) -> Band | None:
    b = facts.fresh_b
    if b is None or b.mean is None or b.std is None or not b.layers or not math.isfinite(b.mean + b.std):
        return None
    return Band(
        b.mean - 2 * b.std,
        b.mean + 2 * b.std,
        min(b.layers),
        max(b.layers),
        f"fresh-B null of the deep mean, mean ± 2 sd of {len(b.draws)} draws",
    )


def _functional_charts(facts: Facts, run: str) -> list[Chart | Dots]:
    layers = range(facts.stream.depth + 1)

    def series(credit: LayerMeans | None, reference: LayerMeans | None, random: LayerMeans | None) -> list[Series]:
        kinds = (("credit a", credit), ("control a = g", reference), ("control random", random))
        return [Series(name, m.mean) for name, m in kinds if m is not None]

    charts: list[Chart | Dots] = []
    if (p := facts.perturbation) is not None and (lines := series(p.credit, p.reference, p.random)):
        convention = f"{p.directions} directions, ε = {p.epsilon:g}, {p.n_samples} samples, {p.dtype}"
        charts.append(
            Chart("rho", "Perturbation correlation ρ by layer", run, convention, "ρ", layers, lines, zero=True)
        )
    if (n := facts.nudging) is not None and (lines := series(n.credit, n.reference, n.random)):
        convention = f"step {n.step:g} against the credit, {n.n_samples} samples, {n.dtype}"
        charts.append(
            Chart("nudging", "Nudging: loss change by layer", run, convention, "loss change", layers, lines, zero=True)
        )
    if (b := facts.fresh_b) is not None and b.trained is not None:
        draws = [(f"draw {k}", v) for k, v in enumerate(b.draws, 1) if v is not None]
        charts.append(
            Dots(
                "fresh-b",
                "Fresh-B null: deep mean cosine",
                run,
                f"layers {', '.join(map(str, b.layers))}, {b.n_samples} samples",
                "deep mean cosine",
                [Row("trained feedback", [("", b.trained)]), Row("redrawn feedback", draws)],
                row_name="",
            )
        )
    return charts


def _epoch_charts(network: Network, run: str, limits: DiagnosticThresholds) -> list[Chart | Dots]:
    columns = _columns(network)
    if not columns:
        return []
    epochs, dtype = columns["epoch"], network.report.facts.convention.dtype
    floor = limits.floor_for(dtype)
    by_epoch: dict[int, list[str]] = {}
    for check, epoch in _first_fired(network):
        by_epoch.setdefault(epoch, []).append(check)
    events = [Event(e, f"{' + '.join(checks)} first fired: epoch {e}") for e, checks in by_epoch.items()]
    shared: dict[str, Any] = {"run": run, "x": "epoch", "xs": epochs, "events": events}
    growth_limit = limits.h_norm_explosion_ratio
    return [
        Chart(
            key="epoch-accuracy",
            title="Test accuracy over epochs",
            y="accuracy",
            convention="test set",
            series=[Series("accuracy", columns["accuracy"])],
            **shared,
        ),
        Chart(
            key="epoch-growth",
            title="Growth over epochs",
            y="growth",
            log=True,
            convention="largest mean‖h_{l+1}‖ / mean‖h_l‖",
            series=[Series("growth", columns["growth"])],
            levels=(Level(growth_limit, f"D1 {growth_limit:g}"),),
            **shared,
        ),
        Chart(
            key="epoch-reference",
            title="‖g_L‖ / 128 over epochs",
            y="‖g_L‖ / 128",
            log=True,
            convention="mean per-sample norm / 128 (batch-mean convention, B = 128)",
            series=[Series("‖g_L‖ / 128", columns["reference_128"])],
            levels=(Level(floor, f"floor of D2 {floor:.0e}".replace("e-0", "e-")),),
            **shared,
        ),
    ]
