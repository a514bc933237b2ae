"""An archive holds everything but the weights: studies say the same from it, and its commands name the same runs."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shlex
from pathlib import Path

import pytest
from tests.cli.calls import one_line_error, out
from tests.refusals import refusal
from tests.runs.driver import Inline, tiny_specs

from creditscope.cli import main
from creditscope.cli.parse import parse
from creditscope.cli.train import Train
from creditscope.runs.archive import Archive, command, write_archive
from creditscope.runs.execute import run_store
from creditscope.runs.groups import audit
from creditscope.runs.judged import judged
from creditscope.runs.record import records_of
from creditscope.runs.store import Store
from creditscope.studies.catalogue import NAMES, get_study
from creditscope.studies.grid import DFA, PRESETS, make
from creditscope.studies.shown import show


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    store = Store(tmp_path_factory.mktemp("archive") / "store", create=True)
    assert run_store(tiny_specs(), store, Inline()) == []
    return store


def test_a_study_says_the_same_from_an_archive(store, tmp_path):
    hashes = [s.hash for s in tiny_specs()]
    assert write_archive(store, hashes, tmp_path / "results") == hashes
    archive = Archive(tmp_path / "results")
    runs, problems = archive.runs_of(tiny_specs())
    theirs, _ = records_of(store, tiny_specs())
    assert problems == []
    assert [r.spec for r in runs] == [r.spec for r in theirs]
    study = get_study("audit")
    assert study.table(runs) == study.table(theirs)
    assert not list((tmp_path / "results").rglob("*.safetensors"))


def test_runs_reads_an_archive_as_it_reads_a_store(store, tmp_path, capsys):
    results = tmp_path / "results"
    key, other, *_ = write_archive(store, [s.hash for s in tiny_specs()], results)
    own = {"stamp": None, "bytes": None}
    assert [row | own for row in Archive(results).rows()] == [row | own for row in store.rows()]
    of_store, of_archive = (out(capsys, "runs", "list", "--store", path) for path in (store.root, results))
    assert of_store == of_archive
    shown = out(capsys, "runs", "show", key[:12], "--store", results)
    assert command(store.bundle(key).spec) in shown
    assert "VERDICT: " in shown
    (results / "runs" / f"{other}.json").write_text("{}")
    assert f"{other[:10]}  unusable: " in out(capsys, "runs", "list", "--store", results)


def test_a_shown_run_is_judged_with_its_seeds_and_nulls(store, tmp_path):
    """As the audit of the whole store judges it; alone where the nulls are not there; a null is not judged."""
    trained = [s for s in tiny_specs() if not s.frozen]
    everything = audit(records_of(store, tiny_specs())[0])
    for spec in trained:
        report, told = judged(store, spec.hash)
        expected = next(r for g in everything for r in g.reports if r.run == spec.hash)
        assert report == expected
        assert ("against its" in told) == (expected.facts.depth is not None)
    assert any(judged(store, s.hash)[0].facts.depth for s in trained)
    null = next(s for s in tiny_specs() if s.frozen)
    assert "it is not judged" in judged(store, null.hash)[1]
    write_archive(store, [trained[0].hash], tmp_path)
    report, told = judged(Archive(tmp_path), trained[0].hash)
    assert report.facts.depth is None or not report.facts.depth.margins
    assert "without a null" in told


def test_a_seed_counts_once_though_it_was_kept_with_other_checkpoints():
    """results/ has DFA rms of 30 epochs twice: with and without the checkpoint of epoch 1."""
    results = Archive(Path(__file__).parents[2] / "results")
    made = {make("reduced", DFA, 42, checkpoint_epochs=epochs, intervention=True).hash for epochs in ((), (1,))}
    assert len(made) == 2
    for key in made:
        report, told = judged(results, key)
        assert "on seeds 42, 123, 456 in" in told
        assert (report.run, len(report.headline_acc)) == (key, 3)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["rm", "0"], "is an archive of results, without weights; this needs a store"),
        (["export", "--format", "archive", "--out", "x"], "this needs a store"),
        (["list", "--rebuild"], "is an archive of results, without weights; this needs a store"),
        (["show", "zz"], "no run in .* with a hash that starts with 'zz'"),
    ],
)
def test_what_an_archive_cannot_do_is_one_line(store, tmp_path, args, told, capsys):
    write_archive(store, [tiny_specs()[0].hash], tmp_path)
    (line,) = one_line_error(capsys, "runs", *args, "--store", tmp_path).splitlines()
    assert re.search(told, line)


def test_an_altered_file_is_an_error(store, tmp_path):
    first = tiny_specs()[0]
    write_archive(store, [first.hash], tmp_path)
    path = tmp_path / "runs" / f"{first.hash}.json"
    content = json.loads(path.read_text())
    content["spec"]["seed"] += 1
    path.write_text(json.dumps(content))
    runs, (problem,) = Archive(tmp_path).runs_of([first])
    assert runs == []
    assert "was altered" in problem
    path.write_text("{}")
    _, (problem,) = Archive(tmp_path).runs_of([first])
    assert "is not a run of an archive" in problem
    (tmp_path / "index.json").write_text('{"schema_version": 99}')
    assert "schema_version 99" in refusal(lambda: Archive(tmp_path))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_command_of_every_run_names_that_run(preset):
    """A command is parsed where it has an option, or a value of one, that no command before it had."""
    specs = {spec.hash: spec for name in NAMES for spec in get_study(name).specs(preset)}
    met: set[tuple[str, str]] = set()
    for key, spec in specs.items():
        words = shlex.split(command(spec))
        assert words[:2] == ["creditscope", "train"]
        if met.issuperset(itertools.pairwise(words)):
            continue
        met.update(itertools.pairwise(words))
        train = parse(words[1:])
        assert isinstance(train, Train)
        assert train.spec().hash == key


def test_report_reads_an_archive_as_it_reads_a_store(store, tmp_path, capsys):
    write_archive(store, [s.hash for s in tiny_specs()], tmp_path / "results")
    page, a, b = (str(tmp_path / name) for name in ("page.html", "a.json", "b.json"))
    assert main(["report", str(tmp_path / "results"), "--html", page, "--json", a]) == 0
    assert main(["report", str(store.root), "--json", b]) == 0
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads((tmp_path / "b.json").read_text())
    assert tiny_specs()[0].hash[:10] in (tmp_path / "page.html").read_text()
    capsys.readouterr()


def test_a_study_whose_facts_are_missing_is_not_called_not_run(tmp_path):
    """`penalty` needs the full level, which a store measures when it is shown; exported before, the table says so."""
    spec = get_study("penalty").specs("smoke")[0]
    store = Store(tmp_path / "store", create=True)
    assert run_store([spec], store, Inline()) == []
    write_archive(store, [spec.hash], tmp_path / "results")
    table = show("penalty", "smoke", Archive(tmp_path / "results"))
    assert table.values("rho") == (None,)
    assert table.rows[0].value("accuracy") is not None
    assert sum("has no facts of level full" in note for note in table.notes) == 2  # of rho and nudging
    assert "no finished run of study seeds" in refusal(lambda: show("seeds", "smoke", Archive(tmp_path / "results")))


def test_an_archive_keeps_the_studies_of_every_store_that_was_written_into_it(store, tmp_path):
    first, second = Store(tmp_path / "a", create=True), Store(tmp_path / "b", create=True)
    first.write_plan("penalty", "reduced", [])
    first.write_plan("audit", "reduced", [])
    second.write_plan("audit", "reduced", [])
    second.write_plan("audit", "paper", [])
    write_archive(store, [tiny_specs()[0].hash], tmp_path / "results")
    for one in (first, second):
        write_archive(one, [], tmp_path / "results")
    plans = [(p["study"], p["preset"]) for p in Archive(tmp_path / "results").plans()]
    assert plans == [("audit", "paper"), ("audit", "reduced"), ("penalty", "reduced")]
    assert Archive(tmp_path / "results").hashes() == [tiny_specs()[0].hash]


def test_a_study_trains_only_what_an_archive_lacks(store, tmp_path, capsys, monkeypatch):
    """Beside an archive, a new store gets the rest of the grid; a damaged file of the archive does not count."""
    import creditscope.studies.audit as audit_study

    study = dataclasses.replace(audit_study.STUDY, specs=lambda preset: tiny_specs())
    monkeypatch.setattr(audit_study, "STUDY", study)
    good, damaged, *rest = [s.hash for s in tiny_specs()]
    results = tmp_path / "results"
    write_archive(store, [good, damaged], results)
    (results / "runs" / f"{damaged}.json").write_text("{}")
    args = ["audit", "--preset", "smoke", "--store", str(tmp_path / "new"), "--archive", str(results)]
    assert main(["study", "plan", *args]) == 0
    planned = capsys.readouterr()
    assert f"{len(rest) + 2} runs, 1 done, {len(rest) + 1} left" in planned.out
    assert f"{damaged}.json is not a run of an archive" in planned.err
    told = out(capsys, "study", "run", *args, "--workers", "1")
    assert f"{len(rest) + 1} of {len(rest) + 1} runs that {results} lacks are in {tmp_path / 'new'}" in told
    assert {r["hash"] for r in Store(tmp_path / "new").rows()} == {damaged, *rest}
    assert f"next: creditscope runs export --store {tmp_path / 'new'} --format archive --out {results}" in told
    assert main(["runs", "export", "--store", str(tmp_path / "new"), "--format", "archive", "--out", str(results)]) == 0
    assert Archive(results).hashes() == sorted([good, damaged, *rest])
    assert main(["study", "run", "audit", "--store", str(tmp_path / "new"), "--archive", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "index.json" in line
