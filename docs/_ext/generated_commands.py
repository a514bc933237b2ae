"""The command line as it describes itself."""

from __future__ import annotations

import contextlib
import io
import os

from md import plain, table

from creditscope.cli import main
from creditscope.cli.commands import ROOT, Group, summary

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


def cli_list() -> str:
    """One line per command."""
    rows = []
    for name, node in ROOT.commands.items():
        below = node.commands.items() if isinstance(node, Group) else ()
        rows.append([f"`creditscope {name}`", plain(summary(node))])
        rows += [[f"`creditscope {name} {sub}`", plain(summary(command))] for sub, command in below]
    return table(["command", "does"], rows)


def cli() -> str:
    parts = [f"```text\n{help_text()}\n```\n"]
    for name, node in ROOT.commands.items():
        parts.append(f"## {name}\n\n```text\n{help_text(name)}\n```\n")
        below = node.commands if isinstance(node, Group) else ()
        parts += [f"### {name} {sub}\n\n```text\n{help_text(name, sub)}\n```\n" for sub in below]
    return "\n".join(parts)
