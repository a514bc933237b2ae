"""The tables of facts in a reporting section: per-layer cosines, reference norms, Γ by aggregation, the full level."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from creditscope.protocol.report import DiagnosticReport
from creditscope.protocol.wording import other_reading
from creditscope.render.certificate import certificate_section
from creditscope.render.document import Block, Paragraph, Table, clip
from creditscope.render.numbers import num, signed
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


def key(report: DiagnosticReport) -> str:
    """Hash of the run, or of the report where the network comes from no bundle."""
    return report.run or "report:" + hashlib.sha256(report.to_json().encode()).hexdigest()


def short(run: str) -> str:
    return clip(run, 80)[: SHORT + (len("report:") if run.startswith("report:") else 0)]


def layers(entry: Entry) -> list[Block]:
    if not any(r.facts.alignment for r in entry.reports):
        return [Paragraph("Per-layer cosine: not measured (no credit was given).")]
    blocks: list[Block] = []
    for start in range(0, len(entry.reports), PER_TABLE):
        some = entry.reports[start : start + PER_TABLE]
        rows = []
        for layer in range(max(r.facts.stream.depth for r in some) + 1):
            rows.append([str(layer), *(_cosine(r, layer) for r in some)])
        header = ["layer", *(f"run {short(key(r))}" for r in some)]
        told = (
            "Per-layer cosine cos(a_l, g_l): mean ± standard deviation over samples; * exact by construction; "
            "° trains nothing, no part of Γ."
        )
        blocks.append(Table(header, rows, told))
    return blocks


def _cosine(report: DiagnosticReport, layer: int) -> str:
    al, c = report.facts.alignment, report.facts.concentration
    if al is None or layer >= len(al.mean):
        return "–"
    if al.mean[layer] is None:
        return "not measurable"
    exact = "*" if c is not None and layer in c.exact_layers else ""
    exact += "" if layer in al.counting_layers else "°"
    return f"{signed(al.mean[layer])}{exact} ± {num(al.std[layer], 2)}"


def reference(entry: Entry) -> list[Block]:
    rows = []
    for r in entry.reports:
        f, floor = r.facts.reference, r.checks["D2"].threshold
        sizes = (f.per_sample[-1], f.batch_mean_128[-1], min(f.batch_mean_128), f.clamp_batch_size[-1], floor)
        rows.append([short(key(r)), *map(num, sizes)])
    header = ["run", "‖g_L‖ per sample", "‖g_L‖ / 128", "smallest ‖g_l‖ / 128", "clamp batch size at h_L", "floor"]
    told = (
        "Reference norm: mean per-sample ‖g_L‖ (loss summed over samples), and the same divided by 128 (batch-mean convention, "
        "B = 128), with which the floor is compared. Clamp batch size: from that batch on, ‖g_L‖ / B is within 10 times "
        "the eps 1e-8 of a usual cosine."
    )
    return [Table(header, rows, told)]


def aggregations(entry: Entry) -> list[Block]:
    rows = []
    for r in entry.reports:
        a, c = r.facts.aggregate, r.facts.concentration
        if a is None:
            continue
        found = (a.headline, a.concat, a.norm_weighted, a.flattened, a.clamped_128)
        behind = (r.facts.alignment.layers_behind if r.facts.alignment else "") + other_reading(a)
        shown = [signed(found[0]) + behind, *map(signed, found[1:])]
        deep = c.deep_mean_without_exact if c else None  # none where no layer is left
        rows.append([short(key(r)), *shown, signed(deep), "yes" if r.verdict.gamma_withheld else "no"])
    header = [
        "run", "mean of layers (headline)", "concatenated", "norm-weighted", "flattened", "eps-clamped, B = 128",
        "deep mean without exact layers", "withheld",
    ]  # fmt: skip
    return [Table(header, rows, "Γ under every aggregation; withheld: not interpretable here.")] if rows else []


def locality(entry: Entry) -> list[Block]:
    """What the update of each block depends on, where `certify` has found it out."""
    blocks: list[Block] = []
    for r in entry.reports:
        if r.certificate is not None:
            section = certificate_section(r.certificate)
            rows = [[clip(cell) for cell in row] for row in section.rows]
            told = f"Locality of the update (run {short(key(r))}): {clip(section.title.removeprefix('LOCALITY: '))}."
            blocks.append(
                Table(section.header, rows, " ".join([told, *map(clip, section.lines)]), widths=(26, 26, 9, 9, 30))
            )
    return blocks


def functional(entry: Entry) -> list[Block]:
    rows = []
    for r in entry.reports:
        f = r.facts
        rho = f.perturbation.credit if f.perturbation else None
        nudge = f.nudging.credit if f.nudging else None
        fresh = f.fresh_b if f.fresh_b and f.fresh_b.trained is not None else None
        if rho or nudge or fresh:
            rows.append(
                [
                    short(key(r)),
                    signed(rho.deep_mean_without_exact if rho else None),
                    num(nudge.deep_mean_without_exact if nudge else None),
                    signed(fresh.trained) if fresh else "–",
                    f"{signed(fresh.mean)} ± {num(fresh.std, 2)} (n={len(fresh.draws)})" if fresh else "–",
                ]
            )
    header = ["run", "ρ", "nudging", "deep cosine, trained feedback", "redrawn feedback"]
    told = (
        "Full level: perturbation correlation, nudging, fresh-B null; all means over the layers of 1..L that count, "
        "without exact ones."
    )
    return [Table(header, rows, told)] if rows else []
