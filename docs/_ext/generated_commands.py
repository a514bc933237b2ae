"""The command line as it describes itself."""

from __future__ import annotations

import contextlib
import io
import os
import re
from importlib import import_module

from creditscope.cli import COMMANDS, main

WIDTH = "88"


def help_text(*command: str) -> str:
    out = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main([*command, "--help"])
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    return out.getvalue().rstrip()


def below(name: str) -> list[str]:
    """The commands under a command, as its own usage lists them."""
    usage = getattr(import_module(COMMANDS[name][0]), "USAGE", "")
    return re.findall(r"^  ([a-z-]+)  +\S", usage, re.MULTILINE)


def cli() -> str:
    parts = [f"```text\n{help_text()}\n```\n"]
    for name in COMMANDS:
        parts.append(f"## {name}\n\n```text\n{help_text(name)}\n```\n")
        parts += [f"### {name} {sub}\n\n```text\n{help_text(name, sub)}\n```\n" for sub in below(name)]
    return "\n".join(parts)
