"""What the section of one network shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from creditscope.measure.certificate import Certificate
from creditscope.measure.facts import Facts
from creditscope.protocol.checks import chosen_margin
from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.render.certificate import certificate_lines, certificate_matrix
from creditscope.render.charts import Chart, Dots, Figure, Matrix, missing
from creditscope.render.functional import functional_lines, functional_table
from creditscope.render.html.network import Network
from creditscope.render.html.network_charts import charts, first_fired, run_name
from creditscope.render.numbers import accuracy, mark, num, signed
from creditscope.render.svg import draw
from creditscope.render.text import counting_text, gamma_text, headline_text, margin_lines
from creditscope.training.spec import bare

PASS_SENTENCE = "No audited failure was found. This is a minimum bar, not a proof."


def section(network: Network, limits: DiagnosticThresholds) -> dict[str, Any]:
    report, facts, spec = network.report, network.report.facts, network.spec
    d2 = report.checks["D2"]
    raw = facts.aggregate.headline if facts.aggregate else None
    status = "null" if network.null else report.status
    header, rows = functional_table(facts)
    return {
        "key": network.key,
        "run_name": run_name(network),
        "name": report.method_name or "network",
        "notes": report.notes,
        "method": str(spec.get("method") or report.method_name or "network"),
        "arch": f"{spec['arch']} d={spec['width']} L={spec['depth']}{bare(spec['arch'], spec['terminal_norm'])}"
        if spec
        else f"L={facts.stream.depth}",
        "dataset": spec.get("dataset", "–"),
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
        "gamma_raw": headline_text(facts),
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
        **_margin(network),
        "warnings": () if network.null else report.verdict.warnings,
        "alternative": report.verdict.alternative,
        "margins": margin_lines(facts),
        "figures": [figure_of(c) for c in charts(network, limits)],
        "layers": _layer_table(facts),
        "functional": {"header": header, "rows": rows, "lines": functional_lines(facts)},
        "certificate": _certificate(report.certificate),
        "stability": facts.stability,
        "convention": _flat(facts.convention.model_dump()),
        "stream": _flat(facts.stream.model_dump()),
        "spec_rows": _flat(spec),
        "versions": _flat(network.versions),
        "protocol": report.protocol,
        "epochs": len(network.trajectory) - 1 if network.trajectory else None,
        "fired": first_fired(network),
    }


def _margin(network: Network) -> dict[str, Any]:
    """This network's own margin, told apart from the mean over seeds that D3 judges."""
    d3, seeds = network.report.checks["D3"].value, len(network.report.headline_acc)
    own = network.margin_pp
    if own is None and seeds == 1:
        own = d3
    mean = f"mean margin over {seeds} seeds" if seeds > 1 else "margin"
    told = [] if d3 is None else [f"{mean} {signed(d3, 1)} pp"]
    if own is not None and seeds > 1:
        told.append(f"this network {signed(own, 1)} pp")
    null = chosen_margin(network.report.facts)
    kind = f" ({null.null})" if null and null.null != "matched" else ""
    cell = (
        signed(own, 1) + kind
        if own is not None
        else "–"
        if d3 is None
        else f"– (mean over {seeds} seeds {signed(d3, 1)})"
    )
    return {"margin": own, "margin_cell": cell, "margin_told": ", ".join(told)}


def _certificate(certificate: Certificate | None) -> dict[str, Any] | None:
    if certificate is None:
        return None
    return {"lines": certificate_lines(certificate), "figures": [figure_of(certificate_matrix(certificate))]}


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
                signed(al.mean[layer]) + ("*" if layer in exact else "") + ("" if layer in al.counting_layers else "°"),
                num(al.std[layer], 2),
                str(al.measurable[layer]),
                f"{al.under_floor[layer]:.0%}",
            ]
        rows.append(row)
    return {"header": header, "rows": rows, "exact": bool(al and exact), "counting": counting_text(facts)}


def figure_of(chart: Figure) -> dict[str, Any]:
    """One figure with its title, its note and its text alternative (inside the SVG)."""
    note = missing(chart)
    if isinstance(chart, Chart) and chart.band:
        note = "; ".join(filter(None, [note, f"band: {chart.band.label}"]))
    return {
        "title": chart.title,
        "key": chart.key,
        "svg": draw(chart),
        "note": note,
        "epochs": isinstance(chart, Chart) and chart.x == "epoch",
        "wide": chart.is_wide if isinstance(chart, Dots) else isinstance(chart, Matrix) and len(chart.columns) > 4,
    }
