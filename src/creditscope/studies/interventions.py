"""What the intervention studies have in common: accuracy, scale and level-full facts of each method and penalty."""

from __future__ import annotations

from creditscope.studies.study import Axis, by_label, method_and_norm
from creditscope.tables import state

QUANTITIES = (
    *("seeds", "accuracy", "last_h", "reference_norm_128", "deep_cosine", "deep_cosine_all_layers"),
    *("rho", "nudging", "loss_change", "margin_matched"),
)
AXES = (
    Axis("run", "credit rule, credit_norm and penalty λ", by_label),
    Axis("method", "credit rule and credit_norm", method_and_norm),
    Axis("penalty", "penalty", lambda s: s.penalty, "λ"),
)
CONVENTION = state("interventions")
