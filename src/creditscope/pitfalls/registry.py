"""All pitfalls by number."""

from __future__ import annotations

from importlib import import_module

from creditscope.errors import CreditscopeError
from creditscope.pitfalls.base import Pitfall

NAMES = (
    "norm_axis", "cosine_eps", "fp16_underflow", "training_feedback", "aggregation", "layer_dominance", "unsaved_feedback",
    "batch_mismatch", "unmatched_baseline", "mode_mismatch", "normalised_states", "missing_null", "mean_reduction",
    "zero_cosine", "seed_selection",
)  # fmt: skip
"""PF01, PF02, ...: one module each, pf01_norm_axis and so on."""


def _pitfall(number: int, name: str) -> Pitfall:
    """A module has TITLE, WHY and FIX, and the functions reproduce, audit, tensors and, where source code can show it, code."""
    m = import_module(f"creditscope.pitfalls.pf{number:02d}_{name}")
    return Pitfall(number, m.TITLE, m.WHY, m.FIX, m.reproduce, m.audit, getattr(m, "code", None), m.tensors)


PITFALLS = tuple(_pitfall(number, name) for number, name in enumerate(NAMES, 1))


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
