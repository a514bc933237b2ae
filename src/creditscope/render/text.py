"""A report as text: coloured in a terminal, plain when piped."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from creditscope.measure.facts import Facts
from creditscope.protocol.report import DiagnosticReport
from creditscope.protocol.wording import other_reading, over_all_layers
from creditscope.render.certificate import certificate_lines
from creditscope.render.functional import functional_lines, functional_table
from creditscope.render.numbers import STYLES, accuracy, mark, num, printable, signed
from creditscope.render.profile import HEADER as PROFILE_HEADER
from creditscope.render.profile import TITLE as PROFILE
from creditscope.render.profile import profile_lines, profile_rows
from creditscope.render.sheet import Sheet

WIDTH = 118


def columns() -> int:
    """Of the terminal; where output goes elsewhere, as many as a report takes."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH


def to_text(content: RenderableType, width: int | None = None) -> str:
    """Render for standard output as it is now: colour only if it is a terminal; no wider than it, or than a report is."""
    width = width or min(WIDTH, columns())
    colour = sys.stdout.isatty()
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, force_terminal=colour, no_color=not colour or None, highlight=False)
    console.print(content, crop=False)  # the verdict is one line, however long
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines())


def report_text(report: DiagnosticReport) -> str:
    return to_text(report_renderable(report))


