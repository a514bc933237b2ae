"""Networks for the commands that read bundles."""

from pathlib import Path

import pytest

from creditscope.cli import main

from .calls import TINY


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Path:
    """DFA and BP with their frozen-blocks nulls."""
    root: Path = tmp_path_factory.mktemp("store")
    for name, flags in {
        "dfa": ["--method", "dfa", "--credit-norm", "rms"],
        "dfa-null": ["--method", "dfa", "--credit-norm", "rms", "--train-last", "0"],
        "bp": ["--method", "bp"],
        "bp-null": ["--method", "bp", "--train-last", "0"],
    }.items():
        assert main(["train", *TINY, *flags, "--out", str(root / name)]) == 0
    return root
