"""The published results: files that are what they state, and pages whose numbers equal the files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from creditscope.cli.study import END, START
from creditscope.render.claims_charts import claims_charts
from creditscope.render.reproduction import audit_page, headline
from creditscope.render.study_charts import study_charts
from creditscope.studies.archive import Archive
from creditscope.studies.reproduction import outcomes
from creditscope.studies.result import Run, StudyResult
from creditscope.studies.show import everything, planned

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
LIMIT = 20 * 2**20


@pytest.fixture(scope="module")
def found() -> tuple[list[Run], list[StudyResult], list[str]]:
    return everything("reduced", Archive(RESULTS))


@pytest.fixture(scope="module")
def raw() -> list[dict[str, Any]]:
    """The files as they are, without any of our readers."""
    return [json.loads(p.read_text()) for p in sorted((RESULTS / "runs").glob("*.json"))]


def test_every_file_is_indexed_and_all_are_small(raw):
    index = json.loads((RESULTS / "index.json").read_text())["runs"]
    names = {p.stem for p in (RESULTS / "runs").glob("*.json")}
    assert names == set(index)
    assert all(entry["command"].startswith("creditscope train --dataset ") for entry in index.values())
    assert sum(p.stat().st_size for p in RESULTS.rglob("*") if p.is_file()) < LIMIT
    assert not list(RESULTS.rglob("*.safetensors"))
    for run in raw:
        assert run["files"].keys() >= {"model.safetensors", "credit.safetensors"}  # checksums of what is not here


def test_page_and_readme_are_made_from_the_files(found):
    """`make audit-docs` makes both."""
    runs, results, missing = found
    figures = {p.stem: f"images/audit/{p.name}" for p in (ROOT / "docs/images/audit").glob("*.svg")}
    page = audit_page(runs, results, missing, "results", planned("reduced"), figures)
    assert (ROOT / "docs" / "audit.md").read_text() == page
    wanted = {f"study-{r.name}" for r in results if study_charts(r)} | claims_charts(outcomes(runs)).keys()
    assert wanted | {"audit", "layers", "temporal"} == set(figures)
    assert all(f"({address})" in page for address in figures.values())
    readme = (ROOT / "README.md").read_text()
    assert readme.partition(START)[2].partition(END)[0].strip() == headline(runs)


@pytest.mark.parametrize("method", ["bp", "fa", "dfa"])
def test_accuracies_of_the_page_equal_those_of_the_files(raw, method):
    """A second computation: numpy over the last lines of the trajectories, chosen by hand-written conditions."""
    page = (ROOT / "docs" / "audit.md").read_text()
    line = next(x for x in page.splitlines() if x.startswith(f"| {method.upper()}: accuracy |"))
    chosen: dict[str, list[float]] = {}
    for run in raw:
        s = run["spec"]
        same = (s["dataset"], s["arch"], s["width"], s["depth"], s["epochs"]) == ("cifar10", "resmlp", 256, 4, 100)
        plain = s["terminal_norm"] and s["penalty"] == 0 and s["train_last"] is None and s["targets"] == "labels"
        if same and plain and s["method"] == method and s["credit_site"] in (None, "input"):
            chosen.setdefault(s["credit_norm"] or "", []).append(run["trajectory"][-1]["accuracy"])
    assert chosen, "the primary audit is not there"
    for norm, accuracies in chosen.items():
        told = re.search(rf"{norm + ': ' if norm else ''}(0\.\d+)(?: ± [\d.e-]+)? \(n={len(accuracies)}\)", line)
        assert told is not None, line
        assert float(told.group(1)) == pytest.approx(np.mean(accuracies), abs=5.1e-4)
