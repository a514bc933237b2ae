"""The reporting section of a paper, filled from reports: every number stands next to the hash of the run it comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from creditscope.protocol.report import DiagnosticReport
from creditscope.render.certificate import certificate_section
from creditscope.render.document import Section
from creditscope.render.layers import cosine_mark, headline_text
from creditscope.render.numbers import accuracy, clip, interval_of, num, share, signed
from creditscope.render.report import gamma_text
from creditscope.training.spec import RunSpec

SHORT = 10
"""Characters of a hash in a table; the last table has all of them."""
PER_TABLE = 5
"""Networks side by side in the table of layers."""


@dataclass(frozen=True)
class Null:
    """One network that the trained ones are compared with: a frozen-blocks null, or BP (`bp_trained`)."""

    kind: str
    seed: int
    run: str
    accuracy: float


@dataclass(frozen=True)
class Entry:
    """One method and recipe: the networks of all its seeds."""

    label: str
    reports: Sequence[DiagnosticReport]
    accuracies: Sequence[float | None]
    """Of each network (None: not in the files)."""
    seeds: Sequence[int | None]
    spec: RunSpec | None = None
    nulls: Sequence[Null] = ()
    remarks: Sequence[str] = ()
    """What is known of runs that are not here: failed, unfinished."""
    paths: Sequence[str] = field(default_factory=tuple)
    """Where each network lies."""

    @property
    def stated(self) -> tuple[float, ...]:
        """The accuracies that are claimed, one per seed; where none are, those of the networks."""
        return self.reports[0].headline_acc or tuple(a for a in self.accuracies if a is not None)

    @property
    def alone(self) -> float | None:
        """The accuracy of the only network that is here, where the claim is of several seeds."""
        return self.accuracies[0] if len(self.accuracies) == 1 < len(self.stated) else None

    @property
    def runs(self) -> str:
        return ", ".join(map(short, self.reports))


def key(report: DiagnosticReport) -> str:
    """Hash of the run, or of the report where the network comes from no bundle."""
    return report.run or "report:" + hashlib.sha256(report.to_json().encode()).hexdigest()


def short(report: DiagnosticReport) -> str:
    return _cut(key(report))


def _cut(run: str) -> str:
    return clip(run, 80)[: SHORT + (len("report:") if run.startswith("report:") else 0)]


def reporting_section(entries: Sequence[Entry]) -> list[Section]:
    """The whole section."""
    sections = [
        Section(
            "How credit was measured and what was found",
            level=2,
            text="Filled by creditscope from the files of the runs. The column “run” has the first characters of the hash of the "
            "run's specification; the last table has the whole hashes. A pass means that no audited failure was found: a "
            "minimum bar, not an endorsement.",
        ),
        *_protocol(entries),
    ]
    for entry in entries:
        sections += [
            Section(clip(entry.label or "network", 80), level=3, lines=_verdicts(entry)),
            _trained(entry),
            _networks(entry),
            _nulls(entry),
            *_layers(entry),
            *_reference(entry),
            *_aggregations(entry),
            *_functional(entry),
            *_locality(entry),
        ]
    return [*sections, _hashes(entries)]


def _protocol(entries: Sequence[Entry]) -> list[Section]:
    reports = [r for e in entries for r in e.reports]
    conventions = dict.fromkeys(_convention(r) for r in reports)
    rows = dict.fromkeys(
        (c.id, c.name, num(c.threshold), clip(c.convention)) for r in reports for c in r.verdict.checks
    )
    versions = ", ".join(dict.fromkeys(clip(r.protocol, 60) for r in reports))
    text = f"Protocol {versions}. Thresholds as they were used:"
    header = ["check", "name", "threshold", "convention"]
    return [
        Section("Protocol and thresholds", header, list(rows), level=3, text=text, widths=(6, 16, 12, 60)),
        Section(text="Measured on: " + "; ".join(conventions) + "."),
    ]


def _convention(report: DiagnosticReport) -> str:
    c = report.facts.convention
    return (
        f"{c.n_samples} samples ({clip(c.samples, 80)}), loss {clip(c.loss, 80)}, reduction {clip(c.reduction)}, {c.dtype}, "
        f"{clip(c.mode, 40)} mode, {clip(c.checkpoint, 40)} checkpoint; cosine in {clip(c.cosine_dtype, 80)}"
    )


def _verdicts(entry: Entry) -> list[str]:
    """One line for each verdict, with the runs it holds for."""
    found: dict[tuple[str, ...], list[str]] = {}
    for r in entry.reports:
        reasons = r.verdict.reasons or tuple(c.sentence for c in r.verdict.checks if c.answer not in ("pass", "fail"))
        verdict = map(clip, (r.verdict.conclusion, *reasons, *r.verdict.warnings))
        found.setdefault(tuple(verdict), []).append(short(r))
    return [
        f"Verdict (run{'s' if len(runs) > 1 else ''} {', '.join(runs)}): {'. '.join(map(_begun, verdict))}."
        for verdict, runs in found.items()
    ]


def _begun(sentence: str) -> str:
    """With a capital letter, where it begins with a word and not with a symbol."""
    return sentence[:1].upper() + sentence[1:] if sentence.split(" ", maxsplit=1)[0].isalpha() else sentence


def _trained(entry: Entry) -> Section:
    if entry.spec is None:
        return Section(
            text="What was trained (data set, architecture, credit rule with its normalisation and site, optimiser, epochs, "
            "batch size, augmentation): to be answered by the author; the report does not hold it."
        )
    rows = [[name, clip(value, 120)] for name, value in _settings(entry.spec) if name != "seed"]
    caption = f"What was trained (runs {entry.runs})."
    return Section(header=["setting", "value"], rows=rows, caption=caption, widths=(20, 60))


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


def _networks(entry: Entry) -> Section:
    rows = []
    for r, acc, seed in zip(entry.reports, entry.accuracies, entry.seeds, strict=True):
        f = r.facts
        whose = [short(r), "–" if seed is None else str(seed), share(acc, 4), gamma_text(r)]
        sizes = [num(f.scale.growth), num(f.reference.batch_mean_128[-1]), signed(f.stability.deepest)]
        rows.append([*whose, *sizes, r.status])
    header = ["run", "seed", "accuracy", "headline Γ", "growth", "‖g_L‖/128", "stability", "status"]
    known, several = entry.stated, ", mean ± sample standard deviation" if len(entry.stated) > 1 else ""
    seeds = [str(s) for s in entry.seeds if s is not None]
    caption = f"Accuracy {accuracy(known)}{several}. " if known else ""
    if seeds:
        caption += f"Seeds {', '.join(seeds)}: every finished run of this recipe in the files, none selected."
    else:
        caption += "Seeds: to be answered by the author; the reports do not hold them."
    return Section(header=header, rows=rows, caption=caption, lines=list(map(clip, entry.remarks)))


def _nulls(entry: Entry) -> Section:
    depth = entry.reports[0].facts.depth
    if depth is None or not depth.margins:
        return Section(
            text="Nulls (random-blocks baselines): none is in the files, so D3 is not measured. To be answered by the author: "
            "how do the trained blocks compare with untrained ones, by the same rule (matched) and by backpropagation (bp)?"
        )
    is_bp = entry.spec is not None and entry.spec.method == "bp"
    rows = []
    margins = [(m.null, m) for m in depth.margins if not is_bp or m.null == "bp"]
    if depth.bp_margin and not is_bp:
        margins.append(("of backpropagation itself to its own null", depth.bp_margin))
    for name, m in margins:
        kinds = {m.null: "null"} if name == m.null else {"bp_trained": "BP", "bp": "null"}
        mine = [(kinds[n.kind], n) for n in entry.nulls if n.kind in kinds]
        from_runs = ", ".join(f"{what} {_cut(n.run)} (seed {n.seed}, {share(n.accuracy, 4)})" for what, n in mine)
        interval = interval_of(m.low_pp, m.high_pp, 2) or "–"
        numbers = [share(m.accuracy, 4), share(m.null_accuracy, 4), signed(m.margin_pp, 2), interval]
        rows.append([clip(name, 60), *numbers, clip(m.interval, 80), from_runs or "not recorded in the report"])
    header = ["null", "accuracy", "of the null", "margin (pp)", "95 % interval", "which interval", "runs"]
    missing = [k for k in ("matched", "bp") if k not in {m.null for m in depth.margins}]
    caption = f"Margins to the nulls (random-blocks baselines; trained networks: runs {entry.runs})."
    if is_bp:
        caption += " The matched null of backpropagation is the bp null."
    elif missing:
        caption += f" Not in the files: {', '.join(missing)}."
    return Section(header=header, rows=rows, caption=caption)


# ---- the facts ----------------------------------------------------------------------------------------------------------


def _layers(entry: Entry) -> list[Section]:
    if not any(r.facts.alignment for r in entry.reports):
        return [Section(text="Per-layer cosine: not measured (no credit was given).")]
    caption = (
        "Per-layer cosine cos(a_l, g_l): mean ± standard deviation over samples; * exact by construction; "
        "° trains nothing, no part of Γ."
    )
    sections = []
    for start in range(0, len(entry.reports), PER_TABLE):
        some = entry.reports[start : start + PER_TABLE]
        layers = range(max(r.facts.stream.depth for r in some) + 1)
        rows = [[str(layer), *(_cosine(r, layer) for r in some)] for layer in layers]
        sections.append(Section(header=["layer", *(f"run {short(r)}" for r in some)], rows=rows, caption=caption))
    return sections


def _cosine(report: DiagnosticReport, layer: int) -> str:
    al = report.facts.alignment
    if al is None or layer >= len(al.mean):
        return "–"
    if al.mean[layer] is None:
        return "not measurable"
    return f"{signed(al.mean[layer])}{cosine_mark(report.facts, layer)} ± {num(al.std[layer], 2)}"


def _per_network(
    entry: Entry, header: Sequence[str], caption: str, cells: Callable[[DiagnosticReport], Sequence[str]]
) -> list[Section]:
    """A table with a row for each network that has `cells`; nothing where none has."""
    rows = [[short(r), *found] for r in entry.reports if (found := cells(r))]
    return [Section(header=["run", *header], rows=rows, caption=caption)] if rows else []


def _reference(entry: Entry) -> list[Section]:
    def cells(r: DiagnosticReport) -> list[str]:
        f, floor = r.facts.reference, r.checks["D2"].threshold
        sizes = (f.per_sample[-1], f.batch_mean_128[-1], min(f.batch_mean_128), f.clamp_batch_size[-1], floor)
        return [*map(num, sizes)]

    header = ["‖g_L‖ per sample", "‖g_L‖ / 128", "smallest ‖g_l‖ / 128", "clamp batch size at h_L", "floor"]
    caption = (
        "Reference norm: mean per-sample ‖g_L‖ (loss summed over samples), and the same divided by 128 (batch-mean convention, "
        "B = 128), with which the floor is compared. Clamp batch size: from that batch on, ‖g_L‖ / B is within 10 times "
        "the eps 1e-8 of a usual cosine."
    )
    return _per_network(entry, header, caption, cells)


def _aggregations(entry: Entry) -> list[Section]:
    def cells(r: DiagnosticReport) -> list[str]:
        a, c = r.facts.aggregate, r.facts.concentration
        if a is None:
            return []
        deep = c.deep_mean_without_exact if c else None  # none where no layer is left
        others = map(signed, (a.concat, a.norm_weighted, a.flattened, a.clamped_128, deep))
        return [headline_text(r.facts), *others, "yes" if r.verdict.gamma_withheld else "no"]

    header = [
        "mean of layers (headline)", "concatenated", "norm-weighted", "flattened", "eps-clamped, B = 128",
        "deep mean without exact layers", "withheld",
    ]  # fmt: skip
    return _per_network(entry, header, "Γ under every aggregation; withheld: not interpretable here.", cells)


def _functional(entry: Entry) -> list[Section]:
    def cells(r: DiagnosticReport) -> list[str]:
        f = r.facts
        rho = f.perturbation.credit if f.perturbation else None
        nudge = f.nudging.credit if f.nudging else None
        fresh = f.fresh_b if f.fresh_b and f.fresh_b.trained is not None else None
        if not (rho or nudge or fresh):
            return []
        return [
            signed(rho.deep_mean_without_exact if rho else None),
            num(nudge.deep_mean_without_exact if nudge else None),
            signed(fresh.trained) if fresh else "–",
            f"{signed(fresh.mean)} ± {num(fresh.std, 2)} (n={len(fresh.draws)})" if fresh else "–",
        ]

    header = ["ρ", "nudging", "deep cosine, trained feedback", "redrawn feedback"]
    caption = (
        "Full level: perturbation correlation, nudging, fresh-B null; all means over the layers of 1..L that count, "
        "without exact ones."
    )
    return _per_network(entry, header, caption, cells)


def _locality(entry: Entry) -> list[Section]:
    """What the update of each block depends on, where `certify` has found it out."""
    sections = []
    for r in entry.reports:
        if r.certificate is not None:
            found = certificate_section(r.certificate)
            rows = [[clip(cell) for cell in row] for row in found.rows]
            caption = f"Locality of the update (run {short(r)}): {clip(r.certificate.label)}."
            caption = " ".join([caption, *map(clip, found.lines)])
            sections.append(Section(header=found.header, rows=rows, caption=caption, widths=(26, 26, 9, 9, 30)))
    return sections


def _hashes(entries: Sequence[Entry]) -> Section:
    rows: dict[str, list[str]] = {}
    for e in entries:
        paths, label = [*e.paths, *[""] * len(e.reports)], clip(e.label, 60)
        for r, seed, path in zip(e.reports, e.seeds, paths, strict=False):
            seed_text = "–" if seed is None else str(seed)
            rows[key(r)] = [short(r), label, seed_text, clip(key(r), 80), clip(path, 120) or "–"]
        for n in e.nulls:
            method = "bp" if n.kind == "bp_trained" else f"{n.kind} null of {label}"
            rows.setdefault(n.run, [_cut(n.run), method, str(n.seed), clip(n.run, 80), "–"])
    header = ["run", "method", "seed", "hash", "directory"]
    return Section("Runs", header, list(rows.values()), level=3, widths=(12, 18, 6, 40, 24))
