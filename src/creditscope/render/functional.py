"""The full level in rows and lines: perturbation correlation, nudging, fresh-B null, training facts."""

from __future__ import annotations

from creditscope.measure.facts import Facts, LayerMeans, Nudging, Perturbation
from creditscope.protocol.wording import over_all_layers
from creditscope.render.numbers import num, signed

KINDS = {"credit": "a", "reference": "g", "random": "random"}
"""The audited credit and the two controls, as column headings."""


def functional_table(facts: Facts) -> tuple[list[str], list[list[str]]]:
    """(header, rows), one row per layer; empty where nothing was measured."""
    header, columns = ["l"], []
    for name, fact, show in (("ρ", facts.perturbation, signed), ("nudging", facts.nudging, num)):
        means = {kind: getattr(fact, kind, None) for kind in KINDS}
        given: list[tuple[str, LayerMeans]] = [(KINDS[kind], m) for kind, m in means.items() if m is not None]
        header += [f"{name}({kind})" for kind, _ in given]
        columns += [[show(value) for value in m.mean] for _, m in given]
        if given:
            header.append("measurable")
            columns.append([_counts([m.measurable[k] for _, m in given]) for k in _layers(facts)])
    rows = [[str(k), *(column[k] for column in columns)] for k in _layers(facts)] if columns else []
    return header, rows


def functional_lines(facts: Facts) -> list[str]:
    """What stands below the table: deep means, conventions, the null, the run."""
    lines = []
    if (p := facts.perturbation) is not None:
        if p.reason:
            lines.append(f"perturbation correlation ρ not measured: {p.reason}")
        else:
            lines.append(
                f"ρ, mean over the layers of 1..L that count: {_deep(p)} (controls: g near +1, random near 0); "
                f"{p.directions} directions, ε = {p.epsilon:g}, {p.samples}, {p.dtype}"
            )
    if (n := facts.nudging) is not None:
        if n.reason:
            lines.append(f"nudging not measured: {n.reason}")
        else:
            lines.append(
                f"nudging (loss change after a step of {n.step:g} against the credit), mean over the layers of 1..L that count: "
                f"{_deep(n, signs=False)}; not measurable: a change below {n.resolution}"
            )
    if (b := facts.fresh_b) is not None:
        if b.reason:
            lines.append(f"fresh-B null {b.reason}")
        else:
            lines.append(
                f"fresh-B null: deep mean {signed(b.trained)} with the trained feedback, {signed(b.mean)} ± {num(b.std, 2)} with "
                f"{len(b.draws)} redrawn ones, z = {signed(b.z, 1)} (layers {', '.join(map(str, b.layers))}; {b.samples})"
            )
    if (t := facts.training) is not None:
        blocks = ", ".join(num(g, 2) for g in t.growth_by_block)
        products = ", ".join(num(w) for w in t.weight_product)
        lines.append(
            f"training: {len(t.train_loss)} epoch{'s' * (len(t.train_loss) != 1)}, train loss {signed(t.loss_decrease)} "
            f"from first to last epoch; parameter growth ‖w - w_0‖/‖w_0‖ {num(t.growth, 2)}, by block {blocks}; "
            f"‖w1‖·‖w2‖ by block {products}"
        )
    return lines


def _layers(facts: Facts) -> range:
    return range(facts.stream.depth + 1)


def _counts(values: list[int]) -> str:
    """256, or 251/256/256 where the kinds of credit differ."""
    return "/".join(map(str, values)) if len(set(values)) > 1 else str(values[0])


def _deep(fact: Perturbation | Nudging, signs: bool = True) -> str:
    show = signed if signs else num
    parts = []
    for name, kind in KINDS.items():
        m: LayerMeans | None = getattr(fact, name)
        if m is None:
            continue
        part = f"{kind} {show(m.deep_mean)}"
        if kind == "a" and m.deep_mean_without_exact != m.deep_mean:
            part += f" (without exact layers {show(m.deep_mean_without_exact)})"
        if kind == "a" and signs:
            part += over_all_layers(m.deep_mean, m.deep_mean_all_layers)
        parts.append(part)
    return ", ".join(parts)
