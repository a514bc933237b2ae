"""`creditscope study` and `creditscope runs` as a user meets them, on a grid made tiny."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
import urllib.error

import pytest
from tests.runs.driver import TINY

from creditscope.cli import main
from creditscope.runs.store import Store
from creditscope.studies import grid


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setitem(grid.RECIPES, "smoke", {**TINY, "epochs": 1})
    patch.setitem(grid.SEEDS, "smoke", (42,))
    root = tmp_path_factory.mktemp("cli") / "store"
    assert main(["study", "run", "early", "freshb", "--preset", "smoke", "--store", str(root), "--workers", "2"]) == 0
    yield str(root)
    patch.undo()


def out(capsys, *args: str) -> str:
    assert main(args) == 0
    text: str = capsys.readouterr().out
    return text


def error(capsys, *args: str) -> str:
    assert main(args) == 2
    text: str = capsys.readouterr().err
    assert text.count("\n") == 1
    assert "Traceback" not in text
    return text


def test_run_again_has_nothing_to_do(store, capsys):
    assert "6 of 6 runs" in out(capsys, "study", "run", "early", "freshb", "--preset", "smoke", "--store", store)


def test_show_in_every_form(store, capsys):
    assert "Mode 2" in out(capsys, "study", "show", "early", "--store", store)
    assert "| method |" in out(capsys, "study", "show", "early", "--store", store, "--markdown")
    assert r"\toprule" in out(capsys, "study", "show", "early", "--store", store, "--latex")
    data = json.loads(out(capsys, "study", "show", "freshb", "--store", store, "--json"))  # measures level full
    assert data["name"] == "freshb"
    assert len(data["rows"]) == 2
    assert "choose one" in error(capsys, "study", "show", "early", "--store", store, "--json", "--latex")


def test_plan_status_and_list(store, capsys):
    assert "4 runs, 4 done, 0 left" in out(capsys, "study", "plan", "early", "--store", store)
    assert "2 runs, 0 done, 2 left" in out(capsys, "study", "plan", "freshb")
    assert "early (smoke)" in out(capsys, "study", "status", "--store", store)
    assert "credit-norm" in out(capsys, "study", "list")


def test_runs_list_show_export_and_rm(store, capsys):
    assert "6 runs" in out(capsys, "runs", "list", "--store", store, "--rebuild")
    rows = list(csv.DictReader(io.StringIO(out(capsys, "runs", "export", "--store", store))))
    assert len(rows) == 6
    assert len(json.loads(out(capsys, "runs", "export", "--store", store, "--format", "json"))) == 6
    key = rows[0]["hash"]
    assert "VERDICT" in out(capsys, "runs", "show", key[:12], "--store", store)
    assert "removed" in out(capsys, "runs", "rm", key[:12], "--store", store)
    assert "5 runs" in out(capsys, "runs", "list", "--store", store)
    assert "no run" in error(capsys, "runs", "show", key[:12], "--store", store)


def test_runs_measure_adds_what_a_run_lacks_and_leaves_the_rest_alone(store, capsys):
    keys = [r["hash"] for r in Store(store).rows()]
    files = {key: Store(store).root / "full" / f"{key}.json" for key in keys}
    for path in files.values():
        path.unlink(missing_ok=True)
    bundles = {key: (Store(store).out(key) / "report.json").read_bytes() for key in keys}
    assert f"{len(keys)} measured\n" in out(capsys, "runs", "measure", store)
    assert f"{len(keys)} complete\n" in out(capsys, "runs", "measure", store)
    key, whole = keys[0], files[keys[0]].read_bytes()
    older = json.loads(whole)
    del older["facts"]["perturbation"]  # what a version wrote that did not have it
    files[key].write_text(json.dumps(older))
    assert f"1 measured, {len(keys) - 1} complete\n" in out(capsys, "runs", "measure", store)
    assert files[key].read_bytes() == whole
    assert "1 measured" in out(capsys, "runs", "measure", store, "--run", key[:12], "--again")
    assert files[key].read_bytes() == whole
    assert {key: (Store(store).out(key) / "report.json").read_bytes() for key in keys} == bundles


def test_runs_measure_refuses_weights_that_do_not_give_the_recorded_report(store, capsys, monkeypatch):
    from creditscope.runs import measured
    from creditscope.runs import record

    key = Store(store).rows()[0]["hash"]
    original = record.measure_full

    def other(*args):
        content = original(*args)
        content["facts"]["scale"]["growth"] *= 1.01
        return content

    monkeypatch.setattr(measured, "measure_full", other)
    path = Store(store).root / "full" / f"{key}.json"
    path.unlink(missing_ok=True)
    assert main(["runs", "measure", store, "--run", key]) == 3
    told = capsys.readouterr()
    assert "1 not measured" in told.out
    assert told.err.startswith(f"{key[:10]}  not measured: the weights of run {key[:10]} give growth")
    assert not path.exists()


def test_mistakes_are_one_line(store, capsys, tmp_path):
    assert "unknown" in error(capsys, "study", "run", "nonsense", "--store", store)
    assert "no finished run" in error(capsys, "study", "show", "random-target", "--store", store)
    assert "not a store" in error(capsys, "runs", "list", "--store", str(tmp_path / "none"))
    (tmp_path / "bundles").mkdir()
    assert "not a store (it has no store.json)" in error(capsys, "runs", "list", "--store", str(tmp_path / "bundles"))
    assert "unknown command" in error(capsys, "study", "dance")
    assert "unknown command" in error(capsys, "runs", "dance")


@pytest.mark.parametrize(("executor", "module"), [("ray", "ray"), ("dask", "distributed"), ("slurm", "submitit")])
def test_an_executor_that_is_not_installed_leaves_no_store(executor, module, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    message = error(capsys, "study", "run", "audit", "--store", str(tmp_path / "new"), "--executor", executor)
    assert f"pip install 'creditscope[{executor}]'" in message
    assert list(tmp_path.iterdir()) == []


def test_data_that_is_not_there_is_one_line_and_leaves_no_store(capsys, monkeypatch, tmp_path):
    def refuse(url, timeout):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    where = ["--store", str(tmp_path / "new"), "--data-dir", str(tmp_path / "typo")]
    assert "cannot download" in error(capsys, "study", "run", "audit", "--preset", "quick", *where)
    assert list(tmp_path.iterdir()) == []


def test_parquet_without_pyarrow_says_how_to_get_it(store, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = error(capsys, "runs", "export", "--store", store, "--format", "parquet", "--out", str(tmp_path / "x"))
    assert "pip install 'creditscope[query]'" in message


def test_a_damaged_run_is_not_counted_as_done(tmp_path, capsys, store):
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    victim = sorted(p for p in (copy / "runs").iterdir() if not p.name.startswith("."))[0]
    assert main(["runs", "list", "--store", str(copy)]) == 0  # the index knows it whole
    (victim / "report.json").unlink()
    text = out(capsys, "study", "status", "--store", str(copy))
    assert f"unusable {victim.name[:10]}" in text
    assert f"creditscope runs rm {victim.name[:10]}" in text
    names = [p["study"] for p in json.loads(json.dumps(Store(copy).plans()))]
    assert main(["study", "run", *names, "--preset", "smoke", "--store", str(copy)]) == 1
    told = capsys.readouterr().out.splitlines()[0]
    whole = len([p for p in (copy / "runs").iterdir() if not p.name.startswith(".")])
    assert told.startswith(f"{whole - 1} of {whole} runs are in")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["runs", "rm", "--store", "STORE"], "needs the hash of a run"),
        (["study", "run", "early", "--store", "STORE", "--workers", "0"], "0 workers train nothing"),
        (
            ["study", "page", "--store", "STORE", "--out", "page.md"],
            "was not run with preset reduced; its presets: smoke",
        ),
    ],
)
def test_a_wrong_call_is_one_line(store, args, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says in error(capsys, *(store if a == "STORE" else a for a in args))
