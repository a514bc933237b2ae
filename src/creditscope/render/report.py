"""A report, put together once: its sections as rows and lines, and from them text, Markdown, a notebook card and a data frame.

Text is coloured in a terminal and plain when piped. Strings from outside cannot become markup, commands or lines of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from creditscope.measure.facts import Facts
from creditscope.protocol.chain import S1_WORDS, s1
from creditscope.protocol.checks import Check
from creditscope.protocol.report import DiagnosticReport
from creditscope.protocol.wording import in_percent, null_name, other_reading, over_all_layers
from creditscope.render.brief import brief_parts, cosines, footnotes, layers_brief, norm_title
from creditscope.render.certificate import certificate_lines
from creditscope.render.functional import functional_lines, functional_table
from creditscope.render.markdown import escape
from creditscope.render.numbers import STYLES, accuracy, interval_of, mark, num, percent, printable, share, signed
from creditscope.render.profile import profile_section
from creditscope.render.section import Section
from creditscope.render.text import sheet, to_text
from creditscope.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from creditscope.render.plots import Drawing

WARNINGS = "Warnings"


def text(report: DiagnosticReport, long: bool = False) -> str:
    return to_text(renderable(report, long))


def renderable(report: DiagnosticReport, long: bool = False) -> Group:
    """The verdict first and, for scripts, last; between them the short report or, with `long`, every section."""
    report = inert(report)
    verdict = Text(report.verdict.line, style=STYLES.get(report.status, ""), no_wrap=True, overflow="ignore")
    if not long:
        return Group(*brief_parts(report, headline_text(report.facts), verdict))
    parts: list[RenderableType] = [verdict, Text(), _heading(report)]
    return Group(*parts, *_shown(sections(report)), Text(), verdict)


def _shown(made: Iterable[Section]) -> Iterator[RenderableType]:
    """Sections below one another, with an empty line above each."""
    for section in made:
        yield Text()
        if section.header:
            yield sheet(section)
        elif section.title:
            yield Text(section.title, style="bold yellow" if section.title == WARNINGS else "bold")
        indent, bullet, style = "" if section.header or not section.title else "  ", "", ""
        if section.title == WARNINGS:
            bullet, style = "! ", "yellow"
        yield from (Text(f"{indent}{line}", style=style) for line in section.numbered(bullet))


def null_text(report: DiagnosticReport, long: bool = False) -> str:
    """What is said of a baseline: it is measured like every network, and not judged."""
    report = inert(report)
    acc = report.headline_acc or (() if report.facts.accuracy is None else (report.facts.accuracy,))
    told = f"This is a null (random-blocks baseline): accuracy {accuracy(acc)}. It has no verdict; others are judged against it."
    if long:
        return to_text(Group(Text(told), Text(), _heading(report), *_shown(measured_sections(report))))
    layers = layers_brief(report.facts)
    title = f"{report.method_name or 'network'}" + (f" · {report.notes}" if report.notes else "")
    return to_text(Group(Text(told), Text(title), Text(), sheet(layers), *map(Text, layers.lines)))


def inert(report: DiagnosticReport) -> DiagnosticReport:
    """The same report with nothing in its strings that a terminal would obey and no line that is not ours."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return printable(value)
        if isinstance(value, dict):
            return {key: clean(entry) for key, entry in value.items()}
        return [clean(entry) for entry in value] if isinstance(value, list) else value

    return DiagnosticReport.from_dict(clean(report.to_dict()))


def markdown(report: DiagnosticReport) -> str:
    facts, c = report.facts, report.facts.convention
    lines = [f"## {escape(report.method_name or 'network')}", ""]
    if report.notes:
        lines += [escape(report.notes), ""]
    lines += [f"**{escape(report.verdict.line)}**", ""]
    lines += [line for section in sections(report) for line in section.markdown()]
    lines.append(
        f"Protocol {escape(report.protocol)}; {c.n_samples} samples ({escape(c.samples)}), loss {escape(c.loss)}, "
        f"{escape(c.reduction)}; {escape(c.dtype)}, {escape(c.mode)} mode, {escape(c.checkpoint)} checkpoint; "
        f"{facts.stream.kind} stream read as {escape(facts.stream.read)}; cosine in {escape(c.cosine_dtype)}."
    )
    return "\n".join(lines) + "\n"


def html(report: DiagnosticReport) -> str:
    from creditscope.render.card import card

    checks = checks_section(report)
    return card(
        report.method_name or "network", report.status, [report.notes, report.verdict.line], checks, plot(report)
    )


def plot(report: DiagnosticReport) -> Drawing:
    from creditscope.render.figures import report_figure

    return report_figure(report)


def frame(report: DiagnosticReport) -> Any:
    """One row per layer."""
    return layers_table(report.facts).to_frame()


