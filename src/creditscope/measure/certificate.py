"""What a locality certificate says: a label, a matrix over blocks, and an answer with its number for each question."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from creditscope.display import Shown

STRICT = ConfigDict(extra="forbid", ser_json_inf_nan="strings")

BACKPROPAGATION = "backpropagation"
TRANSPORT = "weight transport"
SIGNS = "symmetric signs only"
GLOBAL = "no weight transport between blocks, global error"
LATER = "no weight transport between blocks, later states"
LOCAL = "local"
UNDETERMINED = "undetermined"
YES, NO, NOT_APPLICABLE = "yes", "no", "not applicable"
EXACT = "yes, to round-off"
"""Answers. EXACT: of the question whether updates are those of backpropagation."""
OUTPUT_ERROR, LABELS_ALONE, LOGITS_ALONE, NOTHING = (
    "the output error",
    "labels alone",
    "logits without labels",
    "no teaching signal",
)
"""What an update learns from."""
ABOVE = 30.0
"""A change counts from this many floors on."""
LABELS = (BACKPROPAGATION, TRANSPORT, SIGNS, GLOBAL, LATER, LOCAL, UNDETERMINED)


@dataclass(frozen=True, config=STRICT)
class Answer:
    """One question: what was found, with the number, the floor and the bound behind it (None where there is none)."""

    question: str
    answer: str
    change: float | None = None
    floor: float | None = None
    detail: str = ""
    bound: float | None = None
    """A change above it counts, a difference up to it does not. None in certificates that were stored without it."""


@dataclass(frozen=True, config=STRICT)
class Certificate(Shown):
    """What the updates of the blocks were found to depend on."""

    label: str
    """One of LABELS."""
    reason: str
    """The numbers behind the label, and its scope; of `undetermined`: why."""
    matrix: tuple[tuple[float | None, ...], ...]
    """[perturbed block k][block l]: relative change of the update of l. Diagonal: of the block's first weight, when those
    behind it in the block are perturbed. None: not tested."""
    answers: dict[str, Answer]
    blocks: tuple[str, ...]
    conditions: dict[str, Any]
    """dtype, samples, mode, loss; how many calls of the update were made."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.label not in LABELS:
            raise ValueError(f"label {self.label!r} is not one of {', '.join(LABELS)}")
        if any(len(side) != len(self.blocks) for side in (self.matrix, *self.matrix)):
            raise ValueError(f"the matrix is not {len(self.blocks)} x {len(self.blocks)}")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; a number that is not finite is None."""
        content: dict[str, Any] = _plain(asdict(self))
        return content


def label_of(answers: Mapping[str, str], signs_decide: bool = False) -> str:
    """The label that follows from the answers. signs_decide: where weights are transported, nothing but their signs is."""
    between, readout, teaching, later = (answers.get(k, "") for k in ("between", "readout", "teaching", "later_states"))
    if answers.get("backpropagation") == EXACT and between != NO:
        return BACKPROPAGATION
    if between == YES:
        return SIGNS if signs_decide else TRANSPORT
    if between == UNDETERMINED:
        return UNDETERMINED
    if readout == YES or teaching in (OUTPUT_ERROR, LOGITS_ALONE):
        return GLOBAL
    if UNDETERMINED in (readout, teaching, later):
        return UNDETERMINED
    return LATER if later == YES else LOCAL


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
