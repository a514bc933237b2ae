"""creditscope runs"""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

from creditscope.cli import main
from creditscope.runs.store import Store

from .calls import one_line_error, out

ROOT = Path(__file__).parents[2]


def test_runs_list_show_export_and_rm(study_store, capsys):
    assert "6 runs" in out(capsys, "runs", "list", "--store", study_store, "--rebuild")
    rows = list(csv.DictReader(io.StringIO(out(capsys, "runs", "export", "--store", study_store))))
    assert len(rows) == 6
    assert len(json.loads(out(capsys, "runs", "export", "--store", study_store, "--format", "json"))) == 6
    key = rows[0]["hash"]
    assert "VERDICT" in out(capsys, "runs", "show", key[:12], "--store", study_store)
    assert "removed" in out(capsys, "runs", "rm", key[:12], "--store", study_store)
    assert "5 runs" in out(capsys, "runs", "list", "--store", study_store)
    assert "no run" in one_line_error(capsys, "runs", "show", key[:12], "--store", study_store)


def test_runs_measure_adds_what_a_run_lacks_and_leaves_the_rest_alone(study_store, capsys):
    keys = [r["hash"] for r in Store(study_store).rows()]
    files = {key: Store(study_store).root / "full" / f"{key}.json" for key in keys}
    for path in files.values():
        path.unlink(missing_ok=True)
    bundles = {key: (Store(study_store).out(key) / "report.json").read_bytes() for key in keys}
    assert f"{len(keys)} measured\n" in out(capsys, "runs", "measure", study_store)
    assert f"{len(keys)} complete\n" in out(capsys, "runs", "measure", study_store)
    key, whole = keys[0], files[keys[0]].read_bytes()
    older = json.loads(whole)
    del older["facts"]["perturbation"]  # what a version wrote that did not have it
    files[key].write_text(json.dumps(older))
    assert f"1 measured, {len(keys) - 1} complete\n" in out(capsys, "runs", "measure", study_store)
    assert files[key].read_bytes() == whole
    assert "1 measured" in out(capsys, "runs", "measure", study_store, "--run", key[:12], "--again")
    assert files[key].read_bytes() == whole
    assert {key: (Store(study_store).out(key) / "report.json").read_bytes() for key in keys} == bundles


def test_runs_measure_refuses_weights_that_do_not_give_the_recorded_report(study_store, capsys, monkeypatch):
    from creditscope.runs import measured, record

    key = Store(study_store).rows()[0]["hash"]
    original = record.measure_full

    def other(*args):
        content = original(*args)
        content["facts"]["scale"]["growth"] *= 1.01
        return content

    monkeypatch.setattr(measured, "measure_full", other)
    path = Store(study_store).root / "full" / f"{key}.json"
    path.unlink(missing_ok=True)
    assert main(["runs", "measure", study_store, "--run", key]) == 3
    printed = capsys.readouterr()
    assert "1 not measured" in printed.out
    assert printed.err.startswith(f"{key[:10]}  not measured: the weights of run {key[:10]} give growth")
    assert not path.exists()


def test_parquet_without_pyarrow_says_how_to_get_it(study_store, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = one_line_error(
        capsys, "runs", "export", "--store", study_store, "--format", "parquet", "--out", str(tmp_path / "x")
    )
    assert "pip install 'creditscope[query]'" in message


def test_runs_that_are_compared_stand_together_and_say_their_rate(capsys):
    """The three State Bridges of the archive that differ in nothing but their learning rate."""
    assert main(["runs", "list", "--store", str(ROOT / "results"), "--method", "sb"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:-1]]
    assert {row[1].partition("(")[0] for row in rows} == {"sb", "frozen"}  # the nulls of a rule are its runs
    rows = [row for row in rows if row[1].startswith("sb(")]
    small = [line for line in rows if "quadratic" in line]
    assert len({" ".join(row[1:-2]) for row in small}) == len(small)  # no two read alike
    sets = [next(word for word in row if word in ("cifar10", "quadratic")) for row in rows]
    assert sets == sorted(sets)
    where = ("runs", "list", "--store", str(ROOT / "results"), "--method")
    assert "frozen" not in out(capsys, *where, "sb(rms)")
    message = one_line_error(capsys, *where, "sb", "dfaa")
    assert f"no run of {ROOT / 'results'} is by 'dfaa'; did you mean 'dfa'? choose one of bp, " in message
    assert "did you mean" not in one_line_error(capsys, *where, "nothing")


def test_an_archive_is_no_store_and_is_told_to_be_one(capsys):
    said = one_line_error(capsys, "study", "status", "--store", str(ROOT / "results"))
    assert f"{ROOT / 'results'} is an archive of results, where nothing is trained" in said
    assert "creditscope study show NAME --preset paper --store" in said


def test_the_nulls_of_a_rule_are_its_runs():
    from creditscope.cli.runs import _by

    rows = [
        {"label": label, "spec": f'{{"method": "{method}"}}', "problem": ""}
        for label, method in (("dfa(rms)", "dfa"), ("frozen(dfa, rms)", "dfa"), ("bp", "bp"))
    ]
    assert _by(rows, ("dfa",), ROOT) == rows[:2]
    assert _by(rows, ("frozen(dfa, rms)", "bp"), ROOT) == rows[1:]