def layers_table(facts: Facts) -> Table:
    """Every fact that has a value per layer, as numbers."""
    f, layers = facts, range(facts.stream.depth + 1)
    found: dict[str, Sequence[Any]] = {
        "h_norm": f.scale.mean,
        "reference_norm": f.reference.per_sample,
        "reference_norm_128": f.reference.batch_mean_128,
        "clamp_batch_size": f.reference.clamp_batch_size,
        "stability": f.stability.per_layer,
    }
    if (al := f.alignment) is not None:
        found |= {"cosine": al.mean, "cosine_std": al.std, "measurable": al.measurable, "under_floor": al.under_floor}
        found["counts"] = [k in al.counting_layers for k in layers]
    found |= {"rho": f.perturbation.credit.mean} if f.perturbation and f.perturbation.credit else {}
    found |= {"nudging": f.nudging.credit.mean} if f.nudging and f.nudging.credit else {}
    if (p := f.profile) is not None:
        found |= {"readout": [r.accuracy for r in p.curve], "twin_readout": [r.accuracy for r in p.twin]}
    known = {name: values for name, values in found.items() if values}
    rows = [Row({"layer": Cell(k), **{name: Cell(v[k]) for name, v in known.items()}}) for k in layers]
    return Table("layers", "layer by layer", (Column("layer"), *map(Column, known)), tuple(rows))


# ---- what it says -----------------------------------------------------------------------------------------------------


def sections(report: DiagnosticReport) -> list[Section]:
    """What is said of a network, in order; only what there is to say."""
    verdict = report.verdict
    made = [claimed_section(report), checks_section(report), *measured_sections(report)]
    steps = [f"{s.title}: {s.answer}. {s.sentence}" for s in report.chain]
    made.append(Section("From the claim to what holds", lines=steps, ordered=True))
    made.append(Section(WARNINGS, lines=verdict.warnings))
    made.append(Section("", lines=[verdict.alternative] if verdict.alternative else []))
    return [section for section in made if section.rows or section.lines]


def measured_sections(report: DiagnosticReport) -> list[Section]:
    """What was measured, without what is judged by it."""
    facts = report.facts
    made = [layers_section(facts), functional_section(facts)]
    if not made[1].rows:  # nothing per layer: its lines stand below the layers
        made = [replace(made[0], lines=[*made[0].lines, *made[1].lines])]
    if facts.profile is not None:
        made.append(profile_section(facts.profile))
    if facts.depth is not None:
        title = "Depth margin (accuracy of the trained network minus that of its null, the random-blocks baseline)"
        made.append(Section(title, lines=margin_lines(facts)))
    if report.certificate is not None:
        made.append(Section("Locality of the update", lines=certificate_lines(report.certificate)))
    return [section for section in made if section.rows or section.lines]


def _heading(report: DiagnosticReport) -> Text:
    facts, c = report.facts, report.facts.convention
    title = report.method_name or "network"
    head = Text(f"creditscope · {title}" + (f" · {report.notes}" if report.notes else ""), style="bold")
    lines = [
        f"protocol {report.protocol} · {c.n_samples} samples ({c.samples}) in batches of {', '.join(map(str, c.batch_sizes))} · "
        f"{c.dtype} · {c.mode} mode · {c.checkpoint} checkpoint" + (f" · run {report.run[:10]}" if report.run else ""),
        f"{facts.stream.kind} stream, L = {facts.stream.depth}, read: {facts.stream.read}; {c.layers}",
    ]
    lines += [f"note: {note}" for note in facts.stream.notes]
    return Text.assemble(head, "\n", "\n".join(lines))


def claimed_section(report: DiagnosticReport) -> Section:
    d3 = report.checks["D3"]
    found = f"D3 {mark(d3.answer)}" + (f": margin {signed(d3.value, 1)} pp" if d3.value is not None else "")
    if report.status == "inconsistent" and (seen := report.facts.evaluation):
        found = f"{share(seen.accuracy)} on the evaluation batches; D3 not judged"
    rows = [
        [f"accuracy {accuracy(report.headline_acc)}", found],
        [f"headline Γ {headline_text(report.facts)}", f"Γ {gamma_text(report)}"],
    ]
    decision = S1_WORDS[s1(report.facts, report.headline_acc, report.n_test)]
    rows.append([f"{decision} (accuracy above chance, Γ > 0)", report.verdict.line.removeprefix("VERDICT: ")])
    return Section("", ("accuracy + Γ alone", "the protocol finds"), rows)


def headline_text(facts: Facts) -> str:
    """Headline Γ with the number of layers behind it where it is not all that count, and Γ over all layers where it differs."""
    if facts.aggregate is None:
        return signed(None)
    behind = facts.alignment.layers_behind if facts.alignment else ""
    return signed(facts.aggregate.headline) + behind + other_reading(facts.aggregate)


