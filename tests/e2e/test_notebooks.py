"""The notebooks in examples/: executed by a real kernel without an error, with the cards that they promise."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def executed(path: Path, directory: Path) -> Any:
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(directory)}}
    )
    return client.execute()


def shown(cell: Any, kind: str) -> list[str]:
    return [out["data"][kind] for out in cell.get("outputs", ()) if kind in out.get("data", {})]


def test_there_are_two_tutorials():
    assert [path.stem for path in NOTEBOOKS] == ["audit_your_network", "reproduce_a_claim"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    for cell in nbformat.read(path, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
        assert cell.cell_type != "markdown" or "$" not in cell.source  # an exported page has no MathJax when offline


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    cells = [cell for cell in executed(path, tmp_path).cells if cell.cell_type == "code"]
    assert not [out for cell in cells for out in cell.outputs if out.output_type == "error"]
    cards = [html for cell in cells for html in shown(cell, "text/html") if "cs-card" in html]
    assert len(cards) >= 3
    assert all("<svg" in card for card in cards)
    frames = [html for cell in cells for html in shown(cell, "text/html") if "dataframe" in html]
    assert frames
