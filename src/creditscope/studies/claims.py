"""A published number as a claim about runs.

A claim names the quantity, the runs that it is about (fields of their specs) and how close counts as reproduced. The papers
do not state the credit norm, so a claim about FA, DFA or a bridge is held against every norm that was run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from creditscope.credit.registry import make_rule
from creditscope.studies.published import Published
from creditscope.studies.result import Run
from creditscope.studies.temporal import first_epoch
from creditscope.training.spec import RunSpec

Closeness = Literal["accuracy", "margin", "cosine", "order", "epochs", "at most", "at least"]
"""How close counts as reproduced: see `reproduction.TOLERANCE`."""

Value = Callable[[Run], "float | None"]
PRIMARY: dict[str, Any] = {
    "dataset": "cifar10", "arch": "resmlp", "width": 256, "depth": 4, "terminal_norm": True, "penalty": 0.0,
    "train_last": None, "targets": "labels", "epochs": 100, "credit_site": ("input", None), "ratio": 1, "batch_size": 128,
    "lr": 1e-3, "weight_decay": 0.01, "augment": True, "precision": "fp32",
    "grad_clip": None, "head_lr": None,
}  # fmt: skip
"""The runs of the primary audit; a claim changes what it needs. A tuple: any of these."""


@dataclass(frozen=True)
class Claim:
    table: str
    """The published table or sentence."""
    what: str
    published: Published
    value: Value
    closeness: Closeness
    runs: dict[str, Any] = field(default_factory=dict)
    """Changes to PRIMARY."""
    because: str = ""
    """Why it cannot be compared, though both numbers are there."""
    null: Callable[[RunSpec], RunSpec] | None = None
    """A margin: the run whose value is subtracted, by that of the claim's run; the difference is in percentage points."""

    def about(self, run: Run) -> bool:
        return about(self.runs, run.spec)

    @property
    def epochs(self) -> int:
        return epochs(self.runs)


def about(runs: Mapping[str, Any], spec: RunSpec) -> bool:
    """Is this one of the `runs` (changes to PRIMARY; the rule at its default options), the number of epochs aside?"""
    wanted = {**PRIMARY, **runs}
    wanted.pop("epochs")
    if not all(matches(getattr(spec, name), value) for name, value in wanted.items()):
        return False
    return spec.options == make_rule(spec.method, {}).options.recorded()


def epochs(runs: Mapping[str, Any]) -> int:
    """How long `runs` (changes to PRIMARY) are trained."""
    return int(runs.get("epochs", PRIMARY["epochs"]))


NULL = "frozen blocks, pp (ours: frozen(dfa, rms))"
"""Its norm is not stated; `dfa_null` takes the one that gives DFA its published accuracy."""


def dfa_null(spec: RunSpec) -> RunSpec:
    """The null that the published margins name: frozen blocks, embedding trained by DFA (here with rms), same seed and recipe."""
    change = {"method": "dfa", "credit_norm": "rms", "credit_site": "input"}
    return spec.null("bp").changed(**change)


def long_null(spec: RunSpec) -> RunSpec:
    """`dfa_null` after the 100 epochs of the primary audit, whatever the length of the run."""
    length = {"epochs": PRIMARY["epochs"], "schedule_epochs": PRIMARY["epochs"]}
    return dfa_null(spec).changed(**length)


def matches(value: Any, wanted: Any) -> bool:
    """Equal, or one of a tuple."""
    return value in wanted if isinstance(wanted, tuple) else value == wanted


# ---- quantities ---------------------------------------------------------------------------------------------------------


def accuracy(run: Run) -> float:
    return run.accuracy


def gamma(run: Run) -> float | None:
    """Over all layers, as the papers have it."""
    return run.facts.aggregate.gamma_all_layers if run.facts.aggregate else None


def growth(run: Run) -> float:
    return run.facts.scale.growth


def last_h(run: Run) -> float:
    return run.last_h


def g_128(run: Run) -> float:
    return run.facts.reference.batch_mean_128[-1]


def stability(run: Run) -> float | None:
    return run.facts.stability.deepest


def first_g(run: Run) -> float:
    return run.facts.reference.batch_mean_128[0]


def cosine_at(layer: int) -> Value:
    return lambda run: run.facts.alignment.mean[layer] if run.facts.alignment else None


def at_epoch(epoch: int, read: Callable[[dict[str, Any]], float | None]) -> Value:
    return lambda run: read(run.trajectory[epoch]) if epoch < len(run.trajectory) else None


def g_then(line: dict[str, Any]) -> float:
    return float(line["g_per_sample"][-1]) / 128


def h_then(line: dict[str, Any]) -> float:
    return float(line["h"][-1])


def cos0_then(line: dict[str, Any]) -> float | None:
    found = (line["cosine"] or [None])[0]
    return None if found is None else float(found)


def deep_then(line: dict[str, Any]) -> float | None:
    """Mean of the cosines at layers 1..L."""
    found = [c for c in (line["cosine"] or [])[1:] if c is not None]
    return sum(found) / len(found) if found else None


def acc_then(line: dict[str, Any]) -> float:
    return float(line["accuracy"])


def under_floor_at(batch: int, floor: float = 1e-7) -> Value:
    """First epoch at which ‖g_L‖ of a batch of this size, batch-mean, is under the floor."""

    def read(run: Run) -> float | None:
        found = (x["epoch"] for x in run.trajectory if x["epoch"] >= 1 and float(x["g_per_sample"][-1]) / batch < floor)
        return next(found, None)

    return read


def fires(check: str) -> Value:
    return lambda run: first_epoch(run.trajectory, check)


def full(read: Callable[[Any], float | None]) -> Value:
    return lambda run: read(run.full(None))


def control(name: str) -> Callable[[Any], float | None]:
    def read(facts: Any) -> float | None:
        means = getattr(facts.perturbation, name) if facts.perturbation else None
        return None if means is None else means.deep_mean_all_layers

    return read


def fresh(name: str) -> Callable[[Any], float | None]:
    return lambda facts: getattr(facts.fresh_b, name) if facts.fresh_b else None