def gamma_text(report: DiagnosticReport) -> str:
    """Headline Γ, or why it is not shown as a result."""
    if report.facts.aggregate is None:
        return "not measured (no credit given)"
    raw = headline_text(report.facts)
    return f"withheld: not interpretable here (raw {raw})" if report.verdict.gamma_withheld else raw


def checks_section(report: DiagnosticReport) -> Section:
    rows = [
        [
            c.id,
            c.name,
            mark(c.answer, c.id),
            num(c.value),
            check_interval(c),
            c.sentence,
        ]
        for c in report.verdict.checks
    ]
    return Section("Checks", ("", "check", "answer", "value", "95 % interval", "what it says"), rows, gap=2)


def check_interval(check: Check) -> str:
    """The 95 % interval of a check; that of D3 no further than percentage points go."""
    if check.interval is None:
        return "–"
    return interval_of(*check.interval) if check.id == "D3" else f"[{num(check.interval[0])}, {num(check.interval[1])}]"


def layers_section(facts: Facts, clamp: bool = False) -> Section:
    """`clamp`: with the batch size from which on a usual cosine is clamped."""
    al = facts.alignment
    columns: dict[str, list[str]] = {
        "l": [str(k) for k in range(facts.stream.depth + 1)],
        norm_title(facts): [*map(num, facts.scale.mean)],
        "‖g_l‖ per sample": [*map(num, facts.reference.per_sample)],
        "‖g_l‖ / 128": [*map(num, facts.reference.batch_mean_128)],
    }
    if clamp:
        columns["clamp batch size"] = [*map(num, facts.reference.clamp_batch_size)]
    if al is not None:
        columns |= {
            "cos(a_l, g_l)": cosines(facts),
            "sd over samples": [num(v, 2) for v in al.std],
            "measurable": [*map(str, al.measurable)],
            "under floor": [*map(percent, al.under_floor)],
        }
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return Section(
        "Layers", [*columns], rows, _below_layers(facts), numbers=True, empty="no credit, or no cosine, at this layer"
    )


def _below_layers(facts: Facts) -> list[str]:
    lines = footnotes(facts)
    whole = facts.scale.growth_all_tokens
    tokens = "" if whole is None else f"; {num(whole)} over all tokens"
    lines.append(
        f"growth {num(facts.scale.growth)} (largest step between layers{tokens}), total {num(facts.scale.total_growth)}; "
        f"clamp batch size at h_L {num(facts.reference.clamp_batch_size[-1])} (there ‖g_L‖ / B is 10 x the cosine eps 1e-8)"
    )
    if (ag := facts.aggregate) is not None and (c := facts.concentration) is not None:
        lines.append(
            f"Γ by aggregation: mean of layers {headline_text(facts)} · concatenated {signed(ag.concat)} · norm-weighted "
            f"{signed(ag.norm_weighted)} · flattened {signed(ag.flattened)} · clamped at B=128 {signed(ag.clamped_128)}"
        )
        lines.append(
            f"deep mean (layers of 1..L that count) {signed(c.deep_mean)}"
            f"{f', without exact layers {signed(c.deep_mean_without_exact)}' if c.exact_layers else ''}"
            f"{over_all_layers(c.deep_mean, c.deep_mean_all_layers)}; "
            f"largest share {num(c.top_share, 2)} at layer {c.top_layer if c.top_layer is not None else '–'}"
        )
    s = facts.stability
    if s.deepest is None:
        lines.append(f"stability not measured: {s.reason}")
    else:
        lines.append(f"stability of the direction of g_L {signed(s.deepest)} over {s.groups} groups of 128 samples")
    return lines


def functional_section(facts: Facts) -> Section:
    """The full level, where it was measured."""
    header, rows = functional_table(facts)
    return Section("Functional metrics", header, rows, functional_lines(facts), numbers=True, gap=2)


def margin_lines(facts: Facts) -> list[str]:
    """One line per null, then what backpropagation itself gains."""
    lines: list[str] = []
    if facts.depth is None:
        return lines
    named = [(f"to {null_name(m.null)}", m) for m in facts.depth.margins]
    named += [("of backpropagation to its null", facts.depth.bp_margin)] if facts.depth.bp_margin else []
    for name, m in named:
        interval = f" {interval_of(m.low_pp, m.high_pp)}" if m.low_pp is not None else ""
        binomial = f"; binomial se {m.binomial_se_pp:.2f} pp" if m.binomial_se_pp is not None else ""
        terms = f"{in_percent(m.accuracy)} - {in_percent(m.null_accuracy)} = {signed(m.margin_pp, 1)} pp"
        lines.append(f"{name}: {terms}{interval} ({m.interval}{binomial})")
    return lines
