"""PF09: the baseline was trained by another recipe than the network it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from creditscope.pitfalls.base import Answer, Evidence, Numbers, clear, found, unknown

STEPS, SHORT = 60, 5


def reproduce() -> Numbers:
    from creditscope.pitfalls import tiny

    task = tiny.make_task()

    def trained(steps: int, frozen: bool) -> float:
        net = tiny.train_dfa(tiny.make_net(9), task, steps, frozen=frozen)
        return tiny.accuracy(net, task.test_x, task.test_y)

    acc = trained(STEPS, frozen=False)
    wrong = 100 * (acc - trained(SHORT, frozen=True))
    right = 100 * (acc - trained(STEPS, frozen=True))
    return {"wrong": wrong, "right": right, "short": SHORT, "steps": STEPS}


def tensors(
    run: Mapping[str, Any], baseline: Mapping[str, Any], allowed: tuple[str, ...] = ("train_last", "penalty")
) -> str | None:
    """Two recipes as mappings: which settings differ beside those that make the baseline one."""
    differs = sorted(k for k in run.keys() | baseline.keys() if k not in allowed and run.get(k) != baseline.get(k))
    if not differs:
        return None
    shown = ", ".join(f"{k} {run.get(k)!r} against {baseline.get(k)!r}" for k in differs[:4])
    return f"the baseline differs by {shown}"


def audit(evidence: Evidence) -> Answer:
    spec = evidence.spec
    if spec.frozen:
        return clear("this run is a null (random-blocks baseline) itself")
    matched = spec.null("matched")
    nulls = [n for n in evidence.neighbours if n.spec.frozen and n.spec.dataset == spec.dataset]
    for n in nulls:
        if n.spec.hash == matched.hash:
            return clear(f"the matched null is beside it ({n.path.name}): same rule, recipe and seed")
    if not nulls:
        return unknown("no null (random-blocks baseline) is beside it")
    wanted = matched.model_dump()
    closest = min(nulls, key=lambda n: sum(n.spec.model_dump().get(k) != v for k, v in wanted.items()))
    differs = tensors(wanted, closest.spec.model_dump())
    return found(f"no matched null is beside it; for the closest, {closest.path.name}, {differs}")
