"""Which layers a credit trains. No torch, so that records are read without it."""

from __future__ import annotations

from collections.abc import Sequence


def credit_shift(kind: str, credit_site: str | None) -> int:
    """Block l learns from a_{l + shift}. Plain stages have no state of their own shape but the next one."""
    return 1 if kind == "plain" or credit_site == "output" else 0


def trained_layers(depth: int, kind: str, credit_site: str | None, first_trained: int = 0) -> tuple[int, ...]:
    """Layers whose credit trains something: the embedding learns from a_0, block l >= `first_trained` from a_{l + shift}.

    All layers where the site is not stated (or does not apply).
    """
    if credit_site is None:
        return tuple(range(depth + 1))
    shift = credit_shift(kind, credit_site)
    return tuple(k for k in range(depth + 1) if k == 0 or first_trained <= k - shift < depth)


def idle_note(depth: int, counting: Sequence[int]) -> str:
    """Names the layers that do not count; "" where all do."""
    idle = [f"a_{k}" for k in range(depth + 1) if k not in counting]
    trains = "trains nothing and does not count" if len(idle) == 1 else "train nothing and do not count"
    return f"{', '.join(idle)} {trains}" if idle else ""
