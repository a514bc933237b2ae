"""Each quantity once: its name, symbol, unit and convention, how it is read from a record, and how it is printed and compared.

Tables, figures, CSV columns, JSON keys and comparisons with published values are made from this registry. To add a quantity to
every table of audited methods, register one with `standard=True`:

    register(Quantity("error", "1-acc", "error", "", "test error", then=lambda record, line: 1 - line["accuracy"], standard=True))

`of(record, epoch)` reads it of one network (epoch None: at the end), `over(group)` of a group of seeds. A quantity of one layer
is asked for as "cosine[0]".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from creditscope.errors import CreditscopeError, unknown
from creditscope.measure.concentration import LEAST_LAYERS
from creditscope.measure.facts import Concentration, Facts, FreshB, LayerMeans, Training, batch_mean
from creditscope.protocol import DiagnosticThresholds
from creditscope.runs.groups import AuditRow, Group
from creditscope.runs.record import Line, NotMeasured, Record
from creditscope.tables import Cell, Column, Spread, geometric_mean, mean


class Scale(Enum):
    """How an axis and a mean over networks treat the values."""

    LINEAR = "linear"
    LOG = "log"
    """Orders of magnitude: geometric mean, logarithmic axis."""
    SHARE = "share"
    """Between 0 and 1."""


class Form(Enum):
    """How a value is printed."""

    NUMBER = "number"
    SIGNED = "signed"
    PERCENT = "percent"


class Compare(Enum):
    """How two values of the quantity are compared."""

    DIFFERENCE = "difference"
    LOG_RATIO = "log_ratio"
    Z = "z"
    INTERVAL = "interval"


Read = Callable[[Record, "int | None"], Cell]


@dataclass(frozen=True)
class Quantity:
    name: str
    symbol: str
    title: str
    """Heading of its column."""
    unit: str = ""
    convention: str = ""
    """How it is taken, in one line."""
    final: Callable[[Facts], float | None] | None = None
    """From the facts of the final network."""
    then: Callable[[Record, Line], float | None] | None = None
    """From the line of an epoch; without `final` also of the last one."""
    read: Read | None = None
    """Where neither is enough."""
    of_group: Callable[[AuditRow], Cell] | None = None
    """Where it needs the other seeds or the nulls: read from the group instead."""
    scale: Scale = Scale.LINEAR
    form: Form = Form.NUMBER
    digits: int = 3
    """Significant digits of a number, decimals of a signed one."""
    spread: Spread = Spread.NONE
    compare: Compare = Compare.DIFFERENCE
    threshold: str = ""
    """The field of DiagnosticThresholds that it is judged by."""
    full: bool = False
    """Needs the facts of level full."""
    standard: bool = False
    """Stands in every table of audited methods."""

    def of(self, record: Record, epoch: int | None = None) -> Cell:
        """The quantity of one network; what is not there is a cell that says why."""
        try:
            if self.read:
                return self.read(record, epoch)
            if epoch is None and self.final:
                return cell(self.final(record.facts))
        except NotMeasured as error:
            return Cell(note=str(error))
        if self.then is None:
            return Cell(
                note=f"{self.title} is of the final network" if self.final else f"{self.title} is of a group of seeds"
            )
        line = record.line(epoch)
        return Cell(note=f"the run has no epoch {epoch}") if line is None else cell(self.then(record, line))

    def over(self, row: AuditRow, epoch: int | None = None) -> Cell:
        """The quantity of a group of seeds, or of reports that were given: the mean of the networks that have it."""
        if self.of_group:
            return self.of_group(row)
        if isinstance(row, Group):
            return self.mean(self.of(r, epoch) for r in row.records)
        if self.final is None:
            return Cell(note="a report does not hold it")
        return self.mean(cell(self.final(r.facts)) for r in row.reports)

    def mean(self, cells: Iterable[Cell]) -> Cell:
        cells = list(cells)
        # an order of magnitude that overflowed is a finding, a cosine that did is no number
        log = self.scale is Scale.LOG
        values = [c.value for c in cells if c.number is not None or (log and isinstance(c.value, float))]
        if not values:
            return Cell(note=next((c.note for c in cells if c.note), ""))
        average = geometric_mean if log else mean
        if len(values) == len(cells) == 1:
            return replace(cells[0], n=1, values=(float(values[0]),))
        some = f"{len(values)} of {len(cells)} networks" if len(values) < len(cells) else ""
        return Cell(average(values), n=len(values), note=some, values=tuple(map(float, values)))

    def column(self, **change: Any) -> Column:
        return replace(Column(self.name, self.title, self, self.spread), **change)


QUANTITIES: dict[str, Quantity] = {}
"""By name, in the order in which tables show them."""


def register(quantity: Quantity) -> Quantity:
    if quantity.name in QUANTITIES:
        raise CreditscopeError(f"quantity {quantity.name!r} already exists; choose another name")
    QUANTITIES[quantity.name] = quantity
    return quantity


def get_quantity(name: str | Quantity) -> Quantity:
    """By its name; "cosine[3]" is the cosine at layer 3. A quantity is itself."""
    if isinstance(name, Quantity):
        return name
    base, bracket, layer = name.partition("[")
    if bracket and base in LAYERED and layer.removesuffix("]").isdigit():
        return LAYERED[base](int(layer.removesuffix("]")))
    if name not in QUANTITIES:
        raise CreditscopeError(unknown("quantity", name, [*QUANTITIES, *(f"{k}[LAYER]" for k in LAYERED)]))
    return QUANTITIES[name]


def standard() -> tuple[str, ...]:
    """Names of the quantities of every table of audited methods."""
    return tuple(q.name for q in QUANTITIES.values() if q.standard)


# ---- how they are read ------------------------------------------------------------------------------------------------


def cell(value: float | None) -> Cell:
    return Cell(note="not measurable") if value is None else Cell(float(value), n=1)


def at_full(fact: str, whose: str, read: Callable[[LayerMeans | None], float | None]) -> Read:
    """From a fact of level full: of the credit, or of one of its controls."""

    def found(record: Record, epoch: int | None) -> Cell:
        return cell(read(getattr(getattr(record.full(epoch), fact), whose, None)))

    return found


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def cosines(line: Line, layers: Iterable[int]) -> list[float]:
    """The measurable cosines of an epoch at these layers."""
    return [float(line["cosine"][k]) for k in layers if line["cosine"] and line["cosine"][k] is not None]


def deep_layers(record: Record) -> list[int]:
    """The layers of 1..L that count, without exact ones where others are left."""
    deep = [k for k in record.counting if k >= 1]
    exact = record.facts.concentration.exact_layers if record.facts.concentration else ()
    return [k for k in deep if k not in exact] or deep


def top_layer(record: Record, line: Line) -> tuple[int, float] | None:
    """The layer with the largest |cos_l| / Σ|cos| over the layers that count, and that share; None below three layers."""
    sizes = {k: abs(c) for k in record.counting for c in cosines(line, [k])}
    total = math.fsum(sizes.values())
    if len(record.counting) < LEAST_LAYERS or not total > 0:
        return None
    layer = max(sizes, key=lambda k: sizes[k])
    return layer, sizes[layer] / total


def top_share(record: Record, line: Line) -> float | None:
    found = top_layer(record, line)
    return found[1] if found else None


def deep_mean(means: LayerMeans | Concentration | None) -> float | None:
    """Over the layers of 1..L that count, without exact ones where others are left."""
    if means is None:
        return None
    return means.deep_mean if means.deep_mean_without_exact is None else means.deep_mean_without_exact


def of_all(means: LayerMeans | Concentration | None) -> float | None:
    """Over all layers 1..L: what papers quote."""
    return None if means is None else means.deep_mean_all_layers


def first_epoch(record: Record, *checks: str) -> int | None:
    """First trained epoch at which all these checks have fired together."""
    return _first_line(record, lambda line: set(checks) <= set(line["fired"]))


def _first_line(record: Record, meets: Callable[[Line], bool]) -> int | None:
    return next((int(x["epoch"]) for x in record.trajectory if x["epoch"] >= 1 and meets(x)), None)


def _epoch(found: int | None, otherwise: str) -> Cell:
    return Cell(note=otherwise) if found is None else Cell(found, n=1)


def _first(*checks: str) -> Read:
    return lambda record, epoch: _epoch(first_epoch(record, *checks), "does not fire")


def _loss_change(record: Record, line: Line) -> float | None:
    """Since the first epoch."""
    return None if line["epoch"] < 1 else float(line["train_loss"]) - float(record.trajectory[1]["train_loss"])


def _fresh_b(read: Callable[[FreshB], Cell]) -> Read:
    def found(record: Record, epoch: int | None) -> Cell:
        fact = record.full(epoch).fresh_b
        if fact is None or fact.trained is None:
            return Cell(note=fact.reason if fact else "not measured")
        return read(fact)

    return found


def _profile_margin(record: Record, epoch: int | None) -> Cell:
    profile = record.profile if epoch is None else None
    if profile is None or profile.margin is None:
        return Cell(note="no depth profile was measured")
    return Cell(profile.margin.pp, profile.margin.low_pp, profile.margin.high_pp, 1)


def _training(read: Callable[[Training], float | None]) -> dict[str, Any]:
    """Of the run itself: in the report, or measured later."""

    def found(record: Record, epoch: int | None) -> Cell:
        if epoch is not None:
            return Cell(note="training facts are of the final network")
        fact = record.facts.training or record.full(None).training
        return Cell(note="no training facts were measured") if fact is None else cell(read(fact))

    return {"final": lambda f: read(f.training) if f.training else None, "read": found}


def _known(values: Iterable[float | None]) -> float | None:
    """Mean of those that are there."""
    return _mean([v for v in values if v is not None])


def _aggregated(choose: Callable[[Iterable[float]], float]) -> Callable[[Facts], float | None]:
    """The smallest or the largest of the aggregations of Γ that were measured."""
    return lambda f: choose(f.aggregate.measured.values()) if f.aggregate and f.aggregate.measured else None


def _accuracy(row: AuditRow) -> Cell:
    values = row.accuracies
    return Cell(mean(values), n=len(values), values=values) if values else Cell(note="no accuracy was stated")


def _gamma(row: AuditRow) -> Cell:
    """With the number of layers behind it, where a layer that counts is not measurable in some network."""
    values = row.gammas
    behind = {r.facts.alignment.layers_behind.strip(" ()") for r in row.reports if r.facts.alignment} - {""}
    if not values:
        return Cell(note="no credit was given")
    return Cell(mean(values), n=len(values), note="; ".join(sorted(behind)), values=tuple(values))


def _certificate(row: AuditRow) -> Cell:
    """The label of every network that has one; several where they differ."""
    found = (r.certificate for r in (row.records if isinstance(row, Group) else row.reports))
    labels = [c.label for c in found if c is not None]
    return Cell("; ".join(dict.fromkeys(labels)), n=len(labels)) if labels else Cell(note="no certificate was measured")


def _margin(null: str) -> Callable[[AuditRow], Cell]:
    def read(row: AuditRow) -> Cell:
        found = row.margin(null)
        if found is None:
            return Cell(note=f"not every seed has its {null} null")
        return Cell(found.margin_pp, found.low_pp, found.high_pp, found.n)

    return read


# ---- the quantities ---------------------------------------------------------------------------------------------------

ORDERS: dict[str, Any] = {"scale": Scale.LOG, "compare": Compare.LOG_RATIO}
SIGNED: dict[str, Any] = {"form": Form.SIGNED}
MARGIN: dict[str, Any] = {
    "form": Form.SIGNED, "digits": 1, "spread": Spread.INTERVAL, "compare": Compare.INTERVAL,
    "threshold": "frozen_acc_margin_pp",
}  # fmt: skip

for _quantity in (
    Quantity(
        "seeds", "n", "n", "", "number of seeds", of_group=lambda row: Cell(row.count, n=row.count), standard=True
    ),
    Quantity(
        "accuracy", "acc", "accuracy", "", "test accuracy of the final network: mean ± sample standard deviation over seeds",
        then=lambda r, x: x["accuracy"], of_group=_accuracy, spread=Spread.STD, scale=Scale.SHARE, standard=True,
    ),
    Quantity(
        "gamma", "Γ", "Γ", "", "mean over the layers that count of the mean per-sample cosine of a_l and g_l",
        lambda f: f.aggregate.headline if f.aggregate else None, lambda r, x: _mean(cosines(x, r.counting)), of_group=_gamma,
        digits=2, spread=Spread.STD, standard=True,
    ),
    Quantity(
        "gamma_all_layers", "Γ", "Γ, all layers", "", "the same over all layers, whether they count or not",
        lambda f: f.aggregate.gamma_all_layers if f.aggregate else None, lambda r, x: _mean(cosines(x, range(len(x["h"])))),
        digits=2, standard=True,
    ),
    Quantity(
        "gamma_lowest", "Γ", "lowest Γ", "", "smallest of the aggregations of Γ that were measured", _aggregated(min), digits=2,
    ),
    Quantity(
        "gamma_highest", "Γ", "highest Γ", "", "largest of the aggregations of Γ that were measured", _aggregated(max), digits=2,
    ),
    Quantity(
        "deep_cosine", "cos", "deep cosine", "",
        "mean cosine over the layers of 1..L that count, without layers that are exact by construction where others are left",
        lambda f: deep_mean(f.concentration), lambda r, x: _mean(cosines(x, deep_layers(r))), **SIGNED, standard=True,
    ),
    Quantity(
        "deep_cosine_all_layers", "cos", "deep cosine, all layers", "", "the same over all layers 1..L, exact ones included",
        lambda f: of_all(f.concentration), lambda r, x: _mean(cosines(x, range(1, len(x["h"])))), **SIGNED,
    ),
    Quantity(
        "top_share", "share", "largest share", "", "largest |cos_l| / Σ|cos| over the layers that count",
        lambda f: f.concentration.top_share if f.concentration else None, top_share,
        scale=Scale.SHARE, digits=2, threshold="concentration_share",
    ),
    Quantity(
        "growth", "growth", "growth", "", "largest ratio of mean ‖h‖ between neighbouring layers",
        lambda f: f.scale.growth, lambda r, x: float(x["growth"]),
        **ORDERS, digits=2, spread=Spread.RANGE, threshold="h_norm_explosion_ratio", standard=True,
    ),
    Quantity("last_h", "‖h_L‖", "‖h_L‖", "", "mean norm of the last hidden state", then=lambda r, x: x["h"][-1], **ORDERS),
    Quantity(
        "reference_norm", "‖g_L‖", "‖g_L‖ per sample", "", "mean over samples of ‖g_L‖, each sample's own loss",
        lambda f: f.reference.per_sample[-1], lambda r, x: x["g_per_sample"][-1], **ORDERS,
    ),
    Quantity(
        "reference_norm_128", "‖g_L‖/128", "‖g_L‖/128", "",
        "mean per-sample ‖g_L‖ divided by 128: what a mean-reduced loss shows at batch size 128",
        lambda f: batch_mean(f.reference.per_sample[-1]), lambda r, x: batch_mean(x["g_per_sample"][-1]),
        **ORDERS, digits=2, spread=Spread.RANGE, threshold="g_norm_floor", standard=True,
    ),
    Quantity(
        "stability", "C", "stability", "", "mean pairwise cosine of the batch-mean g_L over disjoint groups of 128 samples",
        lambda f: f.stability.deepest, lambda r, x: x["stability"], **SIGNED, threshold="stability_drift_ceiling",
    ),
    Quantity(
        "rho", "ρ", "deep ρ", "", "perturbation correlation over the same layers as the deep cosine (32 directions, ε = 1e-3)",
        read=at_full("perturbation", "credit", deep_mean), **SIGNED, full=True,
    ),
    Quantity(
        "rho_all_layers", "ρ", "deep ρ, all layers", "", "the same over all layers 1..L",
        read=at_full("perturbation", "credit", of_all), **SIGNED, full=True,
    ),
    Quantity(
        "rho_reference", "ρ(g)", "ρ of a = g", "", "positive control of ρ: the gradient itself, all layers 1..L",
        read=at_full("perturbation", "reference", of_all), **SIGNED, full=True,
    ),
    Quantity(
        "rho_random", "ρ(random)", "ρ of a = random", "", "negative control of ρ: random vectors, all layers 1..L",
        read=at_full("perturbation", "random", of_all), **SIGNED, full=True,
    ),
    Quantity(
        "nudging", "nudging", "nudging", "", "loss change after a step of .01 against the credit; negative is good",
        read=at_full("nudging", "credit", deep_mean), compare=Compare.LOG_RATIO, full=True,
    ),
    Quantity(
        "nudging_all_layers", "nudging", "nudging, all layers", "", "the same over all layers 1..L",
        read=at_full("nudging", "credit", of_all), compare=Compare.LOG_RATIO, full=True,
    ),
    Quantity(
        "fresh_b", "cos(B)", "trained", "", "deep cosine with the feedback that the network was trained with",
        read=_fresh_b(lambda b: Cell(b.trained, n=1)), **SIGNED, full=True,
    ),
    Quantity(
        "fresh_b_mean", "cos(fresh B)", "redrawn (20)", "",
        "deep cosine with redrawn feedback: mean ± standard deviation over 20 draws",
        read=_fresh_b(lambda b: Cell(b.mean, n=len(b.draws), values=tuple(v for v in b.draws if v is not None))),
        **SIGNED, spread=Spread.STD, full=True,
    ),
    Quantity(
        "fresh_b_z", "z", "z", "", "trained minus redrawn mean, in standard deviations of the draws",
        read=_fresh_b(lambda b: Cell(b.z, n=1)), **SIGNED, digits=2, compare=Compare.Z, full=True,
    ),
    Quantity(
        "profile_margin", "Δ readout", "readout margin (pp)", "pp",
        "linear readout of h_L minus that of the twin with random blocks, with 95 % interval", read=_profile_margin,
        **{**MARGIN, "threshold": ""},
    ),
    Quantity(
        "weight_growth", "‖w-w_0‖/‖w_0‖", "growth of the weights", "", "‖w - w_0‖ / ‖w_0‖ over all parameters",
        **_training(lambda t: t.growth), **ORDERS,
    ),
    Quantity(
        "block_growth", "‖w-w_0‖/‖w_0‖", "growth of a block's weights", "", "‖w - w_0‖ / ‖w_0‖ of each block, mean over blocks",
        **_training(lambda t: _known(t.growth_by_block)), **ORDERS,
    ),
    Quantity(
        "weight_product", "‖w1‖·‖w2‖", "‖w1‖·‖w2‖ of a block", "",
        "product of the norms of the two weights of a block, mean over blocks",
        **_training(lambda t: _known(t.weight_product)), **ORDERS,
    ),
    Quantity(
        "train_loss", "loss", "train loss", "", "mean over the samples of the epoch, taken while training",
        then=lambda r, x: x.get("train_loss"),
    ),
    Quantity(
        "loss_change", "Δ loss", "Δ train loss", "", "training loss of the last epoch minus that of the first",
        then=_loss_change, **SIGNED, compare=Compare.LOG_RATIO,
    ),
    Quantity(
        "residual", "‖dE/dh‖", "distance to the fixed point", "",
        "‖dE/dh‖ where the relaxation ended, over that at its start",
        then=lambda r, x: (x.get("rule") or {}).get("residual"), digits=2,
    ),
    Quantity(
        "margin_matched", "margin", "margin to matched null (pp)", "pp",
        "accuracy minus that of the matched null (random blocks, trained by the same rule), with 95 % interval",
        of_group=_margin("matched"), **MARGIN, standard=True,
    ),
    Quantity(
        "margin_bp", "margin", "to bp null (pp)", "pp",
        "accuracy minus that of the bp null (random blocks, trained by backpropagation), with 95 % interval",
        of_group=_margin("bp"), **MARGIN, standard=True,
    ),
    Quantity(
        "margin_unstated", "margin", "to null of unstated kind (pp)", "pp",
        "accuracy minus that of a null; how it was trained was not stated", of_group=_margin("kind unstated"), **MARGIN,
    ),
    Quantity("d1", "D1", "D1 answer", "", "scale stability", of_group=lambda row: Cell(row.answer("D1"))),
    Quantity("d2", "D2", "D2 answer", "", "reference validity", of_group=lambda row: Cell(row.answer("D2"))),
    Quantity("d3", "D3", "D3 answer", "", "depth utility, against the matched null", of_group=lambda row: Cell(row.answer("D3"))),
    Quantity(
        "finding", "verdict", "the protocol finds", "", "verdict over seeds",
        of_group=lambda row: Cell(row.found, n=len(row.reports)), standard=True,
    ),
    Quantity(
        "certificate", "certificate", "certificate", "", "what the updates of the blocks depend on: label of `certify`",
        of_group=_certificate,
    ),
    Quantity("d1_epoch", "D1", "D1 from epoch", "epochs", "first epoch at which D1 fires", read=_first("D1")),
    Quantity("d2_epoch", "D2", "D2", "epochs", "first epoch at which D2 fires", read=_first("D2")),
    Quantity(
        "mode1_epoch", "Mode 1", "both", "epochs", "first epoch at which both fire (Mode 1)", read=_first("D1", "D2")
    ),
    Quantity(
        "epochs", "epochs", "epochs", "epochs", "epochs of the run", read=lambda r, epoch: Cell(len(r.trajectory) - 1, n=1)
    ),
):  # fmt: skip
    register(_quantity)


def _of_layer(
    name: str, title: str, about: str, values: Callable[[Line], Any], **how: Any
) -> Callable[[int], Quantity]:
    def made(k: int) -> Quantity:
        def then(record: Record, line: Line) -> float | None:
            found: Sequence[float | None] = values(line) or ()
            return found[k] if k < len(found) else None

        heading = title.format(k)
        return Quantity(f"{name}[{k}]", heading, heading, "", about.format(k), then=then, **how)

    return made


def _floor_epoch(batch: int) -> Quantity:
    floor = DiagnosticThresholds().g_norm_floor

    def under(line: Line) -> bool:
        return batch_mean(float(line["g_per_sample"][-1]), batch) < floor

    def read(record: Record, epoch: int | None) -> Cell:
        return _epoch(_first_line(record, under), "it stays above")

    title, about = f"‖g_L‖/{batch} under the floor", f"first epoch at which ‖g_L‖/{batch} is under {floor:g}"
    return Quantity(f"floor_epoch[{batch}]", "D2", title, "epochs", about, read=read)


def _saved(batch: int) -> Quantity:
    floor = _floor_epoch(batch)

    def read(record: Record, epoch: int | None) -> Cell:
        fires = floor.of(record).number
        return floor.of(record) if fires is None else Cell(1 - fires / (len(record.trajectory) - 1), n=1)

    about = f"share of the epochs that are left when ‖g_L‖/{batch} is first under the floor"
    return Quantity(
        f"saved[{batch}]", "saved", f"epochs saved at ‖g_L‖/{batch}", "", about, read=read, form=Form.PERCENT
    )


LAYERED: dict[str, Callable[[int], Quantity]] = {
    "cosine": _of_layer(
        "cosine", "cosine at layer {0}", "mean per-sample cosine of a_{0} and g_{0}", lambda x: x["cosine"], **SIGNED
    ),
    "h": _of_layer("h", "‖h_{0}‖", "mean norm of h_{0}", lambda x: x["h"], **ORDERS),
    "reference_norm_128": _of_layer(
        "reference_norm_128", "‖g_{0}‖/128", "mean per-sample ‖g_{0}‖ divided by 128",
        lambda x: [batch_mean(g) for g in x["g_per_sample"]], **ORDERS, digits=2,
    ),
    "floor_epoch": _floor_epoch,
    "saved": _saved,
}  # fmt: skip
"""Quantities of one layer (`floor_epoch`, `saved`: of one batch size): name -> number in brackets -> quantity."""
