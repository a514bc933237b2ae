"""What the page of one network and the section of one study show, and how a figure stands on a page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from creditscope.measure.facts import Facts
from creditscope.protocol.chain import S1_WORDS, s1
from creditscope.protocol.checks import chosen_margin
from creditscope.protocol.policies import Verdict
from creditscope.protocol.wording import null_name
from creditscope.render.certificate import certificate_matrix, certificate_section
from creditscope.render.charts import Panel
from creditscope.render.document import Section
from creditscope.render.draw import table_panels
from creditscope.render.figures import epoch_panels, layer_panels
from creditscope.render.html.network import Network, first_fired, trajectory_columns
from creditscope.render.layers import PAGE, by_layer, functional_section, headline_text, layers_section
from creditscope.render.numbers import mark, shortened, signed
from creditscope.render.plots import figure
from creditscope.render.profile import profile_section
from creditscope.render.report import gamma_text, margin_lines
from creditscope.render.svg import svg
from creditscope.render.tables import kinds, table_json, texts, three_digits
from creditscope.render.words import paragraph, words
from creditscope.tables import Table
from creditscope.training.spec import norm_remark

WARNED = "warned"
TALL = 14
"""Rows from which a table scrolls inside its frame."""
PASS_SENTENCE = "No audited failure was found. This is a minimum bar, not an endorsement."


def figure_of(*panels: Panel, title: str = "", quick: bool = False) -> dict[str, Any]:
    """A figure with its title, its conventions, what could not be drawn, and its text alternative (inside the SVG)."""
    made = figure(panels, columns=3 if quick else None, quick=quick)
    conventions: dict[str, list[str]] = {}
    for panel in panels:
        conventions.setdefault(panel.convention, []).append(panel.title)
    single = len(panels) == 1
    parts = [convention if single else f"{', '.join(names)}: {convention}" for convention, names in conventions.items()]
    return {
        "title": title or panels[0].title,
        "key": panels[0].key,
        "svg": svg(made, panels[0].key),
        "convention": "; ".join(parts),
        "note": made.note,
    }


def tone(status: str, verdicts: Iterable[Verdict]) -> str:
    """The class that colours the verdict of one network, or of all seeds: a pass with a warning is not green."""
    return WARNED if status == "pass" and any(verdict.warned for verdict in verdicts) else status


def verdict_mark(status: str, verdicts: Iterable[Verdict]) -> str:
    return "✓ pass, with a warning" if tone(status, verdicts) == WARNED else mark(status)


def row(network: Network) -> dict[str, Any]:
    """The line of a network in the table of all of them."""
    report, facts, spec = network.report, network.report.facts, network.spec
    shape = f"L={facts.stream.depth}"
    if spec:
        norm = norm_remark(spec["arch"], spec["terminal_norm"])
        shape = f"{spec['arch']} d={spec['width']} L={spec['depth']}{norm}"
    seen = facts.evaluation
    return {
        "network": network,
        "report": report,
        "facts": facts,
        "key": network.key,
        "name": report.method_name or "network",
        "method": str(spec.get("method") or report.method_name or "network"),
        "shape": shape,
        "status": "null" if network.null else report.status,
        "mark": "▫ null" if network.null else verdict_mark(report.status, [report.verdict]),
        "tone": "null" if network.null else tone(report.status, [report.verdict]),
        "chance": seen.chance if seen else None,
        "chance_of": "" if seen is None or seen.largest_class is not None else " (1/C)",
        "evaluated": seen.accuracy if seen else None,
        "own": seen.accuracy if seen and len(report.headline_acc) > 1 else None,
        "gamma": facts.aggregate.headline if facts.aggregate else None,
        "gamma_raw": headline_text(facts),
        "epochs": len(network.trajectory) - 1 if network.trajectory else None,
        **_margin(network),
    }


def section(network: Network) -> dict[str, Any]:
    """Everything on the page of a network."""
    report, facts = network.report, network.report.facts
    shown = row(network)
    run = f"{shown['name']}, {report.notes}" if report.notes else shown["name"]
    columns, fired = trajectory_columns(network), first_fired(network)
    parts = [functional_section(facts)]
    parts += [profile_section(facts.profile)] if facts.profile else []
    parts.append(Section("Depth margin", lines=margin_lines(facts)))
    line = report.verdict.conclusion.removeprefix(f"{report.status}: ")
    return {
        **shown,
        "run_name": shortened(run, 160),
        "verdict": "null (random-blocks baseline), not judged" if network.null else line,
        "sentences": _sentences(network),
        "gamma_text": gamma_text(report),
        "s1": f"S1 {S1_WORDS[s1(facts, report.headline_acc, report.n_test)]}",
        "figure": figure_of(*layer_panels(facts), title="By layer", quick=True),
        "layers": layers_section(facts, PAGE),
        "layers_full": layers_full(facts),
        "parts": [part for part in parts if part.rows or part.lines],
        "certificate": report.certificate and certificate_section(report.certificate),
        "matrix": report.certificate and figure_of(certificate_matrix(report.certificate)),
        "fired": fired,
        "epoch_figure": columns
        and figure_of(*epoch_panels(columns, fired, facts.convention.dtype), title="Over the epochs", quick=True),
        "pairs": {
            f"Convention ({report.protocol})": _flat(facts.convention.model_dump()),
            "Stream": _flat(facts.stream.model_dump()),
            "Spec": _flat(network.spec),
            "Where it comes from": _flat({"run": report.run, "bundle": network.path, **network.versions}),
        },
    }


def layers_full(facts: Facts) -> list[list[str]]:
    """The cells of `layers_section(facts, PAGE)` with all their digits; "" where the cell says everything."""
    found = {name: values for name, values in by_layer(facts).items() if name in PAGE}
    whole = {name: [repr(v) if isinstance(v, float) else "" for v in values] for name, values in found.items()}
    return [list(row) for row in zip(*whole.values(), strict=True)]


def _margin(network: Network) -> dict[str, Any]:
    """This network's own margin, told apart from the mean over seeds that D3 judges."""
    d3, seeds = network.report.checks["D3"].value, len(network.report.headline_acc)
    own = d3 if network.margin_pp is None and seeds == 1 else network.margin_pp
    mean = f"mean margin over {seeds} seeds" if seeds > 1 else "margin"
    parts = [] if d3 is None else [f"{mean} {signed(d3, 1)} pp"]
    if own is not None and seeds > 1:
        parts.append(f"this network {signed(own, 1)} pp")
    null = chosen_margin(network.report.facts)
    kind = f" ({null_name(null.null)})" if null and null.null != "matched" else ""
    alone = "" if d3 is None else f"mean over {seeds} seeds {signed(d3, 1)}"
    cell = alone if own is None else signed(own, 1) + kind
    return {"margin": own, "margin_cell": cell, "margin_told": ", ".join(parts)}


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
            rows.append((name, ", ".join(map(str, value))))
        else:
            rows.append((name, "" if value is None else str(value)))
    return rows


# ---- studies ------------------------------------------------------------------------------------------------------------


def study_section(preset: str, table: Table) -> dict[str, Any]:
    header, rows = texts(three_digits(table))
    panels = table_panels(table, words)
    return {
        "key": f"study-{table.name}-{preset}",
        "name": table.name,
        "preset": preset,
        "question": table.title,
        "conclusion": paragraph(table.conclusion),
        "convention": paragraph(table.convention, ""),
        "notes": table.notes,
        "columns": list(zip(header, kinds(rows) or [""] * len(header), (c.holds for c in table.columns), strict=True)),
        "rows": rows,
        "tall": len(rows) > TALL,
        "figures": [figure_of(*panels, title=f"Figure of the study {table.name}")] if panels else [],
    }


def study_data(preset: str, table: Table) -> dict[str, Any]:
    """What the page holds of a study as JSON."""
    return {"key": f"study-{table.name}-{preset}", "preset": preset, **json.loads(table_json(table))}
