"""The short report of a terminal: the verdict, a line per check, a line per layer. `--long` prints `render.report.sections`."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from creditscope.measure.certificate import UNDETERMINED
from creditscope.protocol.chain import S1_WORDS, s1
from creditscope.protocol.checks import Check, chosen_margin, what_decides
from creditscope.protocol.report import DiagnosticReport
from creditscope.protocol.wording import between, compared, null_name
from creditscope.render.certificate import certificate_title
from creditscope.render.document import Section
from creditscope.render.layers import headline_text, layers_brief
from creditscope.render.numbers import accuracy, interval_of, mark, num, signed
from creditscope.render.text import sheet

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
    told = [pair_text(report)]
    if report.verdict.gamma_withheld and facts.aggregate is not None:
        told.append(
            WITHHELD if report.checks["D2"].value is not None and not report.checks["D2"].diverged else DIVERGED
        )
    layers = layers_brief(facts)
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
        *map(Text, told),
        Text(),
        sheet(Section("", ("", "", ""), check_rows(report), gap=2)),
        Text(),
        sheet(layers),
        *map(Text, layers.lines),
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
    decision = S1_WORDS[s1(report.facts, report.headline_acc, report.n_test)].removeprefix("S1 ")
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
        told = f"{signed(check.value, 1)}{interval} pp over random blocks ({null}), {num(check.threshold)} needed"
        return told if "interval" in check.reason or check.answer != "inconclusive" else f"{told}; {check.reason}"
    symbol = {"D1": "growth ", "D2": "‖g_L‖/128 "}.get(check.id, "")
    tokens = tokens if check.id == "D1" else ""
    if check.answer == "inconclusive" and check.interval:
        return f"{symbol}{num(check.value)} {between(check.interval)} around {num(check.threshold)}{tokens}"
    return f"{symbol}{compared(check.value, check.threshold)}{tokens}; {FINDINGS[check.id, check.answer]}"
