"""The demonstration: a small honest audit on the embedded dataset."""

from __future__ import annotations

from typing import Any

from creditscope.studies.grid import BP, DFA, DFA_NONE, FA, PAPER_SEEDS, with_nulls
from creditscope.training.spec import RunSpec, make_spec

METHODS = (BP, FA, DFA, DFA_NONE)


def demo_specs(
    seeds: tuple[int, ...] = PAPER_SEEDS, methods: tuple[dict[str, Any], ...] = METHODS, **recipe: Any
) -> list[RunSpec]:
    """Every method for every seed, then the matched and the `bp` null of each."""
    return with_nulls(make_spec({"dataset": "quadratic", "seed": s, **recipe, **m}) for s in seeds for m in methods)
