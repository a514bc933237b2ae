"""An archive holds everything but the weights: studies say the same from it, and its commands name the same runs."""

from __future__ import annotations

import json
import shlex

import pytest
from tests.studies.driver import tiny_specs
from tests.studies.test_store import Inline

from creditscope.cli.parse import given, parse
from creditscope.cli.train import SPEC_FIELDS, Train, _option
from creditscope.errors import CreditscopeError
from creditscope.studies.archive import Archive, command, write_archive
from creditscope.studies.audit import analyse
from creditscope.studies.catalogue import NAMES, get_study
from creditscope.studies.grid import PRESETS
from creditscope.studies.result import runs_of
from creditscope.studies.run import run_store
from creditscope.studies.store import Store
from creditscope.training.spec import make_spec


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
    theirs, _ = runs_of(store, tiny_specs())
    assert problems == []
    assert [r.spec for r in runs] == [r.spec for r in theirs]
    assert analyse(runs) == analyse(theirs)
    assert not list((tmp_path / "results").rglob("*.safetensors"))


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
    with pytest.raises(CreditscopeError, match="schema_version 99"):
        Archive(tmp_path)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_command_of_every_run_names_that_run(preset):
    specs = {spec.hash: spec for name in NAMES for spec in get_study(name).specs(preset)}
    for key, spec in specs.items():
        words = shlex.split(command(spec))
        assert words[:2] == ["creditscope", "train"]
        flags = parse(Train, words[2:], "train", "", "")
        options = dict(_option(text) for text in flags.option)
        settings = given(flags, SPEC_FIELDS) | ({"options": options} if options else {})
        assert make_spec(settings).hash == key


def test_report_reads_an_archive_as_it_reads_a_store(store, tmp_path, capsys):
    from creditscope.cli.report import run as report

    write_archive(store, [s.hash for s in tiny_specs()], tmp_path / "results")
    assert (
        report([str(tmp_path / "results"), "--html", str(tmp_path / "page.html"), "--json", str(tmp_path / "a.json")])
        == 0
    )
    assert report([str(store.root), "--json", str(tmp_path / "b.json")]) == 0
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads((tmp_path / "b.json").read_text())
    page = (tmp_path / "page.html").read_text()
    assert tiny_specs()[0].hash[:10] in page
    capsys.readouterr()
