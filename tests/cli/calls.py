"""Calls of the command line as a user makes them."""

from typing import Any

from creditscope.cli import main

TINY = ["--dataset", "quadratic", "--width", "8", "--depth", "2", "--epochs", "1", "--batch-size", "2000"]


def one_line_error(capsys: Any, *args: Any) -> str:
    """What a mistake prints: one line on standard error, with code 2."""
    assert main(list(map(str, args))) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    assert captured.err.startswith("creditscope: ")
    return str(captured.err)


def out(capsys: Any, *args: Any) -> str:
    """What a call that succeeds prints."""
    assert main(list(map(str, args))) == 0
    return str(capsys.readouterr().out)
