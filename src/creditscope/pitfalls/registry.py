"""All pitfalls by number."""

from __future__ import annotations

from creditscope.errors import CreditscopeError
from creditscope.pitfalls import (
    pf01_norm_axis,
    pf02_cosine_eps,
    pf03_fp16_underflow,
    pf04_training_feedback,
    pf05_aggregation,
    pf06_layer_dominance,
    pf07_unsaved_feedback,
    pf08_batch_mismatch,
    pf09_unmatched_baseline,
    pf10_mode_mismatch,
    pf11_normalised_states,
    pf12_missing_null,
    pf13_mean_reduction,
    pf14_zero_cosine,
    pf15_seed_selection,
)
from creditscope.pitfalls.base import Pitfall

PITFALLS: tuple[Pitfall, ...] = (
    pf01_norm_axis.PITFALL,
    pf02_cosine_eps.PITFALL,
    pf03_fp16_underflow.PITFALL,
    pf04_training_feedback.PITFALL,
    pf05_aggregation.PITFALL,
    pf06_layer_dominance.PITFALL,
    pf07_unsaved_feedback.PITFALL,
    pf08_batch_mismatch.PITFALL,
    pf09_unmatched_baseline.PITFALL,
    pf10_mode_mismatch.PITFALL,
    pf11_normalised_states.PITFALL,
    pf12_missing_null.PITFALL,
    pf13_mean_reduction.PITFALL,
    pf14_zero_cosine.PITFALL,
    pf15_seed_selection.PITFALL,
)


def get_pitfall(name: str | int) -> Pitfall:
    """A pitfall by its number or id: 2, "2", "02", "PF02", "pf2"."""
    text = str(name).strip().upper().removeprefix("PF")
    if text.isascii() and text.isdigit():
        for pitfall in PITFALLS:
            if pitfall.number == int(text):
                return pitfall
    raise CreditscopeError(
        f"pitfall {name!r} is unknown; give a number from 1 to {len(PITFALLS)} or an id such as PF02"
    )
