"""Each quantity once: its name, symbol, unit and convention, how it is read from a record, and how it is printed and compared.

Tables, figures, CSV columns, JSON keys and comparisons with published values are made from this registry. To add a quantity to
every table of audited methods, register one with `standard=True`:

    register(Quantity("name", "symbol", "title", unit="", convention="...", read=lambda record, epoch: Cell(...), standard=True))

`read(record, epoch)`: epoch None is the final network. A quantity of one layer is asked for as "cosine[0]".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from creditscope.errors import CreditscopeError, unknown
from creditscope.measure.alignment import LEAST_LAYERS
from creditscope.measure.facts import GROUP, Facts, LayerMeans
from creditscope.runs.groups import Group
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
    read: Read | None = None
    of_group: Callable[[Group], Cell] | None = None
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
        if self.read is None:
            return Cell(note=f"{self.name} is of a group of seeds with its nulls")
        try:
            return self.read(record, epoch)
        except NotMeasured as error:
            return Cell(note=str(error))

    def over(self, group: Group, epoch: int | None = None) -> Cell:
        """The quantity of a group of seeds: mean (geometric on a log scale) of the networks that have it."""
        return self.of_group(group) if self.of_group else self.mean(self.of(r, epoch) for r in group.records)

    def mean(self, cells: Iterable[Cell]) -> Cell:
        cells = list(cells)
        values = [c.value for c in cells if c.number is not None]
        if not values:
            return Cell(note=next((c.note for c in cells if c.note), ""))
        average = geometric_mean if self.scale is Scale.LOG else mean
        if len(values) == len(cells) == 1:
            return replace(cells[0], n=1, values=(float(values[0]),))
        missing = next((c.note for c in cells if c.number is None), "")
        return Cell(average(values), n=len(values), note=missing, values=tuple(map(float, values)))

    def column(self, **change: Any) -> Column:
        return replace(Column(self.name, self.title, self, self.spread), **change)


QUANTITIES: dict[str, Quantity] = {}
"""By name, in the order in which tables show them."""


def register(quantity: Quantity) -> Quantity:
    if quantity.name in QUANTITIES:
        raise CreditscopeError(f"quantity {quantity.name!r} is there already; choose another name")
    QUANTITIES[quantity.name] = quantity
    return quantity


def get_quantity(name: str) -> Quantity:
    """By its name; "cosine[3]" is the cosine at layer 3."""
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

Reader = Callable[[Any], Any]


def cell(value: float | None, why: str = "not measurable") -> Cell:
    return Cell(note=why) if value is None else Cell(float(value), n=1)


def at_line(read: Callable[[Record, Line], float | None], why: str = "not measurable") -> Read:
    """From the line of an epoch."""

    def found(record: Record, epoch: int | None) -> Cell:
        line = record.line(epoch)
        return Cell(note=f"the run has no epoch {epoch}") if line is None else cell(read(record, line), why)

    return found


def either(final: Callable[[Facts], float | None], then: Callable[[Record, Line], float | None]) -> Read:
    """From the facts of the final network, or from the line of an epoch."""

    def found(record: Record, epoch: int | None) -> Cell:
        return cell(final(record.facts)) if epoch is None else at_line(then)(record, epoch)

    return found


def at_full(read: Callable[[Facts], float | None]) -> Read:
    """From the facts of level full."""
    return lambda record, epoch: cell(read(record.full(epoch)))


def only_final(read: Callable[[Record], float | None], why: str = "not measurable") -> Read:
    return lambda record, epoch: cell(read(record), why) if epoch is None else Cell(note="of the whole run only")


def batch_mean(per_sample: float, batch: int = GROUP) -> float:
    """‖g‖ as a loss that is averaged over a batch of this size shows it."""
    return per_sample / batch


def cosines(record: Record, line: Line, counting: bool = True) -> list[float]:
    """The measurable cosines of a line at the layers from 1 on (`counting`: that count)."""
    layers = record.counting if counting else range(len(line["cosine"] or ()))
    return [float(line["cosine"][k]) for k in layers if k >= 1 and line["cosine"] and line["cosine"][k] is not None]


def top_share(record: Record, line: Line) -> float | None:
    """Largest |cos_l| / Σ|cos| over the layers that count; None below three layers."""
    found = top_layer(record, line)
    return found[1] if found else None


def top_layer(record: Record, line: Line) -> tuple[int, float] | None:
    """The layer with the largest share of Γ at an epoch, and that share."""
    known = {
        k: abs(float(line["cosine"][k])) for k in record.counting if line["cosine"] and line["cosine"][k] is not None
    }
    total = math.fsum(known.values())
    if len(record.counting) < LEAST_LAYERS or not total > 0:
        return None
    layer = max(known, key=lambda k: known[k])
    return layer, known[layer] / total


def deep_mean(means: LayerMeans | None) -> float | None:
    """Mean over the layers of 1..L that count, without exact ones where others are left."""
    if means is None:
        return None
    return means.deep_mean if means.deep_mean_without_exact is None else means.deep_mean_without_exact


def _deep_cosine(facts: Facts) -> float | None:
    c = facts.concentration
    return None if c is None else c.deep_mean if c.deep_mean_without_exact is None else c.deep_mean_without_exact


def _all_layers(means: LayerMeans | None) -> float | None:
    return None if means is None else means.deep_mean_all_layers


def fires(*checks: str) -> Callable[[Record], int | None]:
    """First trained epoch at which all these checks have fired together."""

    def first(record: Record) -> int | None:
        lines = (x for x in record.trajectory if x["epoch"] >= 1 and set(checks) <= set(x["fired"]))
        return next((int(x["epoch"]) for x in lines), None)

    return first


def _epoch_of(*checks: str) -> Read:
    first = fires(*checks)

    def read(record: Record, epoch: int | None) -> Cell:
        found = first(record)
        return Cell(note="does not fire") if found is None else Cell(found, n=1)

    return read


def _loss_decrease(record: Record) -> float:
    losses = [float(line["train_loss"]) for line in record.trajectory if line["epoch"] >= 1]
    return losses[-1] - losses[0]


def _mean_or_none(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def _margin(null: str) -> Callable[[Group], Cell]:
    def read(group: Group) -> Cell:
        found = group.margin(null)
        if found is None:
            return Cell(note=f"not every seed has its {null} null")
        return Cell(found.margin_pp, found.low_pp, found.high_pp, found.n)

    return read


def _answer(check: str) -> Callable[[Group], Cell]:
    return lambda group: Cell(group.answer(check), n=len(group.reports))


# ---- the quantities ---------------------------------------------------------------------------------------------------

for _q in (
    Quantity(
        "accuracy", "acc", "accuracy", "", "test accuracy of the final network: mean ± sample standard deviation over seeds",
        at_line(lambda r, x: x["accuracy"]), spread=Spread.STD, scale=Scale.SHARE, standard=True,
    ),
    Quantity(
        "gamma", "Γ", "Γ", "", "mean over the layers that count of the mean per-sample cosine of a_l and g_l",
        either(lambda f: f.aggregate.headline if f.aggregate else None,
               lambda r, x: _mean_or_none([float(x["cosine"][k]) for k in r.counting if x["cosine"][k] is not None])
               if x["cosine"] else None),
        digits=2, spread=Spread.STD, standard=True,
    ),
    Quantity(
        "gamma_all_layers", "Γ", "Γ, all layers", "", "the same over all layers, whether they count or not",
        either(lambda f: f.aggregate.gamma_all_layers if f.aggregate else None,
               lambda r, x: _mean_or_none([float(c) for c in x["cosine"] or () if c is not None])),
        digits=2,
    ),
    Quantity(
        "deep_cosine", "cos", "deep cosine", "",
        "mean cosine over the layers of 1..L that count, without layers that are exact by construction where others are left",
        either(_deep_cosine, lambda r, x: _mean_or_none(cosines(r, x))), form=Form.SIGNED,
    ),
    Quantity(
        "deep_cosine_all_layers", "cos", "deep cosine, all layers", "", "the same over all layers 1..L, exact ones included",
        either(lambda f: f.concentration.deep_mean_all_layers if f.concentration else None,
               lambda r, x: _mean_or_none(cosines(r, x, counting=False))), form=Form.SIGNED,
    ),
    Quantity(
        "top_share", "share", "largest share", "", "largest |cos_l| / Σ|cos| over the layers that count",
        either(lambda f: f.concentration.top_share if f.concentration else None, top_share),
        scale=Scale.SHARE, digits=2, threshold="concentration_share",
    ),
    Quantity(
        "growth", "growth", "growth", "", "largest ratio of mean ‖h‖ between neighbouring layers",
        either(lambda f: f.scale.growth, lambda r, x: float(x["growth"])),
        scale=Scale.LOG, digits=2, spread=Spread.RANGE, compare=Compare.LOG_RATIO, threshold="h_norm_explosion_ratio",
        standard=True,
    ),
    Quantity(
        "last_h", "‖h_L‖", "‖h_L‖", "", "mean norm of the last hidden state", at_line(lambda r, x: x["h"][-1]),
        scale=Scale.LOG, compare=Compare.LOG_RATIO,
    ),
    Quantity(
        "reference_norm", "‖g_L‖", "‖g_L‖ per sample", "", "mean over samples of ‖g_L‖, each sample's own loss",
        either(lambda f: f.reference.per_sample[-1], lambda r, x: float(x["g_per_sample"][-1])),
        scale=Scale.LOG, compare=Compare.LOG_RATIO,
    ),
    Quantity(
        "reference_norm_128", "‖g_L‖/128", "‖g_L‖/128", "",
        "mean per-sample ‖g_L‖ divided by 128: what a mean-reduced loss shows at batch size 128",
        either(lambda f: batch_mean(f.reference.per_sample[-1]), lambda r, x: batch_mean(float(x["g_per_sample"][-1]))),
        scale=Scale.LOG, digits=2, spread=Spread.RANGE, compare=Compare.LOG_RATIO, threshold="g_norm_floor", standard=True,
    ),
    Quantity(
        "stability", "C", "stability", "", "mean pairwise cosine of the batch-mean g_L over disjoint groups of 128 samples",
        either(lambda f: f.stability.deepest, lambda r, x: x["stability"]), form=Form.SIGNED,
        threshold="stability_drift_ceiling",
    ),
    Quantity(
        "rho", "ρ", "deep ρ", "", "perturbation correlation over the same layers as the deep cosine (32 directions, ε = 1e-3)",
        at_full(lambda f: deep_mean(f.perturbation.credit if f.perturbation else None)), form=Form.SIGNED, full=True,
    ),
    Quantity(
        "rho_all_layers", "ρ", "deep ρ, all layers", "", "the same over all layers 1..L",
        at_full(lambda f: _all_layers(f.perturbation.credit if f.perturbation else None)), form=Form.SIGNED, full=True,
    ),
    Quantity(
        "rho_reference", "ρ(g)", "ρ of a = g", "", "positive control of ρ: the gradient itself, all layers 1..L",
        at_full(lambda f: _all_layers(f.perturbation.reference if f.perturbation else None)), form=Form.SIGNED, full=True,
    ),
    Quantity(
        "rho_random", "ρ(random)", "ρ of a = random", "", "negative control of ρ: random vectors, all layers 1..L",
        at_full(lambda f: _all_layers(f.perturbation.random if f.perturbation else None)), form=Form.SIGNED, full=True,
    ),
    Quantity(
        "nudging", "nudging", "nudging", "", "loss change after a step of .01 against the credit; negative is good",
        at_full(lambda f: deep_mean(f.nudging.credit if f.nudging else None)), compare=Compare.LOG_RATIO, full=True,
    ),
    Quantity(
        "nudging_all_layers", "nudging", "nudging, all layers", "", "the same over all layers 1..L",
        at_full(lambda f: _all_layers(f.nudging.credit if f.nudging else None)), compare=Compare.LOG_RATIO, full=True,
    ),
    Quantity(
        "fresh_b", "cos(B)", "trained", "", "deep cosine with the feedback that the network was trained with",
        at_full(lambda f: f.fresh_b.trained if f.fresh_b else None), form=Form.SIGNED, full=True,
    ),
    Quantity(
        "fresh_b_mean", "cos(fresh B)", "redrawn (20)", "", "deep cosine with redrawn feedback: mean ± standard deviation over "
        "20 draws", at_full(lambda f: f.fresh_b.mean if f.fresh_b else None), form=Form.SIGNED, spread=Spread.STD, full=True,
    ),
    Quantity(
        "fresh_b_z", "z", "z", "", "trained minus redrawn mean, in standard deviations of the draws",
        at_full(lambda f: f.fresh_b.z if f.fresh_b else None), form=Form.SIGNED, digits=2, compare=Compare.Z, full=True,
    ),
    Quantity(
        "profile_margin", "Δ readout", "readout margin (pp)", "pp",
        "linear readout of h_L minus that of the twin with random blocks, with 95 % interval",
        lambda r, epoch: Cell(p.margin.pp, p.margin.low_pp, p.margin.high_pp, 1)
        if (p := r.full(epoch).profile) is not None and p.margin is not None
        else Cell(note="no depth profile was measured"),
        form=Form.SIGNED, digits=1, spread=Spread.INTERVAL, compare=Compare.INTERVAL, full=True,
    ),
    Quantity(
        "weight_growth", "‖w-w_0‖/‖w_0‖", "growth of the weights", "", "‖w - w_0‖ / ‖w_0‖ over all parameters",
        only_final(lambda r: r.facts.training.growth if r.facts.training else None, "the run does not hold it"),
        scale=Scale.LOG, compare=Compare.LOG_RATIO,
    ),
    Quantity(
        "train_loss", "loss", "train loss", "", "mean over the samples of the epoch, taken while training",
        at_line(lambda r, x: x.get("train_loss"), "no loss before training"),
    ),
    Quantity(
        "loss_change", "Δ loss", "Δ train loss", "", "training loss of the last epoch minus that of the first",
        only_final(_loss_decrease), form=Form.SIGNED,
    ),
    Quantity(
        "residual", "‖dE/dh‖", "distance to the fixed point", "",
        "‖dE/dh‖ where the relaxation ended, over that at its start",
        at_line(lambda r, x: (x.get("rule") or {}).get("residual"), "the rule does not relax"), scale=Scale.LINEAR, digits=2,
    ),
    Quantity(
        "margin_matched", "margin", "margin to matched null (pp)", "pp",
        "accuracy minus that of frozen blocks trained by the same rule, with 95 % interval", of_group=_margin("matched"),
        form=Form.SIGNED, digits=1, spread=Spread.INTERVAL, compare=Compare.INTERVAL, threshold="frozen_acc_margin_pp",
        standard=True,
    ),
    Quantity(
        "margin_bp", "margin", "to bp null (pp)", "pp",
        "accuracy minus that of frozen blocks trained by backpropagation, with 95 % interval", of_group=_margin("bp"),
        form=Form.SIGNED, digits=1, spread=Spread.INTERVAL, compare=Compare.INTERVAL, threshold="frozen_acc_margin_pp",
        standard=True,
    ),
    Quantity("d1", "D1", "D1 answer", "", "scale stability", of_group=_answer("D1")),
    Quantity("d2", "D2", "D2 answer", "", "reference validity", of_group=_answer("D2")),
    Quantity("d3", "D3", "D3 answer", "", "depth utility, against the matched null", of_group=_answer("D3")),
    Quantity(
        "finding", "verdict", "the protocol finds", "", "verdict over seeds",
        of_group=lambda g: Cell(g.found, n=len(g.reports)), standard=True,
    ),
    Quantity("d1_epoch", "D1", "D1 from epoch", "epochs", "first epoch at which D1 fires", _epoch_of("D1")),
    Quantity("d2_epoch", "D2", "D2", "epochs", "first epoch at which D2 fires", _epoch_of("D2")),
    Quantity("mode1_epoch", "Mode 1", "both", "epochs", "first epoch at which both fire (Mode 1)", _epoch_of("D1", "D2")),
    Quantity("epochs", "epochs", "epochs", "epochs", "epochs of the run",
             lambda r, epoch: Cell(int(r.trajectory[-1]["epoch"] if epoch is None else epoch), n=1)),
    Quantity("seeds", "n", "n", "", "number of seeds", of_group=lambda g: Cell(len(g.seeds), n=len(g.seeds))),
):  # fmt: skip
    register(_q)


def _layer(
    what: str, read: Callable[[Line], Any], title: str, convention: str, **how: Any
) -> Callable[[int], Quantity]:
    def made(layer: int) -> Quantity:
        def found(record: Record, line: Line) -> float | None:
            values = read(line)
            return values[layer] if values and layer < len(values) else None

        name, heading = f"{what}[{layer}]", title.format(l=layer)
        return Quantity(name, heading, heading, "", convention.format(l=layer), at_line(found), **how)

    return made


LAYERED: dict[str, Callable[[int], Quantity]] = {
    "cosine": _layer(
        "cosine", lambda x: x["cosine"], "cosine at layer {l}", "mean per-sample cosine of a_{l} and g_{l}", form=Form.SIGNED
    ),
    "h": _layer(
        "h", lambda x: x["h"], "‖h_{l}‖", "mean norm of h_{l}", scale=Scale.LOG, compare=Compare.LOG_RATIO
    ),
    "reference_norm_128": _layer(
        "reference_norm_128", lambda x: [batch_mean(float(g)) for g in x["g_per_sample"]], "‖g_{l}‖/128",
        "mean per-sample ‖g_{l}‖ divided by 128", scale=Scale.LOG, digits=2, compare=Compare.LOG_RATIO,
    ),
}  # fmt: skip
"""Quantities of one layer: name -> layer -> quantity."""
