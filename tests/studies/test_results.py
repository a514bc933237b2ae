"""The published results: files that are what they state, and pages whose numbers equal the files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from creditscope.render.claims_charts import claims_charts
from creditscope.render.reproduction import audit_page, headline
from creditscope.render.study_charts import study_charts
from creditscope.studies.reproduction import outcomes
from creditscope.studies.result import Run, StudyResult
from creditscope.studies.show import everything, planned
from scipy import stats

from creditscope.cli.study import END, START
from creditscope.runs.archive import Archive

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


def trained(raw: list[dict[str, Any]], method: str, last: int | None = None) -> dict[str, dict[int, dict[str, Any]]]:
    """Files of the primary audit by credit norm and seed, chosen by hand-written conditions."""
    chosen: dict[str, dict[int, dict[str, Any]]] = {}
    for run in raw:
        s = run["spec"]
        same = (s["dataset"], s["arch"], s["width"], s["depth"], s["epochs"]) == ("cifar10", "resmlp", 256, 4, 100)
        plain = s["terminal_norm"] and s["penalty"] == 0 and s["train_last"] == last and s["targets"] == "labels"
        if same and plain and s["method"] == method and s["credit_site"] in (None, "input"):
            chosen.setdefault(s["credit_norm"] or "", {})[s["seed"]] = run
    assert chosen, "the primary audit is not there"
    return chosen


@pytest.mark.parametrize("method", ["bp", "fa", "dfa"])
def test_numbers_of_the_page_equal_those_of_the_files(raw, method):
    """A second computation: numpy over the last lines of the trajectories."""
    page = (ROOT / "docs" / "audit.md").read_text().partition("### Primary audit")[2].partition("### ")[0]
    last = {norm: [r["trajectory"][-1] for r in by_seed.values()] for norm, by_seed in trained(raw, method).items()}
    quantities = {
        "accuracy": lambda line: line["accuracy"],
        "‖h\\_L‖": lambda line: line["h"][-1],
        "‖g\\_L‖ (ours at B = 128)": lambda line: line["g_per_sample"][-1] / 128,
        "growth": lambda line: max(np.divide(line["h"][1:], line["h"][:-1])),
    }
    for quantity, read in quantities.items():
        rows = [x for x in page.splitlines() if x.startswith(f"| {method.upper()}: {quantity} |")]
        if not rows:
            assert (method, quantity) == ("fa", "growth")  # the papers give none
            continue
        for norm, lines in last.items():
            values = [read(line) for line in lines]
            mean = np.mean(values) if quantity == "accuracy" else np.exp(np.mean(np.log(values)))
            told = re.search(
                rf"{norm + ': ' if norm else ''}([\d.e+-]+)(?: [^|;]*?)? \(n={len(values)}\)", rows[0].split("|")[3]
            )
            assert told is not None, rows[0]
            assert float(told.group(1)) == pytest.approx(mean, rel=0.051 if quantity != "accuracy" else 1e-3)


@pytest.mark.parametrize(
    ("label", "method", "norm"), [("bp", "bp", ""), ("fa(rms)", "fa", "rms"), ("dfa(none)", "dfa", "none")]
)
def test_margins_of_the_readme_equal_those_of_the_files(raw, label, method, norm):
    """Paired t over seeds, by scipy's test of one sample, from the accuracies in the files."""
    accuracy = [
        {seed: r["trajectory"][-1]["accuracy"] for seed, r in trained(raw, method, last)[norm].items()}
        for last in (None, 0)
    ]
    margins = [100 * (accuracy[0][seed] - accuracy[1][seed]) for seed in accuracy[0]]
    interval = stats.ttest_1samp(margins, 0).confidence_interval(0.95)
    told = f"{np.mean(margins):+.1f} [{interval.low:+.1f}, {interval.high:+.1f}]"
    table = (ROOT / "README.md").read_text().partition(START)[2].partition(END)[0]
    (row,) = [line for line in table.splitlines() if line.startswith(f"| {label} |")]
    assert told in row.replace("\\", "")