def inert(report: DiagnosticReport) -> DiagnosticReport:
    """The same report with nothing in its strings that a terminal would obey and no line that is not ours."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return printable(value)
        if isinstance(value, dict):
            return {key: clean(entry) for key, entry in value.items()}
        return [clean(entry) for entry in value] if isinstance(value, list) else value

    return DiagnosticReport.from_dict(clean(report.to_dict()))


def report_renderable(report: DiagnosticReport) -> Group:
    report = inert(report)
    facts, parts = report.facts, []  # type: Facts, list[RenderableType]
    parts.append(_heading(report))
    parts += [Text(), _claimed(report), Text(), _checks(report), Text(), _layers(facts)]
    parts += [Text(line) for line in _below_layers(facts)]
    parts += _functional(facts)
    if facts.profile is not None:
        parts += [Text(), _sheet(PROFILE, PROFILE_HEADER, profile_rows(facts.profile), right=range(1, 5))]
        parts += [Text(line) for line in profile_lines(facts.profile)]
    if facts.depth is not None:
        parts += [Text(), Text("Depth margin (accuracy of the trained network minus frozen-blocks null)", style="bold")]
        parts += [Text(f"  {line}") for line in margin_lines(facts)]
    if report.certificate is not None:
        parts += [Text(), Text("Locality of the update", style="bold")]
        parts += [Text(f"  {line}") for line in certificate_lines(report.certificate)]
    if report.chain:
        parts += [Text(), Text("From the claim to what holds", style="bold")]
        parts += [
            Text(f"  {k}. {step.title}: {step.answer}. {step.sentence}") for k, step in enumerate(report.chain, 1)
        ]
    if report.verdict.warnings:
        parts += [Text(), Text("Warnings", style="bold yellow")]
        parts += [Text(f"  ! {warning}", style="yellow") for warning in report.verdict.warnings]
    if report.verdict.alternative:
        parts += [Text(), Text(report.verdict.alternative)]
    parts += [Text(), Text(report.verdict.line, style=STYLES.get(report.status, ""), no_wrap=True, overflow="ignore")]
    return Group(*parts)


def _heading(report: DiagnosticReport) -> Text:
    facts, c = report.facts, report.facts.convention
    title = report.method_name or "network"
    head = Text(f"creditscope · {title}" + (f" · {report.notes}" if report.notes else ""), style="bold")
    lines = [
        f"protocol {report.protocol} · {c.n_samples} samples ({c.samples}) in batches of {_sizes(c.batch_sizes)} · "
        f"{c.dtype} · {c.mode} mode · {c.checkpoint} checkpoint" + (f" · run {report.run[:10]}" if report.run else ""),
        f"{facts.stream.kind} stream, L = {facts.stream.depth}, read: {facts.stream.read}; {c.layers}",
    ]
    lines += [f"note: {note}" for note in facts.stream.notes]
    return Text.assemble(head, "\n", "\n".join(lines))


def _sizes(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))


def headline_text(facts: Facts) -> str:
    """Headline Γ with the number of layers behind it where it is not all that count, and Γ over all layers where it differs."""
    if facts.aggregate is None:
        return signed(None)
    behind = facts.alignment.layers_behind if facts.alignment else ""
    return signed(facts.aggregate.headline) + behind + other_reading(facts.aggregate)


def counting_text(facts: Facts) -> str:
    """Which layers count and why, with the mark that the others bear; "" where it goes without saying."""
    aligned = facts.alignment
    if aligned is None or not aligned.counting_note:
        return ""
    return ("° " if len(aligned.counting_layers) < len(aligned.mean) else "") + aligned.counting_note


def gamma_text(report: DiagnosticReport) -> str:
    """Headline Γ, or why it is not shown as a result."""
    if report.facts.aggregate is None:
        return "not measured (no credit given)"
    raw = headline_text(report.facts)
    return f"withheld: not interpretable here (raw {raw})" if report.verdict.gamma_withheld else raw


def _claimed(report: DiagnosticReport) -> Sheet:
    rows = [
        (f"accuracy {accuracy(report.headline_acc)}", _found_accuracy(report)),
        (f"headline Γ {headline_text(report.facts)}", f"Γ {gamma_text(report)}"),
    ]
    header = ("accuracy + Γ would have claimed", "the protocol finds")
    return Sheet(header, rows, box=None, pad_edge=False, padding=(0, 3, 0, 0))


def _found_accuracy(report: DiagnosticReport) -> str:
    d3 = report.checks["D3"]
    if report.status == "inconsistent" and (seen := report.facts.evaluation):
        return f"{seen.accuracy:.3f} on the evaluation batches; D3 not judged"
    return f"D3 {mark(d3.answer)}" + (f": margin {signed(d3.value, 1)} pp" if d3.value is not None else "")


def _sheet(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str | Text]], gap: int = 3, **where: Any
) -> Sheet:
    """A table of the report: a title, no lines."""
    look: dict[str, Any] = {
        "title": title,
        "title_justify": "left",
        "title_style": "bold",
        "box": None,
        "pad_edge": False,
    }
    return Sheet(header, rows, padding=(0, gap, 0, 0), **look, **where)


def _checks(report: DiagnosticReport) -> Sheet:
    rows: list[list[str | Text]] = []
    for check in report.verdict.checks:
        interval = f"[{num(check.interval[0])}, {num(check.interval[1])}]" if check.interval else "–"
        answer = Text(mark(check.answer), style=STYLES.get(check.answer, "dim"))
        rows.append([check.id, check.name, answer, num(check.value), interval, check.sentence])
    return _sheet("Checks", ("", "check", "answer", "value", "95 % interval", "what it says"), rows, gap=2)


def _layers(facts: Facts) -> Sheet:
    header = ["l", "mean ‖h_l‖", "‖g_l‖ per sample", "‖g_l‖ / 128"]
    if facts.alignment is not None:
        header += ["cos(a_l, g_l)", "sd over samples", "measurable", "under floor"]
    exact = facts.concentration.exact_layers if facts.concentration else ()
    rows = []
    for layer in range(facts.stream.depth + 1):
        ref = facts.reference
        row = [str(layer), num(facts.scale.mean[layer]), num(ref.per_sample[layer]), num(ref.batch_mean_128[layer])]
        if (al := facts.alignment) is not None:
            cos = (
                signed(al.mean[layer]) + ("*" if layer in exact else "") + ("" if layer in al.counting_layers else "°")
            )
            row += [cos, num(al.std[layer], 2), str(al.measurable[layer]), f"{al.under_floor[layer]:.0%}"]
        rows.append(row)
    return _sheet("Layers", header, rows, right=range(len(header)))


def _functional(facts: Facts) -> list[RenderableType]:
    """The full level, where it was measured."""
    parts: list[RenderableType] = []
    header, rows = functional_table(facts)
    if rows:
        parts += [Text(), _sheet("Functional metrics", header, rows, gap=2, right=range(len(header)))]
    return parts + [Text(line) for line in functional_lines(facts)]


def _below_layers(facts: Facts) -> list[str]:
    lines = []
    if facts.concentration and facts.concentration.exact_layers:
        lines.append("* exact by construction: the credit is the reference itself")
    if note := counting_text(facts):
        lines.append(note)
    lines.append(
        f"growth {num(facts.scale.growth)} (largest step between layers), total {num(facts.scale.total_growth)}; "
        f"clamp batch size at h_L {num(facts.reference.clamp_batch_size[-1])} (there ‖g_L‖ / B is 10 x the cosine eps 1e-8)"
    )
    if (al := facts.aggregate) is not None and facts.concentration is not None:
        lines.append(
            f"Γ by aggregation: mean of layers {headline_text(facts)} · concatenated {signed(al.concat)} · norm-weighted "
            f"{signed(al.norm_weighted)} · flattened {signed(al.flattened)} · clamped at B=128 {signed(al.clamped_128)}"
        )
        c = facts.concentration
        lines.append(
            f"deep mean (layers of 1..L that count) {signed(c.deep_mean)}, without exact layers "
            f"{signed(c.deep_mean_without_exact)}{over_all_layers(c.deep_mean, c.deep_mean_all_layers)}; "
            f"largest share {num(c.top_share, 2)} at layer {c.top_layer if c.top_layer is not None else '–'}"
        )
    s = facts.stability
    if s.deepest is None:
        lines.append(f"stability not measured: {s.reason}")
    else:
        lines.append(f"stability of the direction of g_L {signed(s.deepest)} over {s.groups} groups of 128 samples")
    return lines


def margin_lines(facts: Facts) -> list[str]:
    """One line per null, then what backpropagation itself gains."""
    lines: list[str] = []
    if facts.depth is None:
        return lines
    named = [(f"to {m.null} null", m) for m in facts.depth.margins]
    named += [("of backpropagation to its null", facts.depth.bp_margin)] if facts.depth.bp_margin else []
    for name, m in named:
        interval = f" [{signed(m.low_pp, 1)}, {signed(m.high_pp, 1)}]" if m.low_pp is not None else ""
        binomial = f"; binomial se {m.binomial_se_pp:.2f} pp" if m.binomial_se_pp is not None else ""
        lines.append(
            f"{name}: {m.accuracy:.3f} - {m.null_accuracy:.3f} = {signed(m.margin_pp, 1)} pp{interval} ({m.interval}{binomial})"
        )
    return lines
