"""Published claims held against our runs: published, ours, difference, and a statement computed from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from creditscope.render.numbers import num, signed
from creditscope.studies.claims import Claim
from creditscope.studies.published import AUDIT, INTERVENTION, UNSTATED
from creditscope.studies.published_claims import claims
from creditscope.studies.result import NotMeasured, Run, geometric, mean

TOLERANCE = {
    "accuracy": "within 2 pp, or within twice the root of the sum of the two squared standard deviations",
    "margin": "within 2 pp, or within twice the root of the sum of the two squared standard deviations (published: of its two "
    "accuracies)",
    "cosine": "within .10, or within twice the root of the sum of the two squared standard deviations",
    "order": "same sign and within a factor 3 (geometric mean over seeds)",
    "epochs": "within 2 epochs, in every seed",
    "at most": "not above the published bound",
    "at least": "not below the published bound",
}
"""What counts as reproduced, by kind of quantity; printed on the page."""
RECIPES = (AUDIT, INTERVENTION)
FACTOR = 3.0
ABSOLUTE = {"accuracy": 0.02, "margin": 2.0, "cosine": 0.10, "epochs": 2.0}
EARLY = ("first", "after epoch")
"""Quantities of the course of training: comparable wherever the schedule is, though fewer epochs were run."""


@dataclass(frozen=True)
class Ours:
    """Our runs under one credit norm ("" where none applies)."""

    norm: str
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    hashes: tuple[str, ...]
    measured: bool
    """True if every run gave the quantity."""
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
    kind: str
    """One of KINDS."""
    statement: str


REPRODUCED, ONE_RUN, ONE_NORM, NOT_REPRODUCED, NOT_ONE_RUN, NOT_COMPARABLE, NOT_RUN = KINDS = (
    "reproduced",
    "reproduced with the one norm that was run",
    "reproduced with one norm and not with the other",
    "not reproduced",
    "not reproduced with the one norm that was run",
    "not comparable",
    "not run",
)


def close(claim: Claim, ours: Ours) -> bool:
    if not ours.values or (claim.closeness == "epochs" and not ours.measured):
        return False
    value = centre(claim, ours.values)
    low, high = claim.published.span or (claim.published.value, claim.published.value)
    if claim.closeness == "order":
        near, far = sorted((abs(low), abs(high)))
        return low * value > 0 and near / FACTOR <= abs(value) <= far * FACTOR
    if claim.closeness == "at most":
        return value <= high
    if claim.closeness == "at least":
        return value >= low
    if claim.closeness == "epochs":
        return all(low - ABSOLUTE["epochs"] <= v <= high + ABSOLUTE["epochs"] for v in ours.values)
    spread = 2 * math.hypot(claim.published.std or 0.0, ours.std or 0.0)
    return max(low - value, value - high) <= max(ABSOLUTE[claim.closeness], spread)


def centre(claim: Claim, values: Sequence[float]) -> float:
    """Mean over seeds; of orders of magnitude the geometric mean, where all have one sign."""
    signs = {math.copysign(1.0, v) for v in values if v}
    if claim.closeness != "order" or len(signs) != 1 or not all(values):
        return mean(values)
    return signs.pop() * geometric([abs(v) for v in values])


def held_against(claim: Claim, runs: Iterable[Run]) -> list[Ours]:
    """The claim's quantity in our runs, by norm; of several lengths of training the one nearest to the published."""
    early = any(word in claim.what for word in EARLY)
    pool = list(runs)
    by_hash = {run.spec.hash: run for run in pool} if claim.null else {}
    by_norm: dict[str, dict[int, list[Run]]] = {}
    for run in pool:
        if claim.about(run):
            trained = (run.spec.schedule_epochs if early else run.spec.epochs) or 0
            by_norm.setdefault(run.spec.credit_norm or "", {}).setdefault(trained, []).append(run)
    found = []
    for norm, by_length in sorted(by_norm.items()):
        nearest = min(by_length, key=lambda n: abs(n - claim.epochs))
        # one run per seed: the longest, where a schedule was run for different numbers of epochs or kept other checkpoints
        longest = {r.spec.seed: r for r in sorted(by_length[nearest], key=lambda r: r.spec.epochs or 0)}
        mine = [longest[seed] for seed in sorted(longest)]
        read = [(r, _value(claim, r, by_hash)) for r in mine]
        kept = [(r, float(v)) for r, v in read if v is not None and math.isfinite(v)]
        used = [r for r, _ in kept] or mine
        found.append(
            Ours(
                norm,
                tuple(v for _, v in kept),
                tuple(r.spec.seed for r, _ in kept),
                tuple(dict.fromkeys(h for r in used for h in (r.spec.hash, *_null_of(claim, r, by_hash)))),
                len(kept) == len(mine),
                nearest,
            )
        )
    return found


def _value(claim: Claim, run: Run, by_hash: Mapping[str, Run]) -> float | None:
    try:
        value = claim.value(run)
    except NotMeasured:
        return None
    if claim.null is None or value is None:
        return value
    null = next((claim.value(by_hash[key]) for key in _null_of(claim, run, by_hash)), None)
    return None if null is None else 100 * (value - null)


def _null_of(claim: Claim, run: Run, by_hash: Mapping[str, Run]) -> tuple[str, ...]:
    """Hash of the null's run, where the claim is a margin and the run is there."""
    key = claim.null(run.spec).hash if claim.null else ""
    return (key,) if key in by_hash else ()


