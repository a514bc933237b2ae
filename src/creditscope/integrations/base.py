"""What every integration needs: the foreign library or one line that says how to get it; a line as plain scalars."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from creditscope.errors import CreditscopeError

PREFIX = "creditscope/"


def require(module: str, extra: str) -> Any:
    """Import `module`; where it is missing, the error says which extra brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        why = " ".join(str(error).split())[:160]
        raise CreditscopeError(f"{why}; install it with: pip install 'creditscope[{extra}]'") from None


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """A line of a trajectory as named numbers: creditscope/growth, creditscope/h/0, creditscope/fired/D1, ..."""
    flat: dict[str, float] = {}
    for key, value in line.items():
        if key == "fired":
            flat |= {f"{PREFIX}fired/{check}": float(check in value) for check in ("D1", "D2", "C")}
        elif isinstance(value, list | tuple):
            flat |= {f"{PREFIX}{key}/{k}": float(v) for k, v in enumerate(value) if v is not None}
        elif value is not None and key != "epoch":
            flat[PREFIX + key] = float(value)
    return flat
