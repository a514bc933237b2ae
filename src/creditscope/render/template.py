"""The reporting section of a paper, filled from reports: every number stands next to the hash of the run it comes from."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.protocol.report import DiagnosticReport
from creditscope.render.document import Block, Heading, Items, Paragraph, Table, clip
from creditscope.render.numbers import accuracy, interval_of, num, share, signed
from creditscope.render.report import gamma_text
from creditscope.render.template_facts import (
    Entry,
    Null,
    aggregations,
    functional,
    key,
    layers,
    locality,
    reference,
    short,
)
from creditscope.training.spec import RunSpec

__all__ = ["Entry", "Null", "reporting_section"]


def reporting_section(entries: Sequence[Entry]) -> list[Block]:
    """The whole section."""
    blocks: list[Block] = [
        Heading("How credit was measured and what was found"),
        Paragraph(
            "Filled by creditscope from the files of the runs. The column “run” has the first characters of the hash of the "
            "run's specification; the last table has the whole hashes. A pass means that no audited failure was found: a "
            "minimum bar, not an endorsement."
        ),
        *_protocol(entries),
    ]
    for entry in entries:
        name = clip(entry.label or "network", 80)
        blocks += [
            Heading(name, 3),
            *_verdict(entry),
            *_trained(entry),
            *_networks(entry),
            *_nulls(entry),
            *layers(entry),
            *reference(entry),
            *aggregations(entry),
            *functional(entry),
            *locality(entry),
        ]
    return [*blocks, *_hashes(entries)]


def _protocol(entries: Sequence[Entry]) -> list[Block]:
    reports = [r for e in entries for r in e.reports]
    conventions = dict.fromkeys(_convention(r) for r in reports)
    rows = {(c.id, c.name, num(c.threshold), clip(c.convention)): r.protocol for r in reports for c in r.verdict.checks}
    versions = ", ".join(dict.fromkeys(clip(r.protocol, 60) for r in reports))
    return [
        Heading("Protocol and thresholds", 3),
        Paragraph(f"Protocol {versions}. Thresholds as they were used:"),
        Table(["check", "name", "threshold", "convention"], list(rows), widths=(6, 16, 12, 60)),
        Paragraph("Measured on: " + "; ".join(conventions) + "."),
    ]


def _convention(report: DiagnosticReport) -> str:
    c = report.facts.convention
    return (
        f"{c.n_samples} samples ({clip(c.samples, 80)}), loss {clip(c.loss, 80)}, reduction {clip(c.reduction)}, {c.dtype}, "
        f"{clip(c.mode, 40)} mode, {clip(c.checkpoint, 40)} checkpoint; cosine in {clip(c.cosine_dtype, 80)}"
    )


def _verdict(entry: Entry) -> list[Block]:
    lines: dict[tuple[str, ...], list[str]] = {}
    for r in entry.reports:
        reasons = r.verdict.reasons or tuple(c.sentence for c in r.verdict.checks if c.answer not in ("pass", "fail"))
        told = (clip(r.verdict.line.removeprefix("VERDICT: ")), *map(clip, reasons), *map(clip, r.verdict.warnings))
        lines.setdefault(told, []).append(short(key(r)))
    items = [
        f"Verdict (run{'s' if len(runs) > 1 else ''} {', '.join(runs)}): {'. '.join(map(_begun, told))}."
        for told, runs in lines.items()
    ]
    return [Items(items)]


def _begun(sentence: str) -> str:
    """With a capital letter, where it begins with a word and not with a symbol."""
    return sentence[:1].upper() + sentence[1:] if sentence.split(" ", maxsplit=1)[0].isalpha() else sentence


def _trained(entry: Entry) -> list[Block]:
    if entry.spec is None:
        return [
            Paragraph(
                "What was trained (data set, architecture, credit rule with its normalisation and site, optimiser, epochs, batch "
                "size, augmentation): to be answered by the author; the report does not hold it."
            )
        ]
    runs = ", ".join(short(key(r)) for r in entry.reports)
    rows = [[name, clip(value, 120)] for name, value in _settings(entry.spec) if name != "seed"]
    return [Table(["setting", "value"], rows, f"What was trained (runs {runs}).", widths=(20, 60))]


def _settings(spec: RunSpec) -> list[tuple[str, str]]:
    rows = []
    for name, value in spec.model_dump().items():
        if isinstance(value, dict):
            rows += [(f"{name}.{k}", str(v)) for k, v in value.items()]
        elif isinstance(value, list | tuple):
            rows.append((name, ", ".join(map(str, value)) or "none"))
        else:
            missing = "all blocks" if name == "train_last" else "does not apply"
            rows.append((name, missing if value is None else str(value)))
    return [*rows, ("optimiser", "AdamW, cosine schedule")]


def _networks(entry: Entry) -> list[Block]:
    rows = []
    for r, acc, seed in zip(entry.reports, entry.accuracies, entry.seeds, strict=True):
        f = r.facts
        whose = [short(key(r)), "–" if seed is None else str(seed), share(acc, 4), gamma_text(r)]
        sizes = [num(f.scale.growth), num(f.reference.batch_mean_128[-1]), signed(f.stability.deepest)]
        rows.append([*whose, *sizes, r.status])
    header = ["run", "seed", "accuracy", "headline Γ", "growth", "‖g_L‖/128", "stability", "status"]
    known, several = entry.stated, ", mean ± sample standard deviation" if len(entry.stated) > 1 else ""
    seeds = [str(s) for s in entry.seeds if s is not None]
    told = f"Accuracy {accuracy(known)}{several}. " if known else ""
    if seeds:
        told += f"Seeds {', '.join(seeds)}: every finished run of this recipe in the files, none selected."
    else:
        told += "Seeds: to be answered by the author; the reports do not hold them."
    blocks: list[Block] = [Table(header, rows, told)]
    return [*blocks, Items(list(map(clip, entry.remarks)))] if entry.remarks else blocks


def _nulls(entry: Entry) -> list[Block]:
    depth = entry.reports[0].facts.depth
    if depth is None or not depth.margins:
        return [
            Paragraph(
                "Nulls (random-blocks baselines): none is in the files, so D3 is not measured. To be answered by the author: how "
                "do the trained blocks compare with untrained ones, by the same rule (matched) and by backpropagation (bp)?"
            )
        ]
    runs = ", ".join(short(key(r)) for r in entry.reports)
    is_bp = entry.spec is not None and entry.spec.method == "bp"
    rows = []
    margins = [(m.null, m) for m in depth.margins if not is_bp or m.null == "bp"]
    if depth.bp_margin and not is_bp:
        margins.append(("of backpropagation itself to its own null", depth.bp_margin))
    for name, m in margins:
        kinds = {m.null: "null"} if name == m.null else {"bp_trained": "BP", "bp": "null"}
        mine = [(kinds[n.kind], n) for n in entry.nulls if n.kind in kinds]
        from_runs = ", ".join(f"{what} {short(n.run)} (seed {n.seed}, {share(n.accuracy, 4)})" for what, n in mine)
        interval = interval_of(m.low_pp, m.high_pp, 2) or "–"
        numbers = [share(m.accuracy, 4), share(m.null_accuracy, 4), signed(m.margin_pp, 2), interval]
        rows.append([clip(name, 60), *numbers, clip(m.interval, 80), from_runs or "not recorded in the report"])
    header = ["null", "accuracy", "of the null", "margin (pp)", "95 % interval", "which interval", "runs"]
    missing = [k for k in ("matched", "bp") if k not in {m.null for m in depth.margins}]
    told = f"Margins to the nulls (random-blocks baselines; trained networks: runs {runs})."
    if is_bp:
        told += " The matched null of backpropagation is the bp null."
    elif missing:
        told += f" Not in the files: {', '.join(missing)}."
    return [Table(header, rows, told)]


def _hashes(entries: Sequence[Entry]) -> list[Block]:
    rows: dict[str, list[str]] = {}
    for e in entries:
        paths = [*e.paths, *[""] * len(e.reports)]
        for r, seed, path in zip(e.reports, e.seeds, paths, strict=False):
            run = key(r)
            told = "–" if seed is None else str(seed)
            rows[run] = [short(run), clip(e.label, 60), told, clip(run, 80), clip(path, 120) or "–"]
        for n in e.nulls:
            rows.setdefault(n.run, [short(n.run), _compared(n, clip(e.label, 60)), str(n.seed), clip(n.run, 80), "–"])
    header = ["run", "method", "seed", "hash", "directory"]
    return [Heading("Runs", 3), Table(header, list(rows.values()), widths=(12, 18, 6, 40, 24))]


def _compared(null: Null, label: str) -> str:
    return "bp" if null.kind == "bp_trained" else f"{null.kind} null of {label}"
