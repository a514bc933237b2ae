"""The short report of a terminal: the verdict, a line per check, a line per layer. `--long` prints `render.report.sections`."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from creditscope.measure.certificate import UNDETERMINED
from creditscope.measure.facts import Facts
from creditscope.protocol.chain import S1_WORDS, s1
from creditscope.protocol.checks import Check, chosen_margin, what_decides
from creditscope.protocol.report import DiagnosticReport
from creditscope.protocol.wording import between, compared, null_name
from creditscope.render.certificate import certificate_title
from creditscope.render.numbers import accuracy, interval_of, mark, num, percent, share, signed
from creditscope.render.section import Section
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


def brief_parts(report: DiagnosticReport, headline: str, verdict: Text) -> list[RenderableType]:
    """`headline`: Γ as every format prints it. The verdict stands first and, for scripts, last."""
    facts, c = report.facts, report.facts.convention
    told = [pair_text(report, headline)]
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
        Text(f"{report.method_name or 'network'}" + (f" · {report.notes}" if report.notes else ""), style="bold"),
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


def pair_text(report: DiagnosticReport, headline: str) -> str:
    """The two numbers that papers report, and what strategy S1 decides by them."""
    decision = S1_WORDS[s1(report.facts, report.headline_acc, report.n_test)].removeprefix("S1 ")
    acc = report.headline_acc or (() if report.facts.accuracy is None else (report.facts.accuracy,))
    gamma = "Γ not measured" if report.facts.aggregate is None else f"Γ {headline}"
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


def layers_brief(facts: Facts) -> Section:
    """Scale, reference, cosine and, where they were measured, ρ and the readouts, layer by layer."""
    al = facts.alignment
    columns: dict[str, list[str]] = {
        "l": [str(k) for k in range(facts.stream.depth + 1)],
        norm_title(facts): [*map(num, facts.scale.mean)],
        "‖g_l‖/128": [*map(num, facts.reference.batch_mean_128)],
    }
    lines = []
    if al is not None:
        columns["cos(a_l, g_l)"] = cosines(facts)
        columns["sd"] = [num(v, 2) for v in al.std]
        columns["under floor"] = [*map(percent, al.under_floor)]
        lines += footnotes(facts)
    if (p := facts.perturbation) is not None and p.credit is not None:
        columns["ρ(a)"] = [*map(signed, p.credit.mean)]
    if (profile := facts.profile) is not None:
        columns["readout"] = [share(r.accuracy) for r in profile.curve]
        columns["twin"] = [share(r.accuracy) for r in profile.twin]
        lines.append("readout: accuracy of a linear readout of the normalised h_l; twin: the same with random blocks")
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    if profile is not None and profile.raw is not None:
        of_input = {"l": "input", "readout": share(profile.raw.accuracy)}
        rows.insert(0, [of_input.get(name, "") for name in columns])
    return Section("", [*columns], rows, lines, numbers=True, gap=2)


def norm_title(facts: Facts) -> str:
    """Of the column of ‖h_l‖, with the vector that it is of."""
    return "mean ‖h_l‖" + (f" ({facts.stream.vector})" if facts.stream.vector else "")


def cosines(facts: Facts) -> list[str]:
    """With * where the credit is exact by construction, ° where it trains nothing."""
    al, exact = facts.alignment, facts.concentration.exact_layers if facts.concentration else ()
    return [
        signed(v) + ("*" if k in exact else "") + ("" if k in al.counting_layers else "°")
        for k, v in enumerate(al.mean if al else ())
        if al
    ]


def footnotes(facts: Facts) -> list[str]:
    """What * and ° mean, and which layers count."""
    exact = facts.alignment and facts.concentration and facts.concentration.exact_layers
    lines = ["* exact by construction: the credit is the reference itself"] if exact else []
    if (al := facts.alignment) is not None and al.counting_note:
        lines.append(("° " if len(al.counting_layers) < len(al.mean) else "") + al.counting_note)
    return lines
