"""What was measured layer by layer: as numbers, and as the columns of words of every format, with the lines below them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from creditscope.measure.facts import Facts, LayerMeans, Nudging, Perturbation
from creditscope.protocol.wording import other_reading, over_all_layers
from creditscope.render.document import Section
from creditscope.render.numbers import num, percent, share, signed

COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "layer": ("l", str),
    "h_norm": ("mean ‖h_l‖", num),
    "reference_norm": ("‖g_l‖ per sample", num),
    "reference_norm_128": ("‖g_l‖ / 128", num),
    "clamp_batch_size": ("clamp batch size", num),
    "cosine": ("cos(a_l, g_l)", signed),
    "cosine_std": ("sd over samples", lambda v: num(v, 2)),
    "measurable": ("measurable", str),
    "under_floor": ("under floor", percent),
    "rho": ("ρ(a)", signed),
    "readout": ("readout", share),
    "twin_readout": ("twin", share),
}
"""Title and print of the quantities that are shown layer by layer."""
BRIEF = (
    "layer",
    "h_norm",
    "reference_norm_128",
    "cosine",
    "cosine_std",
    "under_floor",
    "rho",
    "readout",
    "twin_readout",
)
PAGE = ("layer", "h_norm", "reference_norm", "reference_norm_128", "clamp_batch_size", "cosine", "cosine_std", "measurable",
    "under_floor")  # fmt: skip
LONG = tuple(name for name in PAGE if name != "clamp_batch_size")
KINDS = {"credit": "a", "reference": "g", "random": "random"}
"""The audited credit and the two controls, as column headings."""


def by_layer(facts: Facts) -> dict[str, Sequence[Any]]:
    """Every fact that has a value per layer, as numbers."""
    f, layers = facts, range(facts.stream.depth + 1)
    found: dict[str, Sequence[Any]] = {
        "layer": layers,
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
    return {name: values for name, values in found.items() if values}


def _columns(facts: Facts, names: Sequence[str], **titles: str) -> tuple[list[str], list[list[str]]]:
    """(header, rows) of what was measured; `titles` where they are not the usual ones."""
    found = by_layer(facts)
    if facts.stream.vector:  # what ‖h_l‖ is the norm of
        titles["h_norm"] = f"{COLUMNS['h_norm'][0]} ({facts.stream.vector})"
    known = [name for name in names if name in found]
    cells = {name: [COLUMNS[name][1](value) for value in found[name]] for name in known}
    if "cosine" in cells:
        cells["cosine"] = [text + cosine_mark(facts, k) for k, text in enumerate(cells["cosine"])]
    return [titles.get(n, COLUMNS[n][0]) for n in known], [list(row) for row in zip(*cells.values(), strict=True)]


def cosine_mark(facts: Facts, layer: int) -> str:
    """* where the credit is exact by construction, ° where it trains nothing."""
    exact = facts.concentration is not None and layer in facts.concentration.exact_layers
    counts = facts.alignment is None or layer in facts.alignment.counting_layers
    return ("*" if exact else "") + ("" if counts else "°")


def footnotes(facts: Facts) -> list[str]:
    """What * and ° mean, and which layers count."""
    exact = facts.alignment and facts.concentration and facts.concentration.exact_layers
    lines = ["* exact by construction: the credit is the reference itself"] if exact else []
    if (al := facts.alignment) is not None and al.counting_note:
        lines.append(("° " if len(al.counting_layers) < len(al.mean) else "") + al.counting_note)
    return lines


def layers_brief(facts: Facts) -> Section:
    """Scale, reference, cosine and, where they were measured, ρ and the readouts, layer by layer."""
    header, rows = _columns(facts, BRIEF, reference_norm_128="‖g_l‖/128", cosine_std="sd")
    lines = footnotes(facts)
    if (profile := facts.profile) is not None:
        lines.append("readout: accuracy of a linear readout of the normalised h_l; twin: the same with random blocks")
        if profile.raw is not None:
            of_input = {"l": "input", "readout": share(profile.raw.accuracy)}
            rows.insert(0, [of_input.get(title, "") for title in header])
    return Section("", header, rows, lines, numbers=True, gap=2)


def layers_section(facts: Facts, names: Sequence[str] = LONG) -> Section:
    """`names`: the columns; those of the page have also the batch size from which on a usual cosine is clamped."""
    header, rows = _columns(facts, names)
    why = "no credit, or no cosine, at this layer"
    return Section("Layers", header, rows, _below_layers(facts), numbers=True, empty=why)


def headline_text(facts: Facts) -> str:
    """Headline Γ with the number of layers behind it where it is not all that count, and Γ over all layers where it differs."""
    if facts.aggregate is None:
        return signed(None)
    behind = facts.alignment.layers_behind if facts.alignment else ""
    return signed(facts.aggregate.headline) + behind + other_reading(facts.aggregate)


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


# ---- the full level: perturbation correlation, nudging, fresh-B null, training facts -----------------------------------


def functional_section(facts: Facts) -> Section:
    """One row per layer, where something was measured; below it deep means, conventions, the null, the run."""
    layers = range(facts.stream.depth + 1)
    columns = [("l", [*map(str, layers)])]
    for name, fact, show in (("ρ", facts.perturbation, signed), ("nudging", facts.nudging, num)):
        given = _kinds(fact)
        columns += [(f"{name}({kind})", [show(value) for value in means.mean]) for kind, means in given]
        if given:
            columns.append(("measurable", [_counts([means.measurable[k] for _, means in given]) for k in layers]))
    header, cells = zip(*columns, strict=True)
    rows = [list(row) for row in zip(*cells, strict=True)] if len(columns) > 1 else []
    return Section("Functional metrics", header, rows, _functional_lines(facts), numbers=True, gap=2)


def _kinds(fact: Perturbation | Nudging | None) -> list[tuple[str, LayerMeans]]:
    """The credits that were measured, by their headings."""
    return [(heading, means) for kind, heading in KINDS.items() if (means := getattr(fact, kind, None)) is not None]


def _functional_lines(facts: Facts) -> list[str]:
    lines = []
    if (p := facts.perturbation) is not None:
        line = (
            f"ρ, mean over the layers of 1..L that count: {_deep(p, signed)} (controls: g near +1, random near 0); "
            f"{p.directions} directions, ε = {p.epsilon:g}, {p.samples}, {p.dtype}"
        )
        lines.append(f"perturbation correlation ρ not measured: {p.reason}" if p.reason else line)
    if (n := facts.nudging) is not None:
        line = (
            f"nudging (loss change after a step of {n.step:g} against the credit), mean over the layers of 1..L that count: "
            f"{_deep(n, num)}; not measurable: a change below {n.resolution}"
        )
        lines.append(f"nudging not measured: {n.reason}" if n.reason else line)
    if (b := facts.fresh_b) is not None:
        line = (
            f"deep mean {signed(b.trained)} with the trained feedback, {signed(b.mean)} ± {num(b.std, 2)} with "
            f"{len(b.draws)} redrawn ones, z = {signed(b.z, 1)} (layers {', '.join(map(str, b.layers))}; {b.samples})"
        )
        lines.append(f"fresh-B null {b.reason}" if b.reason else f"fresh-B null: {line}")
    if (t := facts.training) is not None:
        blocks = ", ".join(num(g, 2) for g in t.growth_by_block)
        products = ", ".join(num(w) for w in t.weight_product)
        lines.append(
            f"training: {len(t.train_loss)} epoch{'s' * (len(t.train_loss) != 1)}, train loss {signed(t.loss_decrease)} "
            f"from first to last epoch; parameter growth ‖w - w_0‖/‖w_0‖ {num(t.growth, 2)}, by block {blocks}; "
            f"‖w1‖·‖w2‖ by block {products}"
        )
    return lines


def _counts(values: list[int]) -> str:
    """256, or 251/256/256 where the kinds of credit differ."""
    return "/".join(map(str, values)) if len(set(values)) > 1 else str(values[0])


def _deep(fact: Perturbation | Nudging, show: Callable[[float | None], str]) -> str:
    parts = []
    for kind, m in _kinds(fact):
        part = f"{kind} {show(m.deep_mean)}"
        if kind == "a" and m.deep_mean_without_exact != m.deep_mean:
            part += f" (without exact layers {show(m.deep_mean_without_exact)})"
        if kind == "a" and isinstance(fact, Perturbation):
            part += over_all_layers(m.deep_mean, m.deep_mean_all_layers)
        parts.append(part)
    return ", ".join(parts)
