"""creditscope audit: what it prints and writes for our own audit, and how it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from tests.cli.calls import one_line_error, out

from creditscope.studies.grid import BP, make

ROOT = Path(__file__).parents[2]
FOLDER = str(ROOT / "audits" / "arxiv-2606.21126")


def test_it_prints_the_tables_and_writes_every_line(tmp_path, capsys):
    """Of one run: its claims are compared, all others are not run."""
    source = ROOT / "results" / "runs" / f"{make('paper', BP, 42).hash}.json"
    store = tmp_path / "results"
    (store / "runs").mkdir(parents=True)
    (store / "index.json").write_text(json.dumps({"schema_version": 1, "plans": [], "runs": {}}))
    (store / "runs" / source.name).write_bytes(source.read_bytes())
    lines, page = tmp_path / "lines.csv", tmp_path / "lines.html"
    assert "how far each reading lies" in out(capsys, "audit", FOLDER, "--store", store, "--csv", lines, "--html", page)
    rows = list(csv.DictReader(lines.open()))
    compared = [r for r in rows if r["outcome"] not in ("not run", "not comparable")]
    assert {(r["method"], r["setting"]) for r in compared} == {("bp", "")}
    assert {r["runs"] for r in compared} == {source.stem[:10]}
    assert 'type="search"' in page.read_text()


def test_a_folder_or_store_that_cannot_be_used_is_refused_in_one_line(tmp_path, capsys):
    assert "audit.json" in one_line_error(capsys, "audit", tmp_path, "--store", tmp_path)
    one_line_error(capsys, "audit", FOLDER, "--store", tmp_path / "none")
