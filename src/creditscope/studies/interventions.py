"""One table for the intervention studies: accuracy, scale and level-full facts of each method and penalty, over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from creditscope.render.numbers import num, signed
from creditscope.studies.audit import Group, audit, margin_pp, margin_text
from creditscope.studies.published import DEEP_COSINE, DEEP_RHO, Published, audit_accuracy
from creditscope.studies.result import (
    Run,
    beside,
    deep_cosine,
    deep_cosine_of_all,
    deep_nudge,
    deep_nudge_of_all,
    deep_rho,
    deep_rho_of_all,
    geometric,
    known,
    mean,
    pm,
)

HEADER = [
    "run",
    "n",
    "accuracy",
    "published",
    "difference",
    "‖h_L‖",
    "‖g_L‖/128",
    "deep cosine",
    "with exact layers",
    "published",
    "deep ρ",
    "published",
    "nudging",
    "Δ train loss",
    "margin to matched null (pp)",
]
CONVENTION = (
    "mean ± sample standard deviation over n seeds (‖h_L‖ and ‖g_L‖: geometric mean); deep = layers 1..L without exact ones "
    "(the published cosines include them; of bp all are exact, so all count); ρ: 32 directions, ε = 1e-3, 256 samples, "
    "float64; nudging η = .01; Δ train loss = last minus first epoch; published: arXiv 2606.21126, 30 epochs (! another "
    "version or place has another value)"
)


QUANTITIES = {
    "cosine": deep_cosine,
    "cosine_of_all": deep_cosine_of_all,
    "rho": deep_rho,
    "rho_of_all": deep_rho_of_all,
    "nudge": deep_nudge,
    "nudge_of_all": deep_nudge_of_all,
}
"""Of level full; `of_all`: with the layers that are exact by construction."""


@dataclass(frozen=True)
class Item:
    """One method and penalty, over seeds."""

    group: Group
    accuracy: float
    cosine: float | None
    cosine_of_all: float | None
    rho: float | None
    rho_of_all: float | None
    nudge: float | None
    nudge_of_all: float | None
    loss: float
    last_h: float

    @property
    def margin(self) -> float | None:
        return margin_pp(self.group)


def items(runs: Sequence[Run]) -> list[Item]:
    found = []
    for group in audit(runs):
        members: tuple[Run, ...] = group.bundles
        facts = [run.full(None) for run in members]
        known_values = {name: known(map(read, facts)) for name, read in QUANTITIES.items()}
        found.append(
            Item(
                group,
                mean(group.accuracies),
                loss=mean([r.loss_decrease for r in members]),
                last_h=geometric([r.last_h for r in members]),
                **{name: mean(values) if values else None for name, values in known_values.items()},
            )
        )
    return found


def _published(table: dict[tuple[str, float], Published], item: Item) -> str:
    found = (
        table.get((item.group.spec.method, item.group.spec.penalty)) if item.group.spec.dataset == "cifar10" else None
    )
    return found.text if found else "–"


def row(item: Item) -> list[str]:
    g = item.group
    return [
        g.label,
        str(len(g.seeds)),
        pm(g.accuracies),
        *beside(audit_accuracy(g.spec), item.accuracy),
        num(item.last_h),
        num(geometric(g.values("reference"))),
        signed(item.cosine),
        signed(item.cosine_of_all),
        _published(DEEP_COSINE, item),
        signed(item.rho),
        _published(DEEP_RHO, item),
        num(item.nudge),
        signed(item.loss),
        margin_text(g, "matched"),
    ]


def figure(found: Sequence[Item]) -> list[dict[str, object]]:
    return [
        {
            "label": i.group.label,
            "method": i.group.spec.method,
            "penalty": i.group.spec.penalty,
            "accuracy": list(i.group.accuracies),
            "cosine": i.cosine,
            "rho": i.rho,
            "nudging": i.nudge,
            "loss_decrease": i.loss,
            "last_h": i.last_h,
            "margin_pp": i.margin,
        }
        for i in found
    ]
