"""Flags from typed functions and from the run spec, by tyro."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tyro

from creditscope.errors import CreditscopeError, meant

T = TypeVar("T")


def parse(kind: Callable[..., T], args: Sequence[str], command: str, description: str, example: str) -> T:
    """The flags of one command as an object; --help shows the description, the defaults and one example."""
    _refuse_empty(kind, args, command)
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
        raise CreditscopeError(f"{command}: {one_line(errors.getvalue())}; see creditscope {command} --help") from None


def _refuse_empty(kind: Any, args: Sequence[str], command: str) -> None:
    """A flag that takes a list, given without a value, would mean "none of them"; nobody means that."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    lists = {f"--{f.name.replace('_', '-')}" for f in fields if "tuple[" in str(f.type)}
    for flag, after in zip(args, [*args[1:], "--"], strict=False):
        if flag.replace("_", "-") in lists and after.startswith("--"):
            raise CreditscopeError(f"{command}: {flag} needs a value; see creditscope {command} --help")


def one_line(box: str) -> str:
    """tyro's boxed message as one sentence."""
    text = re.sub("[\u2500-\u257f]", " ", re.sub(r"\x1b\[[0-9;]*m", "", box))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    lines = [line.rstrip(".") for line in lines if line and set(line) - set("- ")]
    lines = lines[1:] or lines  # the first is the title of the box
    meant: list[str] = []
    for word in ("Perhaps you meant", "Arguments similar to", "Argument helptext", "Got errors", "For full helptext"):
        at = next((k for k, line in enumerate(lines) if line.startswith(word)), None)
        if at is not None:
            if word in ("Perhaps you meant", "Arguments similar to"):
                meant = [line for line in lines[at:] if line.startswith("--")]
            lines = lines[:at]
    if lines and lines[0].startswith("Missing from"):
        lines[0] = "missing:"
    said = re.sub(r"Expected one of \((.*?)\)", _choices, " ".join(lines))
    said = _nearest(said)
    said = re.sub(r"no type matching \{None\}\|(\S+) could be instantiated from \[(.*?)\]", r"\2 is no \1", said)
    typed = re.search(r"--[\w-]+", said)
    if not meant or not typed:
        return said
    nearest = max(meant, key=lambda line: difflib.SequenceMatcher(None, typed.group(), line.split()[0]).ratio())
    return f"{said} Perhaps you meant: {nearest}"


def _choices(found: re.Match[str]) -> str:
    """tyro lists them in any order, and None among them for an option that may be left out."""
    names = sorted(set(re.findall(r"'[^']*'", found.group(1))) - {"'None'"})
    return f"Expected one of {', '.join(names)}"


def _nearest(said: str) -> str:
    """Behind "invalid choice 'cifar11'": what was probably meant."""
    found = re.search(r"invalid choice '([^']*)'.*?Expected one of (.*)", said)
    near = meant(found.group(1), re.findall(r"'([^']*)'", found.group(2))) if found else ""
    return f"{said}; {near}".rstrip("; ")


def given(flags: Any, names: Sequence[str]) -> dict[str, Any]:
    """Those of the named flags that were given (are not None)."""
    return {name: value for name in names if (value := getattr(flags, name)) is not None}
