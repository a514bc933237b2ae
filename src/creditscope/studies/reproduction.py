"""Published claims held against our runs: published, ours, difference, and a statement computed from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from creditscope.render.numbers import num, signed
from creditscope.studies.claims import Claim
from creditscope.studies.published_claims import claims
from creditscope.studies.result import Run, mean

TOLERANCE = {
    "accuracy": "within 2 pp, or within twice the two standard deviations together",
    "cosine": "within .10, or within twice the two standard deviations together",
    "order": "same sign and within a factor 3",
    "epochs": "within 2 epochs",
}
"""What counts as reproduced, by kind of quantity; printed on the page."""
FACTOR = 3.0
ABSOLUTE = {"accuracy": 0.02, "cosine": 0.10, "epochs": 2.0}
EARLY = ("first fires", "after epoch")
"""Quantities of the course of training: comparable wherever the schedule is, though fewer epochs were run."""


@dataclass(frozen=True)
class Ours:
    """Our runs under one credit norm ("" where none applies)."""

    norm: str
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    hashes: tuple[str, ...]
    trained: int
    """Epochs of the runs (of their schedule, for a quantity of the course of training)."""

    @property
    def std(self) -> float | None:
        if len(self.values) < 2:
            return None
        centre = mean(self.values)
        return math.sqrt(math.fsum((v - centre) ** 2 for v in self.values) / (len(self.values) - 1))


@dataclass(frozen=True)
class Outcome:
    claim: Claim
    ours: tuple[Ours, ...]
    statement: str

    @property
    def kind(self) -> str:
        """reproduced | reproduced only with ... | not reproduced | not comparable | not run"""
        return self.statement.split(":")[0].split(" with ")[0].split(" because ")[0]


def close(claim: Claim, ours: Ours) -> bool:
    said, value = claim.published.value, mean(ours.values)
    if claim.closeness == "order":
        return said * value > 0 and 1 / FACTOR <= value / said <= FACTOR
    spread = 2 * math.hypot(claim.published.std or 0.0, ours.std or 0.0)
    return abs(value - said) <= max(ABSOLUTE[claim.closeness], spread if claim.closeness != "epochs" else 0.0)


def held_against(claim: Claim, runs: Iterable[Run]) -> list[Ours]:
    """The claim's quantity in our runs, by norm; of several lengths of training the one nearest to the published."""
    early = any(word in claim.what for word in EARLY)
    by_norm: dict[str, dict[int, list[Run]]] = {}
    for run in runs:
        if claim.about(run):
            trained = (run.spec.schedule_epochs if early else run.spec.epochs) or 0
            by_norm.setdefault(run.spec.credit_norm or "", {}).setdefault(trained, []).append(run)
    found = []
    for norm, by_length in sorted(by_norm.items()):
        nearest = min(by_length, key=lambda n: abs(n - claim.epochs))
        mine = sorted(by_length[nearest], key=lambda r: r.spec.seed)
        if early:  # one run per seed: shared schedules may have been run for different numbers of epochs
            mine = list({r.spec.seed: r for r in sorted(mine, key=lambda r: r.spec.epochs or 0)}.values())
        read = [(r, claim.value(r)) for r in mine]
        kept = [(r, float(v)) for r, v in read if v is not None and math.isfinite(v)]
        found.append(
            Ours(
                norm,
                tuple(v for _, v in kept),
                tuple(r.spec.seed for r, _ in kept),
                tuple(r.spec.hash for r in mine),
                nearest,
            )
        )
    return found


def state(claim: Claim, ours: Sequence[Ours]) -> str:
    """The statement: from the numbers alone."""
    if not ours:
        return "not run"
    if all(o.trained != claim.epochs for o in ours):
        return f"not comparable because ours trained {ours[0].trained} epochs, the published {claim.epochs}"
    measured = [o for o in ours if o.values]
    if not measured:
        if "first fires" in claim.what:
            return "not reproduced: the check does not fire"
        return "not comparable because the quantity is not measurable in our runs"
    agree = [o for o in measured if close(claim, o)]
    if len(agree) == len(ours):
        return "reproduced"
    if agree:
        return f"reproduced only with credit_norm={' and '.join(o.norm for o in agree)}"
    return "not reproduced"


def outcomes(runs: Sequence[Run]) -> list[Outcome]:
    found = []
    for claim in claims():
        ours = held_against(claim, runs)
        found.append(Outcome(claim, tuple(ours), state(claim, ours)))
    return found


# ---- as text ------------------------------------------------------------------------------------------------------------


def _number(claim: Claim, value: float) -> str:
    if claim.closeness == "accuracy":
        return f"{value:.3f}"
    if claim.closeness == "cosine":
        return signed(value)
    return f"{value:.1f}" if claim.closeness == "epochs" else num(value, 2)


def published_text(claim: Claim) -> str:
    p = claim.published
    std = f" ± {p.std:.3f}" if p.std is not None else ""
    return _number(claim, p.value) + std + ("!" if p.contested else "")


def ours_text(outcome: Outcome) -> str:
    parts = []
    for o in outcome.ours:
        name = f"{o.norm}: " if o.norm else ""
        if not o.values:
            parts.append(f"{name}not there (n={len(o.hashes)})")
            continue
        std = f" ± {num(o.std, 2)}" if o.std is not None else ""
        parts.append(f"{name}{_number(outcome.claim, mean(o.values))}{std} (n={len(o.values)})")
    return "; ".join(parts) or "–"


def difference_text(outcome: Outcome) -> str:
    parts = []
    said = outcome.claim.published.value
    for o in outcome.ours:
        if not o.values:
            continue
        name = f"{o.norm}: " if o.norm else ""
        value = mean(o.values)
        if outcome.claim.closeness == "order":
            parts.append(f"{name}× {num(value / said, 2)}" if said * value > 0 else f"{name}other sign")
        else:
            parts.append(name + signed(value - said, 1 if outcome.claim.closeness == "epochs" else 3))
    return "; ".join(parts) or "–"
