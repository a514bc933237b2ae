"""A report as Markdown. Strings from outside are escaped: they cannot become markup."""

from __future__ import annotations

import re

from creditscope.protocol.report import DiagnosticReport
from creditscope.render.functional import functional_lines, functional_table
from creditscope.render.numbers import accuracy, mark, num, printable, signed
from creditscope.render.profile import HEADER as PROFILE_HEADER
from creditscope.render.profile import profile_lines, profile_rows
from creditscope.render.text import counting_text, gamma_text, headline_text, margin_lines

LONGEST = 500
CAPTION = 2000
"""Letters of a caption or a conclusion, which are longer than what stands in a cell."""


def escape(text: str, longest: int | None = LONGEST) -> str:
    """One line of inert text: markup characters escaped, length limited (None: as long as it is)."""
    text = " ".join(printable(str(text)).split())
    text = text if longest is None or len(text) <= longest else text[: longest - 1] + "…"
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_{}\[\]|~$#!])", r"\\\1", text)
    return re.sub(r"^(\d*)([-+.)])(?=[-+\s]|$)", r"\1\\\2", text)  # "- x", "1. x", "---": no list, no rule


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """A pipe table; cells must be escaped already."""
    return ["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *("| " + " | ".join(r) + " |" for r in rows)]


def report_markdown(report: DiagnosticReport) -> str:
    facts, c = report.facts, report.facts.convention
    lines = [f"## {escape(report.method_name or 'network')}", ""]
    if report.notes:
        lines += [escape(report.notes), ""]
    lines += [f"**{escape(report.verdict.line)}**", ""]
    lines += table(
        ["accuracy + Γ would have claimed", "the protocol finds"],
        [
            [f"accuracy {accuracy(report.headline_acc)}", escape(report.checks["D3"].sentence)],
            [
                f"headline Γ {headline_text(facts)}",
                f"Γ {escape(gamma_text(report))}",
            ],
        ],
    )
    lines += ["", *_checks(report), "", *_layers(report), ""]
    if note := counting_text(facts):
        lines += [escape(note), ""]
    if (al := facts.aggregate) is not None:
        lines += table(
            ["aggregation of Γ", "value"],
            [
                ["mean of the layer means (headline)", headline_text(facts)],
                ["per sample, concatenated over layers", signed(al.concat)],
                ["weighted by ‖g_l‖", signed(al.norm_weighted)],
                ["flattened over samples", signed(al.flattened)],
                ["with eps 1e-8, mean-reduced loss at B = 128", signed(al.clamped_128)],
            ],
        )
        lines.append("")
    header, rows = functional_table(facts)
    if rows:
        lines += [*table(header, rows), ""]
    lines += [f"- {escape(line)}" for line in functional_lines(facts)]
    if facts.profile is not None:
        lines += ["", *table(PROFILE_HEADER, [[*map(escape, row)] for row in profile_rows(facts.profile)]), ""]
        lines += [f"- {escape(line)}" for line in profile_lines(facts.profile)]
    lines += [f"- margin {escape(line)}" for line in margin_lines(facts)]
    lines += [f"- warning: {escape(w)}" for w in report.verdict.warnings]
    if report.verdict.alternative:
        lines.append(f"- {escape(report.verdict.alternative)}")
    if report.chain:
        lines += ["", "From the claim to what holds:", ""]
        lines += [
            f"{k}. {escape(s.title)}: **{escape(s.answer)}**. {escape(s.sentence)}"
            for k, s in enumerate(report.chain, 1)
        ]
    lines += [
        "",
        f"Protocol {escape(report.protocol)}; {c.n_samples} samples ({escape(c.samples)}), loss {escape(c.loss)}, "
        f"{escape(c.reduction)}; "
        f"{escape(c.dtype)}, {escape(c.mode)} mode, {escape(c.checkpoint)} checkpoint; {facts.stream.kind} stream read as "
        f"{escape(facts.stream.read)}; cosine in {escape(c.cosine_dtype)}.",
    ]
    return "\n".join(lines) + "\n"


def _checks(report: DiagnosticReport) -> list[str]:
    rows = [
        [
            check.id,
            check.name,
            mark(check.answer),
            num(check.value),
            f"[{num(check.interval[0])}, {num(check.interval[1])}]" if check.interval else "–",
            escape(check.sentence),
        ]
        for check in report.verdict.checks
    ]
    return table(["", "check", "answer", "value", "95 % interval", "what it says"], rows)


def _layers(report: DiagnosticReport) -> list[str]:
    facts = report.facts
    header = ["l", "mean ‖h_l‖", "‖g_l‖ per sample", "‖g_l‖ / 128", "cos(a_l, g_l)", "sd over samples"]
    al = facts.alignment
    rows = [
        [
            str(layer),
            num(facts.scale.mean[layer]),
            num(facts.reference.per_sample[layer]),
            num(facts.reference.batch_mean_128[layer]),
            signed(al.mean[layer]) + ("" if layer in al.counting_layers else "°") if al else "–",
            num(al.std[layer], 2) if al else "–",
        ]
        for layer in range(facts.stream.depth + 1)
    ]
    return table(header, rows)
