"""The studies whose figure is a line or a cloud: over epochs, penalties, depth, trained blocks, metrics."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.render.charts import Chart, Dots, Figure, Level, Row, Series


@dataclass(frozen=True)
class About:
    """What every panel of a study says of itself."""

    name: str
    convention: str


def finite(value: Any) -> bool:
    return value is not None and math.isfinite(float(value))


def _mean(values: Sequence[Any], log: bool = False) -> float | None:
    """Mean over seeds (geometric for `log`); None where nothing finite is there."""
    kept = [float(v) for v in values if finite(v) and (not log or float(v) > 0)]
    if not kept:
        return None
    return math.exp(statistics.fmean(map(math.log, kept))) if log else statistics.fmean(kept)


def _sd(values: Sequence[Any]) -> float | None:
    kept = [float(v) for v in values if finite(v)]
    return statistics.stdev(kept) if len(kept) > 1 else None


def _by(points: Sequence[dict[str, Any]], key: Callable[[dict[str, Any]], str]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for p in points:
        found.setdefault(key(p), []).append(p)
    return found


def _over_seeds(name: str, at: dict[float, list[Any]], log: bool = False, fired: Sequence[float] = ()) -> Series:
    """One series: x -> the values of the seeds."""
    xs = sorted(at)
    spread = () if log else [_sd(at[x]) for x in xs]
    return Series(name, [_mean(at[x], log) for x in xs], spread, xs, fired=fired)


def _chart(about: About, key: str, title: str, y: str, x: str, series: list[Series], **more: Any) -> Chart:
    xs = sorted({v for s in series for v in s.xs or ()})
    return Chart(f"{about.name}-{key}", title, about.convention, y, xs, series if xs else [], x, **more)


def unpenalised(label: str) -> str:
    """ "dfa(rms, λ=0.01)" -> "dfa(rms)"."""
    return re.sub(r",? ?λ=[^,)]*", "", label).replace("(, ", "(").replace("()", "")


def temporal(figure: dict[str, Any], about: About) -> list[Figure]:
    limits = DiagnosticThresholds()
    growth, floor = limits.h_norm_explosion_ratio, limits.g_norm_floor
    fired = _by(figure["fired"], lambda t: str(t["label"]))

    def first(label: str, check: str) -> list[float]:
        epochs = [float(t[check]) for t in fired.get(label, ()) if t[check] is not None]
        return [statistics.median_low(epochs)] if epochs else []

    def series(key: str, check: str, log: bool) -> list[Series]:
        made = []
        for label, mine in _by(figure["lines"], lambda line: str(line["label"])).items():
            at: dict[float, list[Any]] = {}
            for line in mine:
                for epoch, value in zip(line["epoch"], line[key], strict=True):
                    at.setdefault(float(epoch), []).append(value)
            made.append(_over_seeds(label, at, log, first(label, check)))
        return made

    told = "mean over seeds; ring: Mode 1 first fires"
    d1, d2 = Level(growth, f"D1 {growth:g}"), Level(floor, f"floor of D2 {floor:.0e}".replace("e-0", "e-"))
    accuracy = series("accuracy", "both", False)
    accuracy = [Series(s.name, s.values, (), s.xs, fired=s.fired) for s in accuracy]
    return [
        _chart(about, "accuracy", f"Test accuracy ({told})", "accuracy", "epoch", accuracy),
        _chart(
            about,
            "growth",
            "Growth (geometric mean over seeds; ring: D1 first fires)",
            "growth",
            "epoch",
            series("growth", "D1", True),
            log=True,
            levels=(d1,),
        ),
        _chart(
            about,
            "reference",
            "‖g_L‖ / 128 (geometric mean over seeds; ring: D2 first fires)",
            "‖g_L‖ / 128",
            "epoch",
            series("g_128", "D2", True),
            log=True,
            levels=(d2,),
        ),
    ]


def _lines_of(points: Sequence[dict[str, Any]], x: str, y: str, name: str = "label") -> list[Series]:
    """Series by name; a value may be one number or a list over seeds."""
    made = []
    for label, mine in _by(points, lambda p: str(p[name])).items():
        at: dict[float, list[Any]] = {}
        for p in mine:
            at.setdefault(float(p[x]), []).extend(p[y] if isinstance(p[y], list | tuple) else [p[y]])
        made.append(_over_seeds(label, at))
    return made


def _barred(title: str, series: Sequence[Series]) -> str:
    """A standard deviation needs two seeds."""
    spread = any(value is not None for s in series for value in s.spread)
    return f"{title} ({'bars: sd over seeds' if spread else 'one seed each'})"


def early(figure: dict[str, Any], about: About) -> list[Figure]:
    points, limit = figure["points"], float(figure["limit"])
    share = _lines_of(points, "epoch", "share")
    top = _lines_of(points, "epoch", "layer0")
    level = Level(limit, f"Mode 2 above {limit:g}")
    return [
        _chart(about, "share", "Largest layer's share of Γ", "largest share", "epoch", share, levels=(level,)),
        _chart(about, "layer0", "Cosine at layer 0", "cos(a_0, g_0)", "epoch", top, zero=True),
    ]


CONTROLS = {"control a = g": 1.0, "control a = random": 0.0}
"""Cosine of the controls: by definition, and in expectation."""


def triangulation(figure: dict[str, Any], about: About) -> list[Figure]:
    series = []
    for p in figure["points"]:
        name, rho = str(p["state"]), list(p["rho"])
        if name in CONTROLS:
            rho = [v for v in (_mean(rho),) if v is not None]
            cosine = [CONTROLS[name]] * len(rho)
        else:
            name, cosine = f"DFA {name}", list(p["cosine"])
            if len(cosine) != len(rho):  # a seed is not measurable in one of the two: only the means can be paired
                pairs = [(c, r) for c, r in ((_mean(cosine), _mean(rho)),) if c is not None and r is not None]
                cosine, rho = [c for c, _ in pairs], [r for _, r in pairs]
        if cosine:
            series.append(Series(name, rho, (), cosine, line=False))
    title = "Cosine against ρ, one mark per seed; controls: cosine 1 by definition, 0 in expectation"
    return [_chart(about, "plane", title, "deep ρ", "deep cosine", series, zero=True, whole=False)]


def penalty(figure: dict[str, Any], about: About) -> list[Figure]:
    points = figure["points"]
    lambdas = sorted({float(p["penalty"]) for p in points})
    placed = [{**p, "base": unpenalised(str(p["label"])), "at": lambdas.index(float(p["penalty"]))} for p in points]
    shared: dict[str, Any] = {"places": [f"{v:g}" for v in lambdas]}

    def lines(key: str) -> list[Series]:
        return _lines_of(placed, "at", key, "base")

    accuracy = lines("accuracy")
    return [
        _chart(about, "accuracy", _barred("Accuracy", accuracy), "accuracy", "λ", accuracy, **shared),
        _chart(
            about, "scale", "‖h_L‖, geometric mean over seeds", "mean ‖h_L‖", "λ", lines("last_h"), log=True, **shared
        ),
        _chart(
            about, "cosine", "Deep cosine, mean over seeds", "deep cosine", "λ", lines("cosine"), zero=True, **shared
        ),
        _chart(about, "rho", "Deep ρ, mean over seeds", "deep ρ", "λ", lines("rho"), zero=True, **shared),
    ]


def capacity(figure: dict[str, Any], about: About) -> list[Figure]:
    bars = figure["bars"]
    with_penalty = next((m[0] for b in bars if (m := re.search(r"λ=[^,)]*", str(b["label"])))), "with penalty")
    placed = [{**b, "base": unpenalised(str(b["label"])), "at": int("λ=" in str(b["label"]))} for b in bars]
    shared: dict[str, Any] = {"places": ["no penalty", with_penalty]}
    accuracy, margin = (_lines_of(placed, "at", key, "base") for key in ("accuracy", "margin_pp"))
    return [
        _chart(about, "accuracy", _barred("Accuracy, 2×2", accuracy), "accuracy", "", accuracy, **shared),
        _chart(about, "margin", "Margin to the matched null", "pp", "", margin, zero=True, **shared),
    ]


def functional(figure: dict[str, Any], about: About) -> list[Figure]:
    points = figure["points"]
    metrics: dict[str, Callable[[dict[str, Any]], float | None]] = {
        "cosine": lambda p: p["cosine"],
        "ρ": lambda p: p["rho"],
        "nudging": lambda p: None if p["nudging"] is None else -float(p["nudging"]),
        "accuracy": lambda p: _mean(p["accuracy"]),
        "loss fall": lambda p: None if p["loss_decrease"] is None else -float(p["loss_decrease"]),
    }
    ranks: dict[str, list[float | None]] = {str(p["label"]): [] for p in points}
    for metric in metrics.values():
        values = {str(p["label"]): metric(p) for p in points}
        kept = [v for v in values.values() if v is not None and finite(v)]
        for label, v in values.items():
            ranks[label].append(1.0 + sum(other > v for other in kept) if v is not None and finite(v) else None)
    series = [Series(label, found, (), list(range(len(metrics)))) for label, found in ranks.items()]
    correlated = [
        Row(name, [("rank correlation", float(v))] if finite(v) else ())
        for name, v in figure["rank_correlation"].items()
    ]
    return [
        _chart(
            about, "ranks", "Rank of each method by each metric (1 is best)", "rank", "", series,
            places=list(metrics), flip=True,
        ),
        Dots(
            f"{about.name}-correlation",
            "Rank correlation of the deep cosine with each metric",
            about.convention,
            "Spearman's correlation",
            correlated,
            row_name="",
        ),
    ]  # fmt: skip


def depth(figure: dict[str, Any], about: About) -> list[Figure]:
    points = figure["points"]
    accuracy, cosine, margin = (_lines_of(points, "L", key) for key in ("accuracy", "deep_cosine", "margin_pp"))
    return [
        _chart(about, "accuracy", _barred("Accuracy over depth", accuracy), "accuracy", "L", accuracy),
        _chart(about, "cosine", "Deep cosine over depth", "deep cosine", "L", cosine, zero=True),
        _chart(about, "margin", "Margin to the matched null", "pp", "L", margin, zero=True),
    ]


def ladder(figure: dict[str, Any], about: About) -> list[Figure]:
    series = _lines_of(figure["points"], "trained_blocks", "accuracy", "method")
    title = _barred("Accuracy when only the last k blocks are trained", series)
    return [_chart(about, "accuracy", title, "accuracy", "trained blocks", series)]


def random_target(figure: dict[str, Any], about: About) -> list[Figure]:
    made = []
    for label, mine in _by(figure["lines"], lambda line: str(line["label"])).items():
        at: dict[float, list[Any]] = {}
        for line in mine:
            for epoch, value in enumerate(line["h_L"]):
                at.setdefault(float(epoch), []).append(value)
        made.append(_over_seeds(label, at, log=True))
    title = "‖h_L‖ when labels are redrawn for every batch (geometric mean over seeds)"
    return [_chart(about, "scale", title, "mean ‖h_L‖", "epoch", made, log=True)]
