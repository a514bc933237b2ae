"""Flags from typed functions and from the run spec, by tyro."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tyro

T = TypeVar("T")


def parse(kind: Callable[..., T], args: Sequence[str], command: str, description: str, example: str) -> T:
    """The flags of one command as an object; --help shows the description, the defaults and one example."""
    text = f"{description}\n\nExample: {example}"
    return tyro.cli(
        kind,
        prog=f"creditscope {command}",
        args=list(args),
        description=text,
        config=(tyro.conf.FlagConversionOff, tyro.conf.OmitArgPrefixes),
    )


def given(flags: Any, names: Sequence[str]) -> dict[str, Any]:
    """Those of the named flags that were given (are not None)."""
    return {name: value for name in names if (value := getattr(flags, name)) is not None}
