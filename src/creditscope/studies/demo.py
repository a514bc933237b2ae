"""The demonstration: a small honest audit on the embedded dataset."""

from __future__ import annotations

from typing import Any

from creditscope.training.spec import RunSpec, make_spec

SEEDS = (42, 123, 456)
METHODS: tuple[dict[str, Any], ...] = (
    {"method": "bp"},
    {"method": "fa", "credit_norm": "none"},
    {"method": "dfa", "credit_norm": "rms"},
    {"method": "dfa", "credit_norm": "none"},
)


def demo_specs(
    seeds: tuple[int, ...] = SEEDS, methods: tuple[dict[str, Any], ...] = METHODS, **recipe: Any
) -> list[RunSpec]:
    """Every method, the matched null of each and the `bp` null, for every seed."""
    specs: list[RunSpec] = []
    for seed in seeds:
        for method in methods:
            spec = make_spec({"dataset": "quadratic", "seed": seed, **recipe, **method})
            specs += [spec, spec.null("matched"), spec.null("bp")]
    return list({spec.hash: spec for spec in specs}.values())
