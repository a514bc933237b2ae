"""The figures of one network: over layers, of the full level, over epochs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from creditscope.measure.facts import Facts, LayerMeans, Readout
from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.render.charts import Band, Chart, Dots, Event, Level, Row, Series
from creditscope.render.html.network import Network, trajectory_columns

COSINE_EPS = 1e-8


def charts(network: Network, limits: DiagnosticThresholds) -> list[Chart | Dots]:
    facts = network.report.facts
    return [*_layer_charts(facts, limits), *_functional_charts(facts), *_epoch_charts(network, limits)]


def run_name(network: Network) -> str:
    """What a tooltip calls the network."""
    name = network.report.method_name or "network"
    run = f"{name}, {network.report.notes}" if network.report.notes else name
    return run if len(run) <= 160 else run[:159] + "…"


def _layer_charts(facts: Facts, limits: DiagnosticThresholds) -> list[Chart | Dots]:
    c, layers = facts.convention, range(facts.stream.depth + 1)
    floor = limits.floor_for(c.dtype)
    charts: list[Chart | Dots] = [
        Chart(
            "h",
            "Scale: mean ‖h_l‖ by layer",
            f"raw norms, mean over {c.n_samples} samples, {c.dtype}",
            "mean ‖h_l‖",
            layers,
            [Series("‖h_l‖", facts.scale.mean)],
            log=True,
        ),
        Chart(
            "g",
            "Reference: ‖g_l‖ / 128 by layer",
            f"mean per-sample norm / 128 (batch-mean convention, B = 128), {c.dtype}",
            "‖g_l‖ / 128",
            layers,
            [Series("‖g_l‖ / 128", facts.reference.batch_mean_128)],
            log=True,
            levels=(
                Level(floor, f"floor of D2 {floor:.0e}".replace("e-0", "e-")),
                Level(COSINE_EPS, "cosine eps 1e-8"),
            ),
        ),
    ]
    if (al := facts.alignment) is not None:
        charts.append(
            Chart(
                "cosine",
                "Alignment: cos(a_l, g_l) by layer",
                f"mean of per-sample cosines ({c.cosine_dtype}); whiskers: sd over samples",
                "cos(a_l, g_l)",
                layers,
                [Series("cosine", al.mean, al.std)],
                zero=True,
                band=_null_band(facts),
            )
        )
    if (ag := facts.aggregate) is not None:
        named = [
            ("headline: layer mean", ag.headline),
            ("concatenated", ag.concat),
            ("weighted by ‖g_l‖", ag.norm_weighted),
            ("flattened", ag.flattened),
            ("eps-clamped, B=128", ag.clamped_128),
        ]
        charts.append(
            Dots(
                "aggregations",
                "Γ under every aggregation",
                "the same cosines, aggregated in five ways",
                "Γ",
                [Row(label, [("Γ", value)] if value is not None else ()) for label, value in named],
                row_name="",
            )
        )
    if (p := facts.profile) is not None:
        raw = p.raw.accuracy if p.raw else None
        charts.append(
            Chart(
                "profile",
                "Depth profile: accuracy of a linear readout of h_l",
                f"ridge fitted on {p.fit_rows:,}, tested on {p.test_rows:,}; whiskers: 95 %; twin: random blocks",
                "accuracy",
                layers,
                [_readouts("network", p.curve), _readouts("twin", p.twin)],
                levels=() if raw is None else (Level(raw, f"raw input {raw:.3f}"),),
            )
        )
    if any(v is not None for v in facts.stability.per_layer):
        charts.append(
            Chart(
                "stability",
                "Direction stability by layer",
                f"mean pairwise cosine of batch-mean gradients, {facts.stability.groups} groups of {c.group_size}",
                "stability",
                layers,
                [Series("stability", facts.stability.per_layer)],
                zero=True,
                levels=(Level(limits.stability_drift_ceiling, f"C {limits.stability_drift_ceiling:g}"),),
            )
        )
    return charts


def _readouts(name: str, readouts: Sequence[Readout]) -> Series:
    halves = [None if r.low is None or r.high is None else (r.high - r.low) / 2 for r in readouts]
    return Series(name, [r.accuracy for r in readouts], halves)


def _null_band(facts: Facts) -> Band | None:
    b = facts.fresh_b
    if b is None or b.mean is None or b.std is None or not b.layers or not math.isfinite(b.mean + b.std):
        return None
    return Band(
        b.mean - 2 * b.std,
        b.mean + 2 * b.std,
        min(b.layers),
        max(b.layers),
        f"fresh-B null of the deep mean, mean ± 2 sd of {len(b.draws)} draws",
    )


def _functional_charts(facts: Facts) -> list[Chart | Dots]:
    layers = range(facts.stream.depth + 1)

    def series(credit: LayerMeans | None, reference: LayerMeans | None, random: LayerMeans | None) -> list[Series]:
        kinds = (("credit a", credit), ("control a = g", reference), ("control random", random))
        return [Series(name, m.mean) for name, m in kinds if m is not None]

    charts: list[Chart | Dots] = []
    if (p := facts.perturbation) is not None and (lines := series(p.credit, p.reference, p.random)):
        convention = f"{p.directions} directions, ε = {p.epsilon:g}, {p.n_samples} samples, {p.dtype}"
        charts.append(Chart("rho", "Perturbation correlation ρ by layer", convention, "ρ", layers, lines, zero=True))
    if (n := facts.nudging) is not None and (lines := series(n.credit, n.reference, n.random)):
        convention = f"step {n.step:g} against the credit, {n.n_samples} samples, {n.dtype}"
        charts.append(
            Chart("nudging", "Nudging: loss change by layer", convention, "loss change", layers, lines, zero=True)
        )
    if (b := facts.fresh_b) is not None and b.trained is not None:
        draws = [(f"draw {k}", v) for k, v in enumerate(b.draws, 1) if v is not None]
        charts.append(
            Dots(
                "fresh-b",
                "Fresh-B null: deep mean cosine",
                f"layers {', '.join(map(str, b.layers))}, {b.n_samples} samples",
                "deep mean cosine",
                [Row("trained feedback", [("", b.trained)]), Row("redrawn feedback", draws)],
                row_name="",
            )
        )
    return charts


def _epoch_charts(network: Network, limits: DiagnosticThresholds) -> list[Chart | Dots]:
    columns = trajectory_columns(network)
    if not columns:
        return []
    epochs, dtype = columns["epoch"], network.report.facts.convention.dtype
    floor = limits.floor_for(dtype)
    by_epoch: dict[int, list[str]] = {}
    for check, epoch in first_fired(network):
        by_epoch.setdefault(epoch, []).append(check)
    events = [Event(e, f"{' + '.join(checks)} first fired: epoch {e}") for e, checks in by_epoch.items()]
    shared: dict[str, Any] = {"x": "epoch", "xs": epochs, "events": events}
    growth_limit = limits.h_norm_explosion_ratio
    return [
        Chart(
            key="epoch-accuracy",
            title="Test accuracy over epochs",
            y="accuracy",
            convention="test set",
            series=[Series("accuracy", columns["accuracy"])],
            **shared,
        ),
        Chart(
            key="epoch-growth",
            title="Growth over epochs",
            y="growth",
            log=True,
            convention="largest mean‖h_{l+1}‖ / mean‖h_l‖",
            series=[Series("growth", columns["growth"])],
            levels=(Level(growth_limit, f"D1 {growth_limit:g}"),),
            **shared,
        ),
        Chart(
            key="epoch-reference",
            title="‖g_L‖ / 128 over epochs",
            y="‖g_L‖ / 128",
            log=True,
            convention="mean per-sample norm / 128 (batch-mean convention, B = 128)",
            series=[Series("‖g_L‖ / 128", columns["reference_128"])],
            levels=(Level(floor, f"floor of D2 {floor:.0e}".replace("e-0", "e-")),),
            **shared,
        ),
    ]


def first_fired(network: Network) -> list[tuple[str, int]]:
    """(check, first epoch at which it was raised) in the order of the checks."""
    first: dict[str, int] = {}
    for line in network.trajectory:
        for check in line.get("fired", ()):
            first.setdefault(str(check), int(line["epoch"]))
    return sorted(first.items(), key=lambda item: (item[1], item[0]))
