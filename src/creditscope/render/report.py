"""A report, put together once: its sections as rows and lines, and from them text, Markdown, a notebook card and a data frame.

Text is coloured in a terminal and plain when piped. Strings from outside cannot become markup, commands or lines of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from creditscope.measure.certificate import UNDETERMINED
from creditscope.measure.facts import Facts
from creditscope.protocol.chain import S1_WORDS, s1
from creditscope.protocol.checks import CHANCE, Check, chosen_margin, what_decides
from creditscope.protocol.report import DiagnosticReport
from creditscope.protocol.wording import between, compared, in_percent, null_name
from creditscope.render.card import card
from creditscope.render.certificate import certificate_lines, certificate_title
from creditscope.render.document import Section, to_markdown
from creditscope.render.layers import by_layer, functional_section, headline_text, layers_brief, layers_section
from creditscope.render.markdown import LONGEST, escape
from creditscope.render.numbers import STYLES, accuracy, interval_of, mark, num, printable, share, signed
from creditscope.render.profile import profile_section
from creditscope.render.text import sheet, shown, to_text
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
        return Group(*brief_parts(report, verdict))
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
    line = (
        f"This is a null (random-blocks baseline): accuracy {accuracy(accuracies(report))}. It has no verdict; others are "
        "judged against it."
    )
    if long:
        return to_text(Group(Text(line), Text(), _heading(report), *_shown(measured_sections(report))))
    return to_text(Group(Text(line), Text(title(report)), Text(), shown(layers_brief(report.facts))))


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
    head = [Section(report.method_name or "network", level=2, text=report.notes), Section(report.verdict.line)]
    return to_markdown([*head, *sections(report)], LONGEST) + (
        f"\nProtocol {escape(report.protocol)}; {c.n_samples} samples ({escape(c.samples)}), loss {escape(c.loss)}, "
        f"{escape(c.reduction)}; {escape(c.dtype)}, {escape(c.mode)} mode, {escape(c.checkpoint)} checkpoint; "
        f"{facts.stream.kind} stream read as {escape(facts.stream.read)}; cosine in {escape(c.cosine_dtype)}.\n"
    )


def html(report: DiagnosticReport) -> str:
    checks = checks_section(report)
    return card(
        report.method_name or "network", report.status, [report.notes, report.verdict.line], checks, plot(report)
    )


def plot(report: DiagnosticReport) -> Drawing:
    from creditscope.render.figures import report_figure

    return report_figure(report)


def frame(report: DiagnosticReport) -> Any:
    """One row per layer."""
    found = by_layer(report.facts)
    rows = tuple(Row({name: Cell(values[k]) for name, values in found.items()}) for k in found["layer"])
    return Table("layers", "layer by layer", tuple(map(Column, found)), rows).to_frame()


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
        about = "Depth margin (accuracy of the trained network minus that of its null, the random-blocks baseline)"
        made.append(Section(about, lines=margin_lines(facts)))
    if report.certificate is not None:
        made.append(Section("Locality of the update", lines=certificate_lines(report.certificate)))
    return [section for section in made if section.rows or section.lines]


def _heading(report: DiagnosticReport) -> Text:
    facts, c = report.facts, report.facts.convention
    head = Text(f"creditscope · {title(report)}", style="bold")
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
    rows.append([f"S1 {decision} (accuracy above chance, Γ > 0)", report.verdict.conclusion])
    return Section("", ("accuracy + Γ alone", "the protocol finds"), rows)


def gamma_text(report: DiagnosticReport) -> str:
    """Headline Γ, or why it is not shown as a result."""
    if report.facts.aggregate is None:
        return "not measured (no credit given)"
    raw = headline_text(report.facts)
    return f"withheld: not interpretable here (raw {raw})" if report.verdict.gamma_withheld else raw


def checks_section(report: DiagnosticReport) -> Section:
    rows = [
        [c.id, c.name, mark(c.answer, c.id), num(c.value), check_interval(c), c.sentence] for c in report.verdict.checks
    ]
    return Section("Checks", ("", "check", "answer", "value", "95 % interval", "what it says"), rows, gap=2)


def check_interval(check: Check) -> str:
    """The 95 % interval of a check; that of D3 no further than percentage points go."""
    if check.interval is None:
        return "–"
    return interval_of(*check.interval) if check.id == "D3" else f"[{num(check.interval[0])}, {num(check.interval[1])}]"


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


# ---- the short report of a terminal: the verdict, a line per check, a line per layer ---------------------------------------


FINDINGS = {
    ("D1", "pass"): "the scale is stable",
    ("D1", "fail"): "the stream explodes within one block",
    ("D2", "pass"): "above the numerical floor",
    ("D2", "fail"): "at the numerical floor",
    ("C", "pass"): "each batch has its own direction (decides nothing)",
    ("C", "fail"): "all batches share one direction, a drift (decides nothing)",
}
WITHHELD = "Γ does not count (D2): clamped or not, it is an angle to a gradient that has all but vanished"
DIVERGED = "Γ does not count: NaN or Inf was met"
REST = "the rest: --long, to_text(long=True)"


def brief_parts(report: DiagnosticReport, verdict: Text) -> list[RenderableType]:
    """The verdict stands first and, for scripts, last."""
    facts, c = report.facts, report.facts.convention
    lines = [pair_text(report)]
    if report.verdict.gamma_withheld and facts.aggregate is not None:
        lines.append(
            WITHHELD if report.checks["D2"].value is not None and not report.checks["D2"].diverged else DIVERGED
        )
    below = [f"D3: {todo}" for todo in [what_decides(facts, report.checks["D3"])] if todo]
    below += [f"! {warning}" for warning in report.verdict.warnings]
    below += [report.verdict.alternative] if report.verdict.alternative else []
    if (found := report.certificate) is not None:
        below.append(certificate_title(found) + (f": {found.reason}" if found.label == UNDETERMINED else ""))
    below += [f"note: {note}" for note in facts.stream.notes]
    run = f" · run {report.run[:10]}" if report.run else ""
    convention = f"{report.protocol} · {c.n_samples:,} samples · {c.dtype}{run} · {REST}"
    return [
        verdict,
        Text(title(report), style="bold"),
        *map(Text, lines),
        Text(),
        sheet(Section("", ("", "", ""), check_rows(report), gap=2)),
        Text(),
        shown(layers_brief(facts)),
        Text(),
        *(Text(line, style="yellow" if line.startswith("! ") else "") for line in below),
        Text(convention, style="dim"),
        verdict,
    ]


def title(report: DiagnosticReport) -> str:
    return f"{report.method_name or 'network'}" + (f" · {report.notes}" if report.notes else "")


def accuracies(report: DiagnosticReport) -> tuple[float, ...]:
    """Those that are claimed; where none are, that of the network."""
    return report.headline_acc or (() if report.facts.accuracy is None else (report.facts.accuracy,))


def pair_text(report: DiagnosticReport) -> str:
    """The two numbers that papers report, and what strategy S1 decides by them."""
    decision = S1_WORDS[s1(report.facts, report.headline_acc, report.n_test)]
    acc = accuracies(report)
    gamma = "Γ not measured" if report.facts.aggregate is None else f"Γ {headline_text(report.facts)}"
    gamma += " (this network)" if report.facts.aggregate is not None and len(acc) > 1 else ""
    return f"accuracy {accuracy(acc)}, {gamma}: S1 (above chance, Γ > 0) {decision}"


def check_rows(report: DiagnosticReport) -> list[list[str]]:
    """Id, answer, and one line: number, threshold, finding. `report.checks[id].sentence` has the conventions."""
    margin = chosen_margin(report.facts)
    null = "" if margin is None else null_name(margin.null) + (f", n={margin.n}" if margin.n > 1 else "")
    whole = report.facts.scale.growth_all_tokens
    tokens = "" if whole is None else f" ({num(whole)} over all tokens)"
    return [[c.id, mark(c.answer, c.id), f"{c.name}: {_finding(c, null, tokens)}"] for c in report.verdict.checks]


def _finding(check: Check, null: str, tokens: str) -> str:
    if check.value is None or check.diverged or check.answer not in ("pass", "fail", "inconclusive"):
        return check.reason
    if check.id == "D3":
        interval = f" {interval_of(*check.interval)}" if check.interval else ""
        margin = f"{signed(check.value, 1)}{interval} pp over random blocks ({null}), {num(check.threshold)} needed"
        return f"{margin}; {check.reason}" if check.reason == CHANCE else margin
    symbol = {"D1": "growth ", "D2": "‖g_L‖/128 "}.get(check.id, "")
    tokens = tokens if check.id == "D1" else ""
    if check.answer == "inconclusive" and check.interval:
        return f"{symbol}{num(check.value)} {between(check.interval)} around {num(check.threshold)}{tokens}"
    return f"{symbol}{compared(check.value, check.threshold)}{tokens}; {FINDINGS[check.id, check.answer]}"