def state(claim: Claim, ours: Sequence[Ours]) -> tuple[str, str]:
    """(kind, statement): from the numbers alone."""
    kind, statement = _state(claim, ours)
    told = partly(claim) if kind not in (NOT_COMPARABLE, NOT_RUN) else ""
    return kind, f"{statement}; {told}" if told else statement


def _state(claim: Claim, ours: Sequence[Ours]) -> tuple[str, str]:
    if not ours:
        return NOT_RUN, NOT_RUN
    if claim.because:
        return NOT_COMPARABLE, f"not comparable because {claim.because}"
    comparable = [o for o in ours if o.trained == claim.epochs]
    if not comparable:
        within = {close(claim, o) for o in ours if o.values}
        told = (
            f" ({'within' if within == {True} else 'outside'} the tolerance all the same)" if len(within) == 1 else ""
        )
        why = other_length((o.trained for o in ours), claim.epochs, UNSTATED not in claim.published.source)
        return NOT_COMPARABLE, f"not comparable because {', and '.join(filter(None, (why, partly(claim))))}{told}"
    if not any(o.values for o in comparable):
        if claim.closeness == "epochs":
            return NOT_REPRODUCED, "not reproduced: it does not happen in our runs"
        return NOT_COMPARABLE, "not comparable because the quantity is not measurable in our runs"
    agree = [o for o in comparable if close(claim, o)]
    norms = {o.norm for o in comparable}
    if not agree:
        if norms in ({"none"}, {"rms"}):
            return NOT_ONE_RUN, f"not reproduced (only credit_norm={norms.pop()} was run)"
        return NOT_REPRODUCED, NOT_REPRODUCED
    if norms in ({"none"}, {"rms"}):
        return ONE_RUN, f"reproduced with credit_norm={norms.pop()}; the other was not run"
    if len(agree) < len(comparable):
        return ONE_NORM, f"reproduced only with credit_norm={' and '.join(o.norm for o in agree)}"
    return REPRODUCED, REPRODUCED


PARTLY = ("ep", "cb", "sb")
"""Rules whose settings the papers give in part; ours are the default options."""


def partly(claim: Claim) -> str:
    method = str(claim.runs.get("method", ""))
    return f"the text gives the settings of {method.upper()} in part" if method in PARTLY else ""


def other_length(ours: Iterable[int], published: int, stated: bool) -> str:
    lengths = " and ".join(sorted({str(n) for n in ours}))
    return f"ours trained {lengths} epochs, the published {published if stated else 'number is not stated'}"


def outcomes(runs: Sequence[Run]) -> list[Outcome]:
    found = []
    for claim in claims():
        ours = held_against(claim, runs)
        found.append(Outcome(claim, tuple(ours), *state(claim, ours)))
    return found


# ---- as text ------------------------------------------------------------------------------------------------------------


def _number(claim: Claim, value: float) -> str:
    if claim.closeness == "accuracy":
        return f"{value:.3f}"
    if claim.closeness == "cosine":
        return signed(value)
    if claim.closeness == "margin":
        return signed(value, 1)
    return f"{value:.1f}" if claim.closeness == "epochs" else num(value, 3 if claim.closeness.startswith("at ") else 2)


def published_text(claim: Claim) -> str:
    """The value, with what stands behind it: a range, "at most", the other versions."""
    p = claim.published
    std = f" ± {p.std:.3f}" if p.std is not None else ""
    number = " to ".join(_number(claim, v) for v in p.span) if p.span else _number(claim, p.value)
    number = {"at most": "≤ ", "at least": "≥ "}.get(claim.closeness, "") + number
    detail = p.source.partition("; ")[2] or (p.source if p.source not in RECIPES and "=" not in p.source else "")
    parts = [detail] if detail else []
    if claim.closeness == "margin" and std:
        std, parts = "", [*parts, f"± {p.std:.1f} from its two accuracies"]
    parts += [p.contested] if p.contested else []
    return number + std + (f" ({'; '.join(parts)})" if parts else "")


def ours_text(outcome: Outcome) -> str:
    parts = []
    for o in outcome.ours:
        name = f"{o.norm}: " if o.norm else ""
        if not o.values:
            parts.append(f"{name}not there (n={len(o.hashes)})")
            continue
        std = f" ± {num(o.std, 2)}" if o.std is not None else ""
        if std and outcome.claim.closeness == "order":
            std = f" ({' to '.join(_number(outcome.claim, v) for v in (min(o.values), max(o.values)))})"
        parts.append(f"{name}{_number(outcome.claim, centre(outcome.claim, o.values))}{std} (n={len(o.values)})")
    return "; ".join(parts) or "–"


def difference_text(outcome: Outcome) -> str:
    parts = []
    said = outcome.claim.published.value
    for o in outcome.ours:
        if not o.values:
            continue
        name = f"{o.norm}: " if o.norm else ""
        value = centre(outcome.claim, o.values)
        if outcome.claim.closeness in ("order", "at most", "at least"):
            parts.append(f"{name}× {num(value / said, 2)}" if said * value > 0 else f"{name}other sign")
        else:
            digits = 1 if outcome.claim.closeness in ("epochs", "margin") else 3
            parts.append(name + signed(round(value - said, digits) + 0.0, digits))  # no "-0.0"
    return "; ".join(parts) or "–"
