"""creditscope study, on a grid made tiny"""

from __future__ import annotations

import json
import shutil
import sys
import urllib.error

import pytest

from creditscope.cli import main
from creditscope.runs.store import Store

from .calls import one_line_error, out


def test_run_again_has_nothing_to_do(study_store, capsys):
    assert "6 of 6 runs" in out(capsys, "study", "run", "early", "freshb", "--preset", "smoke", "--store", study_store)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def (", "cannot be loaded (SyntaxError: invalid syntax (mine.py, line 1)); correct the file"),
        ("x = 1\ny = z\n", "cannot be loaded (NameError: name 'z' is not defined, line 2); correct the file"),
        (
            "from creditscope.training.spec import make_spec\nmake_spec({'methud': 1})\n",
            "mine.py: methud: unknown field",
        ),
        ("x = 1\n", "defines no STUDY"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_line(text, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(text)
    for command in ("plan", "run", "show"):
        args = ["study", command, "mine.py", "--store", "store"]
        assert says in one_line_error(capsys, *args)
    assert not (tmp_path / "store").exists()


def test_show_in_every_form(study_store, capsys):
    assert "Mode 2" in out(capsys, "study", "show", "early", "--store", study_store)
    assert "| method |" in out(capsys, "study", "show", "early", "--store", study_store, "--markdown")
    assert r"\toprule" in out(capsys, "study", "show", "early", "--store", study_store, "--latex")
    data = json.loads(out(capsys, "study", "show", "freshb", "--store", study_store, "--json"))  # measures level full
    assert data["name"] == "freshb"
    assert len(data["rows"]) == 2
    assert "choose one" in one_line_error(capsys, "study", "show", "early", "--store", study_store, "--json", "--latex")


def test_plan_status_and_list(study_store, capsys):
    assert "4 runs, 4 done, 0 left" in out(capsys, "study", "plan", "early", "--store", study_store)
    assert "2 runs, 0 done, 2 left" in out(capsys, "study", "plan", "freshb")
    assert "early (smoke)" in out(capsys, "study", "status", "--store", study_store)
    assert "credit-norm" in out(capsys, "study", "list")


STAGED = """
from creditscope.studies.study import Study
from creditscope.training.spec import make_spec

SMALL = {"dataset": "quadratic", "method": "bp", "width": 8, "depth": 2, "epochs": 1, "batch_size": 2000}


def specs(preset):
    return [make_spec({**SMALL, "seed": seed}) for seed in (1, 2)]


def then(preset, records):
    if len(records) < 2:
        return []
    best = max(records, key=lambda r: r.accuracy)
    return [best.spec.changed(width=16)]


STUDY = Study("staged", "does the best seed go on?", specs, then=then)
"""


def test_a_study_in_stages_trains_what_its_results_choose(tmp_path, capsys):
    """One command goes through all stages; what it chose is planned, shown and left alone by the same command."""
    (tmp_path / "staged.py").write_text(STAGED)
    of = str(tmp_path / "staged.py"), "--store", str(tmp_path / "store")
    said = out(capsys, "study", "plan", *of)
    assert "2 runs, 0 done, 2 left" in said
    assert "further runs are chosen from the results of these" in said
    assert "3 of 3 runs" in out(capsys, "study", "run", *of, "--workers", "1")
    store = Store(tmp_path / "store")
    runs = [store.read(row["hash"]) for row in store.rows()]
    accuracies = {r.spec.seed: r.accuracy for r in runs if r.spec.width == 8}
    (chosen,) = (r.spec.seed for r in runs if r.spec.width == 16)
    assert chosen == max(accuracies, key=lambda seed: accuracies[seed])
    assert "3 runs, 3 done, 0 left" in out(capsys, "study", "plan", *of)
    assert "3 of 3 runs" in out(capsys, "study", "run", *of, "--workers", "1")
    assert "d=16" in out(capsys, "study", "show", *of)


def test_mistakes_are_one_line(study_store, capsys, tmp_path):
    assert "unknown" in one_line_error(capsys, "study", "run", "nonsense", "--store", study_store)
    assert "no finished run" in one_line_error(capsys, "study", "show", "random-target", "--store", study_store)
    assert "not a store" in one_line_error(capsys, "runs", "list", "--store", str(tmp_path / "none"))
    (tmp_path / "bundles").mkdir()
    said = one_line_error(capsys, "runs", "list", "--store", tmp_path / "bundles")
    assert "not a store (it has no store.json)" in said
    assert "needs the hash of a run" in one_line_error(capsys, "runs", "rm", "--store", study_store)
    said = one_line_error(capsys, "study", "run", "early", "--store", study_store, "--workers", "0")
    assert "--workers is 0; give 1 or more" in said


@pytest.mark.parametrize(("executor", "module"), [("ray", "ray"), ("dask", "distributed"), ("slurm", "submitit")])
def test_an_executor_that_is_not_installed_leaves_no_store(executor, module, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    message = one_line_error(capsys, "study", "run", "audit", "--store", str(tmp_path / "new"), "--executor", executor)
    assert f"pip install 'creditscope[{executor}]'" in message
    assert list(tmp_path.iterdir()) == []


def test_data_that_is_not_there_is_one_line_and_leaves_no_store(capsys, monkeypatch, tmp_path):
    def refuse(url, timeout):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    where = ["--store", str(tmp_path / "new"), "--data-dir", str(tmp_path / "typo")]
    assert "cannot download" in one_line_error(capsys, "study", "run", "audit", "--preset", "quick", *where)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_run_is_not_counted_as_done(tmp_path, capsys, study_store):
    copy = tmp_path / "copy"
    shutil.copytree(study_store, copy)
    victim = sorted(p for p in (copy / "runs").iterdir() if not p.name.startswith("."))[0]
    assert main(["runs", "list", "--store", str(copy)]) == 0  # the index knows it whole
    (victim / "report.json").unlink()
    text = out(capsys, "study", "status", "--store", str(copy))
    assert f"unusable {victim.name[:10]}" in text
    assert f"creditscope runs rm {victim.name[:10]}" in text
    names = [p["study"] for p in json.loads(json.dumps(Store(copy).plans()))]
    assert main(["study", "run", *names, "--preset", "smoke", "--store", str(copy)]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    whole = len([p for p in (copy / "runs").iterdir() if not p.name.startswith(".")])
    assert first.startswith(f"{whole - 1} of {whole} runs are in")
