"""Thresholds and policies as the code has them."""

from __future__ import annotations

from md import plain, table

from creditscope.protocol import POLICIES, DiagnosticThresholds

FIELDS = {
    "D1": "h_norm_explosion_ratio",
    "D2": "g_norm_floor",
    "D3": "frozen_acc_margin_pp",
    "C": "stability_drift_ceiling",
}


def threshold(check: str) -> str:
    name = FIELDS[check]
    value = getattr(DiagnosticThresholds(), name)
    return f"Threshold: `DiagnosticThresholds.{name}` = {value:g}.\n"


def policies() -> str:
    return table(
        ["`protocol=`", "version", "rule"],
        [[f"`{p.name}`", f"`{p.version}`", plain(p.rule)] for p in POLICIES.values()],
    )
