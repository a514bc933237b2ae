"""The numbers that a check compares against, in one place, with where they come from."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from creditscope.errors import CreditscopeError

SMALLEST_SUBNORMAL = {
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
    "float32": 2.0**-149,
    "float64": 2.0**-1074,
}
"""Smallest positive number that each dtype can hold."""


@dataclass(frozen=True)
class DiagnosticThresholds:
    """Thresholds of the protocol; the defaults are the published ones (arXiv 2606.21126).

    g_norm_floor: D2 is raised if mean per-sample ‖g_L‖ / 128 is below it. Stated for the batch-mean convention at batch
        size 128: 10 x the eps of F.cosine_similarity (1e-8). Published separation: healthy minimum 1e-4, degenerate
        maximum 4.2e-9.
    h_norm_explosion_ratio: D1 is raised if the largest growth of one block, max_l mean‖h_{l+1}‖ / mean‖h_l‖, is above
        it. Published separation: healthy maximum 11, degenerate minimum 694.
    stability_drift_ceiling: C is raised (interpretive: drift-dominated) if the mean pairwise cosine of batch-mean
        gradient directions is above it.
    frozen_acc_margin_pp: D3 is raised if accuracy minus frozen-blocks accuracy is below it, percentage points.
    concentration_share: warning of Mode 2 if one layer carries more than this share of Σ|cos_l| (our choice: the
        published DFA has .94 at layer 0, BP at four blocks .20 everywhere).
    """

    g_norm_floor: float = 1e-7
    h_norm_explosion_ratio: float = 50.0
    stability_drift_ceiling: float = 0.30
    frozen_acc_margin_pp: float = 2.0
    concentration_share: float = 0.6

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise CreditscopeError(f"threshold {field.name} must be a number, got {value!r}")
            if not math.isfinite(value) or value <= 0:
                raise CreditscopeError(f"threshold {field.name} must be finite and positive, got {value!r}")
        for name in ("stability_drift_ceiling", "concentration_share"):
            if getattr(self, name) > 1:
                raise CreditscopeError(f"threshold {name} must be at most 1, got {getattr(self, name)!r}")

    def floor_for(self, dtype_name: str) -> float:
        """Floor of D2 for a network of this dtype: max(g_norm_floor, 10 x smallest subnormal of the dtype).

        In the batch-mean convention at batch size 128. float16 raises the published 1e-7 to 6e-7; the others keep it.
        """
        name = dtype_name.removeprefix("torch.")
        if name not in SMALLEST_SUBNORMAL:
            raise CreditscopeError(f"no floor is known for dtype {dtype_name!r}: use {', '.join(SMALLEST_SUBNORMAL)}")
        return max(self.g_norm_floor, 10.0 * SMALLEST_SUBNORMAL[name])


JUDGED = ("g_norm_floor", "h_norm_explosion_ratio", "frozen_acc_margin_pp")
"""The thresholds that a verdict rests on."""


def changed(thresholds: DiagnosticThresholds) -> dict[str, tuple[float, float]]:
    """Thresholds of a verdict that are not the protocol's: name -> (this one, the protocol's)."""
    published = DiagnosticThresholds()
    both = {name: (getattr(thresholds, name), getattr(published, name)) for name in JUDGED}
    return {name: pair for name, pair in both.items() if pair[0] != pair[1]}
