"""Networks for the commands that read bundles."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runs.driver import TINY as SMALLEST

from creditscope.cli import main
from creditscope.studies import grid

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


@pytest.fixture(scope="module")
def study_store(tmp_path_factory) -> Iterator[str]:
    """Two studies on a grid made tiny."""
    patch = pytest.MonkeyPatch()
    patch.setitem(grid.RECIPES, "smoke", {**SMALLEST, "epochs": 1})
    patch.setitem(grid.SEEDS, "smoke", (42,))
    root = tmp_path_factory.mktemp("cli") / "store"
    assert main(["study", "run", "early", "freshb", "--preset", "smoke", "--store", str(root), "--workers", "2"]) == 0
    yield str(root)
    patch.undo()
