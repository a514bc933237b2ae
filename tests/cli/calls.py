"""Calls of the command line as a user makes them."""

from creditscope.cli import main

TINY = ["--dataset", "quadratic", "--width", "8", "--depth", "2", "--epochs", "1", "--batch-size", "2000"]


def one_line_error(capsys, *args: str) -> str:
    """What a mistake prints: one line on standard error, with code 2."""
    assert main(args) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    assert captured.err.startswith("creditscope: ")
    return captured.err


def out(capsys, *args: str) -> str:
    """What a call that succeeds prints."""
    assert main(args) == 0
    text: str = capsys.readouterr().out
    return text
