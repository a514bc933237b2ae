"""The field audit: its page is the one of results/, and right for any part of the runs."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from creditscope.board.entry import find_entries, read_entry
from creditscope.credit.registry import all_rules
from creditscope.files import dump_json
from creditscope.runs.archive import Archive, write_archive
from creditscope.runs.measured import measure
from creditscope.runs.store import Store
from creditscope.studies import field, learning_rates
from creditscope.training.loop import train

ROOT = Path(__file__).parents[2]


def _module() -> Any:
    spec = importlib.util.spec_from_file_location("field_page", ROOT / "audits" / "field" / "page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["field_page"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


page = _module()
COST = dict.fromkeys((*all_rules(), "bp"), 2.0)


def rows(text: str, start: str) -> list[list[str]]:
    """The cells of every table row that starts so."""
    lines = (x for x in text.splitlines() if x.startswith(f"| {start} |"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def archive(tmp_path: Path, store: Store | None = None) -> Archive:
    out = tmp_path / "results"
    if store is None:
        (out / "runs").mkdir(parents=True)
        (out / "index.json").write_bytes(dump_json({"schema_version": 2, "plans": [], "runs": {}}))
    else:
        write_archive(store, [row["hash"] for row in store.rows()], out)
    return Archive(out)


def test_the_page_is_the_one_of_the_results(tmp_path):
    page.main(["--root", str(tmp_path)])
    for name in ("field.md", "field.csv"):
        assert (tmp_path / "docs" / name).read_text() == (ROOT / "docs" / name).read_text(), "run `make audit-docs`"


def test_every_rule_has_a_cost_and_a_setting():
    cost = page.read_cost(ROOT / "audits" / "field" / "cost.csv")
    assert cost.keys() == {method["method"] for method in field.RULES}
    assert {method["method"] for method in field.RULES} >= all_rules().keys()
    assert {name for name, ratio in cost.items() if ratio > 10} == set(field.COSTLY)


def test_planned_runs_are_those_of_the_study_each_once():
    entries = page.planned("paper")
    listed = [s.hash for e in entries for s in (*e.networks, *e.nulls)]
    assert sorted(listed) == sorted(s.hash for s in field.specs("paper"))
    assert [len(e.networks) for e in entries if e.method["method"] in field.COSTLY] == [1] * len(field.COSTLY)


def test_numbers_of_the_page_are_those_of_the_files():
    raw = [json.loads(p.read_text()) for p in sorted((ROOT / "results" / "runs").glob("*.json"))]
    text = (ROOT / "docs" / "field.md").read_text()

    def accuracies(**wanted: Any) -> dict[int, float]:
        lr = field.specs("paper")[0].lr
        shared = {"dataset": "cifar10", "width": 256, "depth": 4, "epochs": 30, "penalty": 0.0, "lr": lr, **wanted}
        shared |= {"credit_site": wanted.get("credit_site"), "targets": "labels", "grad_clip": None}
        runs = [r for r in raw if all(r["spec"].get(k) == v for k, v in shared.items())]
        return {r["spec"]["seed"]: r["trajectory"][-1]["accuracy"] for r in runs}

    trained, null = accuracies(method="bp", train_last=None), accuracies(method="bp", train_last=0)
    seeds = [s for s in (42, 123, 456) if s in trained and s in null]
    assert len(seeds) == 3
    row = rows(text.partition("## Result")[2], "bp")[0]
    assert row[2].split()[0] == f"{np.mean([trained[s] for s in seeds]):.3f}"
    margins = [100 * (trained[s] - null[s]) for s in seeds]
    half = stats.t.ppf(0.975, 2) * np.std(margins, ddof=1) / np.sqrt(3)
    expected = f"{np.mean(margins):+.1f} [{np.mean(margins) - half:+.1f}, {np.mean(margins) + half:+.1f}]"
    assert row[4].replace("\\", "") == expected


def test_without_runs_everything_is_listed_as_not_run(tmp_path):
    text = page.Page(archive(tmp_path), COST).text()
    planned = field.specs("paper")
    assert f"0 of {len(planned)} runs" in text
    assert "No run of a rule is there yet." in text
    assert f"at most {2 * sum(s.epochs or 0 for s in planned)} epochs of BP" in text
    searched, runs = rows(text, "pc")
    assert set(searched[1:5]) == {"–"}
    assert runs[1:] == ["0 of 1", "0 of 1", "120"]
    assert "images/field.svg" not in text
    assert "not known" in page.Page(archive(tmp_path / "other"), {"bp": 1.0}).text()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of the smoke preset: bp and usf with their nulls, fgrad without; usf is certified. One rule's three learning rates."""
    tmp_path = tmp_path_factory.mktemp("field")
    store = Store(tmp_path / "store", create=True)
    chosen = [s for s in field.specs("smoke") if s.method in ("bp", "usf") or (s.method == "fgrad" and not s.frozen)]
    for spec in chosen:
        train(spec, store.out(spec.hash))
    rates = [s for s in learning_rates.specs("smoke") if s.method == "usf"]
    for spec in rates:
        if not store.has(spec):
            train(spec, store.out(spec.hash))
    (usf,) = (s for s in chosen if s.method == "usf" and not s.frozen)
    label = measure(store, usf.hash).to_dict()["certificate"]["label"]
    return page.Page(archive(tmp_path, store), COST, "smoke"), store, usf, label, rates


def test_a_few_runs_make_a_page(tiny):
    made, store, usf, label, rates = tiny
    text = made.text()
    assert f"{len(made.here)} of {len(field.specs('smoke'))} runs" in text
    result, measured, searched, runs = rows(text, "usf")
    assert len(result) == 6
    assert label in measured
    assert measured[-1] == "2"
    accuracy = {s.lr: store.bundle(s).trajectory[-1]["accuracy"] for s in rates}
    assert searched[1:4] == [f"{accuracy[lr]:.3f}" for lr in sorted(accuracy)]
    best = max(accuracy, key=lambda lr: accuracy[lr]) / usf.lr
    assert float(searched[4]) == pytest.approx(best)
    assert ("The field does not use the best of the three for: usf." in text) == (best != 1)
    assert runs[1:] == ["1 of 1", "1 of 1", "0"]
    assert made.figure() is not None


def test_what_no_rule_did_is_claimed_only_where_it_is_known(tiny):
    made, store, _, _, _ = tiny
    facts = {name: (who, len(made.rules) - len(unknown)) for name, who, unknown in made.deeds()}
    bp = next(s for s in field.specs("smoke") if s.method == "bp" and not s.frozen)
    others = {s.method: store.bundle(s).accuracy for s in field.specs("smoke") if not s.frozen and store.has(s)}
    reached = sorted(m for m, acc in others.items() if m != "bp" and acc >= store.bundle(bp).accuracy)
    who, known = facts["reaches the accuracy of bp (its mean at least the lowest seed of bp)"]
    assert (sorted(who), known) == (reached, 2)
    _, known = facts["has a margin to the matched null whose interval lies above 2 pp"]
    assert known == 1  # fgrad has no matched null
    for name in made.none_did():
        assert facts[name] == ([], 2)
    assert "has a margin to the matched null whose interval lies above 2 pp" not in made.none_did()


def test_the_board_has_every_run_of_the_field():
    """`python board/recipes/field.py` was called again when results/ grew."""
    entries = [read_entry(path) for path in find_entries(ROOT / "board" / "entries")]
    there = {report.run for entry in entries for audit in entry.audits for report in audit.reports}
    records, _ = Archive(ROOT / "results").runs_of(field.specs("paper"))
    assert not [r.spec.slug for r in records if not r.spec.frozen and r.spec.hash not in there]
