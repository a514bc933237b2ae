"""Flags from typed functions and from the run spec, by tyro."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tyro

from creditscope.errors import CreditscopeError

T = TypeVar("T")


def parse(kind: Callable[..., T], args: Sequence[str], command: str, description: str, example: str) -> T:
    """The flags of one command as an object; --help shows the description, the defaults and one example."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(
                kind,
                prog=f"creditscope {command}",
                args=list(args),
                description=f"{description}\n\nExample: {example}",
                config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise CreditscopeError(
            f"{command}: {one_line(errors.getvalue())}; creditscope {command} --help shows them"
        ) from None


def one_line(box: str) -> str:
    """tyro's boxed message as one sentence."""
    text = re.sub("[\u2500-\u257f]", " ", re.sub(r"\x1b\[[0-9;]*m", "", box))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    lines = [
        line.rstrip(".")
        for line in lines
        if line and set(line) - set("- ") and not line.startswith("For full helptext")
    ]
    lines = lines[1:] or lines  # the first is the title of the box
    for word, keep in (("Perhaps you meant", 2), ("Argument helptext", 0), ("Got errors", 0)):
        at = next((k for k, line in enumerate(lines) if line.startswith(word)), None)
        lines = lines if at is None else lines[: at + keep]
    return " ".join(lines)


def given(flags: Any, names: Sequence[str]) -> dict[str, Any]:
    """Those of the named flags that were given (are not None)."""
    return {name: value for name in names if (value := getattr(flags, name)) is not None}
