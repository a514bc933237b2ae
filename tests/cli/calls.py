"""Calls of the command line as a user makes them."""

from collections.abc import Iterator
from typing import Any

from creditscope.cli import main
from creditscope.cli.commands import ROOT, Group

TINY = ["--dataset", "quadratic", "--width", "8", "--depth", "2", "--epochs", "1", "--batch-size", "2000"]


def one_line_error(capsys: Any, *args: Any) -> str:
    """What a mistake prints: one line on standard error, with code 2."""
    assert main(list(map(str, args))) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    assert captured.err.startswith("creditscope: ")
    return str(captured.err)


def commands(group: Group = ROOT, words: tuple[str, ...] = (), groups: bool = False) -> Iterator[tuple[str, ...]]:
    """The words that name each command; `groups`: and each group of commands."""
    for name, node in group.commands.items():
        if groups or not isinstance(node, Group):
            yield (*words, name)
        if isinstance(node, Group):
            yield from commands(node, (*words, name), groups)


def out(capsys: Any, *args: Any) -> str:
    """What a call that succeeds prints."""
    capsys.readouterr()
    assert main(list(map(str, args))) == 0
    return str(capsys.readouterr().out)
