"""Reporting section, checklist and what the commands find: complete, traceable, inert."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli.calls import one_line_error, out

from creditscope.cli import main
from creditscope.cli.sources import find_sources
from creditscope.cli.template import _told_apart
from creditscope.cli.train import Train
from creditscope.measure.facts import Facts, LayerMeans
from creditscope.pitfalls.base import unknown
from creditscope.pitfalls.registry import PITFALLS
from creditscope.protocol.report import make_report
from creditscope.render.artifact import artifact_description
from creditscope.render.checklist import QUESTIONS, Audited, checklist, checklist_document
from creditscope.render.document import Section, to_latex, to_markdown
from creditscope.render.numbers import num
from creditscope.render.template import Entry, Null, reporting_section
from creditscope.runs.store import Store
from creditscope.studies.catalogue import get_study
from creditscope.studies.shown import Stored, full_reports, stored_studies
from creditscope.tables import Cell
from creditscope.training.loop import train
from creditscope.training.spec import make_spec

from ..protocol.factory import make_facts
from ..training.small import DFA_RMS, small_quadratic, spec, use
from .pages import HOSTILE
from .synthetic import full
from .test_latex import assert_inert, compiled, needs_latex

SEEDS = (42, 123)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """A store with DFA (rms) and BP, two seeds each, and their nulls."""
    root: Path = tmp_path_factory.mktemp("deep") / "a" / "store"
    root.parent.mkdir()
    made = Store(root, create=True)
    with pytest.MonkeyPatch.context() as patch:
        use(patch, small_quadratic())
        for seed in SEEDS:
            dfa, bp = spec(**DFA_RMS, epochs=2, seed=seed), spec(method="bp", epochs=2, seed=seed)
            for s in (dfa, bp, dfa.null("matched"), bp.null("bp")):
                train(s, made.out(s))
    return root


def dfa_runs(store: Path) -> list[Any]:
    found = [b for b in find_sources([store]).bundles if b.spec.method == "dfa" and not b.spec.frozen]
    return sorted(found, key=lambda b: b.spec.seed)


def tables(text: str) -> list[list[list[str]]]:
    """The pipe tables of a Markdown text, as cells without escapes."""
    found: list[list[list[str]]] = []
    before = ""
    for line in text.splitlines():
        if line.startswith("| "):
            cells = [re.sub(r"\\(.)", r"\1", c.strip()) for c in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not before.startswith("|"):
                found.append([])
            found[-1].append(cells)
        before = line
    return found


def test_the_section_has_the_numbers_of_the_bundles_next_to_their_hashes(store, capsys):
    text = out(capsys, "template", store)
    by_header = {tuple(t[0]): t[1:] for t in tables(text[text.index("### dfa(rms)") :])}
    networks = next(rows for header, rows in by_header.items() if "headline Γ" in header)
    for bundle, row in zip(dfa_runs(store), networks, strict=True):
        assert row[0] == bundle.spec.hash[:10]
        assert row[1] == str(bundle.spec.seed)
        assert float(row[2]) == pytest.approx(bundle.accuracy, abs=5e-5)
        growth = bundle.report["facts"]["scale"]["growth"]
        assert float(row[4]) == pytest.approx(growth, rel=6e-3)
    layers = next(rows for header, rows in by_header.items() if header[0] == "layer")
    for k, bundle in enumerate(dfa_runs(store)):
        cosines = bundle.report["facts"]["alignment"]["mean"]
        assert [float(row[1 + k].split("±")[0].rstrip("*° ")) for row in layers] == pytest.approx(cosines, abs=6e-4)
    margins = {row[0]: row for header, rows in by_header.items() if header[0] == "null" for row in rows}
    assert {"matched", "bp"} <= margins.keys()
    pool = {b.spec.hash: b.accuracy for b in find_sources([store]).bundles}
    for kind in ("matched", "bp"):
        nulls = [b.spec.null(kind).hash for b in dfa_runs(store)]
        gains = [100 * (b.accuracy - pool[n]) for b, n in zip(dfa_runs(store), nulls, strict=True)]
        assert float(margins[kind][3]) == pytest.approx(sum(gains) / len(gains), abs=6e-3)
        assert all(n[:10] in margins[kind][6] for n in nulls)
        assert margins[kind][4].startswith("[")
    hashes = {row[3] for header, rows in by_header.items() if header[:2] == ("run", "method") for row in rows}
    assert {b.spec.hash for b in dfa_runs(store)} <= hashes
    for words in ("three-check/1.1", "1.00e-07", "Seeds 42, 123", "none selected", "clamp batch size", "Verdict (run"):
        assert words in text


def test_a_bundle_brings_all_its_seeds_and_nothing_else(store, capsys):
    text = out(capsys, "template", dfa_runs(store)[0].path)
    assert "### dfa(rms)" in text
    assert "### bp" not in text
    assert all(b.spec.hash in text for b in dfa_runs(store))


@pytest.fixture
def mine(tmp_path, capsys):
    """`mine(command, facts, ...)`: what a command prints of a report of one's own."""

    def call(command: str, facts: Facts, *flags: str, **given: Any) -> str:
        made = make_report(facts, **{"headline_acc": [0.5], "method_name": "mine", **given})
        made.to_json(tmp_path / "mine.json")
        return out(capsys, command, tmp_path / "mine.json", *flags)

    return call


@pytest.fixture
def asked(mine):
    """The questions of the checklist by their ids, as they are answered for a report of one's own."""

    def call(facts: Facts, **given: Any) -> dict[str, Any]:
        return {q["id"]: q for q in json.loads(mine("checklist", facts, "--json", **given))["questions"]}

    return call


COSINES = (0.4, 0.1, 0.1, 0.1, 0.1)
OWN = {"PF07": "credit=", "PF09": "run_null", "PF15": "headline_acc="}


def test_the_author_is_asked_only_for_what_was_not_given(asked):
    def told(null):
        found = asked(make_facts(), headline_acc=[0.5, 0.52, 0.51], frozen_baseline_acc={null: [0.3, 0.31, 0.32]})
        return {name: question["answer"] for name, question in found.items()}

    given = told("matched")
    assert "3 accuracies were given, the seeds are not named: state them" in given["PF15"]
    assert "headline_acc=" not in given["PF15"]
    assert "a matched null was given, its recipe is not in this file: state the recipe of the null" in given["PF09"]
    assert "run_null" not in given["PF09"]
    assert "run_null" in told("bp")["PF09"]


def test_a_report_alone_says_what_the_author_has_to_add(store, tmp_path, capsys, mine, asked):
    text = mine("template", make_facts(cosines=COSINES))
    assert "to be answered by the author" in text
    assert re.search(r"report:[0-9a-f]{64}", text)
    questions = asked(make_facts(cosines=COSINES))
    states = {name: q["state"] for name, q in questions.items()}
    assert states["PF07"] == states["PF15"] == "author"
    assert states["PF03"] == states["PF08"] == states["PF10"] == states["PF13"] == "answered"
    told = {name: q["answer"] for name, q in questions.items()}
    assert not any("bundle" in answer for answer in told.values())  # a network of one's own has none
    assert all(word in told[pf] for pf, word in OWN.items())
    assert "for a CreditRule, level full measures it; a callable's feedback is not known here" in told["PF04"]
    main(["report", str(store), "--json", str(tmp_path / "all.json")])
    capsys.readouterr()
    assert "### dfa(rms)" in out(capsys, "template", tmp_path / "all.json")


def test_the_artifact_says_what_is_claimed_how_to_run_it_how_long_and_what_to_expect(store, capsys, monkeypatch):
    from creditscope.cli.parse import parse

    use(monkeypatch, small_quadratic())
    text = out(capsys, "template", store, "--artifact", "--time")
    for heading in ("What is claimed", "What you need", "How to run it", "How long it takes", "What to expect"):
        assert f"### {heading}\n" in text
    claims, commands, times, expected, _ = tables(text)
    runs = {b.spec.hash: b for b in find_sources([store]).bundles}
    told = {command for _, command in commands if command.startswith("creditscope train ")}
    parsed = [parse(shlex.split(command)[1:]) for command in told]
    specs = {p.spec().hash for p in parsed if isinstance(p, Train)}
    assert specs == {h for h, b in runs.items() if b.spec.seed == SEEDS[0]}  # every command is the exact recipe
    assert [row for row in commands if "--seed 123," in row[1]]
    by_claim = {row[0]: row for row in expected[1:]}
    for claim, network, shown in claims[1:]:
        mine = [b for b in runs.values() if not b.spec.frozen and network.startswith(b.spec.label + " on ")]
        mean = sum(b.accuracy for b in mine) / len(mine)
        assert len(mine) == len(SEEDS)
        assert f"accuracy {mean:.3f} ± " in shown
        assert by_claim[claim][1].startswith(f"{mean:.3f} ± ")
        growth = sorted(b.report["facts"]["scale"]["growth"] for b in mine)
        assert by_claim[claim][3] == " to ".join(dict.fromkeys(map(num, growth)))
    assert sorted(row[1:3] for row in times[1:]) == [["4", "2"], ["8", "2"]]  # with nulls, and BP beside DFA
    assert all(row[3].endswith((" min", " hours")) for row in times[1:])
    assert len(text.split()) < 1000  # two pages
    assert "torch " in text
    assert "to be answered by the author" not in " ".join(row[3] for row in times)


def test_the_artifact_of_reports_marks_what_only_the_author_knows(store, capsys, mine):
    text = mine("template", make_facts(accuracy=0.4), "--artifact", headline_acc=0.4)
    assert "command: to be answered by the author" in text
    assert "the files do not hold it" in text
    seeds: dict[str, Any] = {"headline_acc": [0.4, 0.5, 0.6], "network_acc": 0.4, "n_test": 1000}
    text = mine("template", make_facts(accuracy=0.4), "--artifact", **seeds)
    assert "accuracy 0.500 ± 0.100 (n=3) (this network: 0.400)" in text  # what is claimed, not what one network has
    assert "networks per claim: 3" in text
    assert "Accuracy 0.500 ± 0.100 (n=3), mean" in mine("template", make_facts(accuracy=0.4), **seeds)
    assert out(capsys, "template", store, "--artifact", "--latex").count(r"\begin{longtable}") == 5
    assert "--time belongs to --artifact" in one_line_error(capsys, "template", store, "--time")


def test_every_pitfall_is_a_question_and_the_files_answer_what_they_can(store, capsys):
    assert set(QUESTIONS) == {p.number for p in PITFALLS}
    made = json.loads(out(capsys, "checklist", store, "--json"))
    assert [q["id"] for q in made["questions"]] == [p.id for p in PITFALLS]
    assert len(made["networks"]) == 4
    states = {q["id"]: q for q in made["questions"]}
    assert states["PF12"]["state"] == "answered"
    assert states["PF04"]["state"] == "author"
    assert {f["run"] for f in states["PF04"]["cannot_be_told"]} == {b.spec.hash[:10] for b in dfa_runs(store)}
    assert len(states["PF12"]["clear"]) == 4
    text = out(capsys, "checklist", dfa_runs(store)[0].path)
    assert text.count(dfa_runs(store)[0].spec.hash[:10]) == 1  # one network is named once
    assert "To be answered by the author" in text
    assert sum(len(t) - 1 for t in tables(text)) == 15


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_inert_in_section_and_checklist(hostile):
    facts = make_facts(cosines=COSINES)
    convention = facts.convention.model_copy(update={"samples": hostile, "mode": hostile, "loss": hostile})
    report = make_report(
        facts.model_copy(update={"convention": convention}),
        headline_acc=[0.5],
        frozen_baseline_acc=0.4,
        method_name=hostile,
        notes=hostile,
        run=hostile,
    )
    margins = report.facts.depth.margins  # type: ignore[union-attr]
    named = tuple(m.model_copy(update={"null": hostile, "interval": hostile}) for m in margins)
    facts = report.facts.model_copy(update={"depth": report.facts.depth.model_copy(update={"margins": named})})  # type: ignore[union-attr]
    report = report.model_copy(update={"facts": facts})
    entry = Entry(hostile, [report], [0.5], [1], None, [Null("matched", 1, hostile, 0.4)], [hostile], [hostile])
    answers = [(p, unknown(hostile)) for p in PITFALLS]
    audited = [Audited(hostile[:10], hostile, answers)]
    versions = {hostile: [hostile]}
    described = artifact_description([entry, dataclasses.replace(entry, spec=None)], versions, [1.5])
    for blocks in (reporting_section([entry]), described, checklist_document(checklist(audited), audited)):
        told, tex = to_markdown(blocks), to_latex(blocks, standalone=True)
        assert "<script" not in told
        assert "<img" not in told
        assert not re.search("[\x00\x1b\u2028\u202e]", told + tex)
        assert_inert(tex)
        assert len(told) < 40_000 + 40 * 300


@needs_latex
def test_section_and_checklist_compile(store, tmp_path):
    rows = [HOSTILE[:2], HOSTILE[3:5]]
    hostile = Section(HOSTILE[4], ["a", "b"], rows, HOSTILE[:7], level=2, text=HOSTILE[3], caption="c")
    (tmp_path / "hostile.tex").write_text(to_latex([hostile], standalone=True))
    assert main(["template", str(store), "--standalone", "--out", str(tmp_path / "template.tex")]) == 0
    assert main(["checklist", str(store), "--standalone", "--out", str(tmp_path / "checklist.tex")]) == 0
    for name in ("hostile", "template", "checklist"):
        compiled(tmp_path / f"{name}.tex")


def test_bundles_are_found_at_any_depth_each_run_once(store, tmp_path, capsys):
    top = store.parent.parent
    found = find_sources([top])
    assert len(found.bundles) == 8
    assert found.stores == [store]
    copy = tmp_path / "copy" / "again"
    shutil.copytree(dfa_runs(store)[0].path, copy)
    again = find_sources([top, tmp_path / "copy"])
    assert len(again.bundles) == 8
    assert "holds the same run as" in capsys.readouterr().err
    (copy / "trajectory.jsonl").write_text("")
    assert len(find_sources([top, tmp_path / "copy"]).bundles) == 8
    (tmp_path / "empty").mkdir()
    for wrong, words in (
        (tmp_path / "empty", "holds no bundle"),
        (tmp_path / "nowhere", "neither a directory nor a file"),
    ):
        assert main(["report", str(wrong)]) == 2
        assert words in capsys.readouterr().err
    (tmp_path / "x.json").write_text("[1]")
    assert "is not a creditscope report" in one_line_error(capsys, "template", tmp_path / "x.json")
    assert main(["checklist", str(store), "--json", "--latex"]) == 2


def test_a_damaged_network_is_not_replaced_by_its_null(store, tmp_path, capsys):
    network = dfa_runs(store)[0]
    null = next(b for b in find_sources([store]).bundles if b.spec.hash == network.spec.null("matched").hash)
    shutil.copytree(network.path, tmp_path / "both" / "dfa")
    (tmp_path / "both" / "dfa" / "report.json").write_text("{")
    shutil.copytree(tmp_path / "both" / "dfa", tmp_path / "alone" / "dfa")
    shutil.copytree(null.path, tmp_path / "both" / "null")
    shutil.copytree(null.path, tmp_path / "null" / "null")
    for command in ("report", "template", "checklist"):
        for where, words in (
            ("both", "read beside nulls (random-blocks baselines): 1 left out"),
            ("alone", "read: 1 left out"),
        ):
            assert main([command, str(tmp_path / where)]) == 2
            assert words in capsys.readouterr().err, (command, where)
    assert "only nulls (random-blocks baselines) were found" in one_line_error(capsys, "report", tmp_path / "null")


def test_a_directory_that_may_not_be_read_is_told_and_left_out(store, tmp_path, monkeypatch, capsys):
    shutil.copytree(dfa_runs(store)[0].path, tmp_path / "dfa")
    (tmp_path / "locked").mkdir()
    stat = Path.is_file

    def is_file(path: Path) -> bool:
        if path.parent.name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path)

    monkeypatch.setattr(Path, "is_file", is_file)
    assert len(find_sources([tmp_path]).bundles) == 1
    assert "locked/spec.json: Permission denied" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "dfa")
    assert main(["report", str(tmp_path)]) == 2
    assert "no trained network could be read: 1 left out" in capsys.readouterr().err


def test_a_store_shows_what_is_measured_and_measures_only_when_asked(store, tmp_path, monkeypatch, capsys):
    from creditscope.runs import record
    from creditscope.studies import freshb

    root = tmp_path / "store"
    shutil.copytree(store, root)
    runs = dfa_runs(root)
    fewer = dataclasses.replace(freshb.STUDY, specs=lambda preset: [b.spec for b in runs])
    monkeypatch.setattr(freshb, "STUDY", fewer)
    Store(root).write_plan("freshb", "smoke", [b.spec.hash for b in runs])
    Store(root).write_plan("depth", "smoke", [])
    before = stored_studies(root)
    networks = sum(not s.frozen for s in get_study("depth").specs("smoke"))
    assert f"depth (smoke): 0 of {networks} networks are trained" in before.begun

    def cells(found: Stored) -> list[Cell]:
        return [row["fresh_b"] for row in dict((t.name, t) for _, t in found.results)["freshb"].rows]

    assert [(c.known, c.note) for c in cells(before)] == [
        (False, "the full level was not measured; --full measures it")
    ] * len(runs)
    assert not (root / "full").exists()
    calls: list[Any] = []
    fuller = make_report(make_facts(cosines=COSINES), run=runs[0].spec.hash).to_dict()

    def measure(bundle: Any, *rest: Any) -> dict[str, Any]:
        calls.append(bundle.spec)
        return {**fuller, "run": bundle.spec.hash}

    monkeypatch.setattr(record, "measure_full", measure)
    stored_studies(root, full=True)
    assert calls == [b.spec for b in runs]
    (root / "full" / f"{runs[1].spec.hash}.json").unlink()
    assert [c.note.startswith("the full level was not measured") for c in cells(stored_studies(root))] == [False, True]
    assert [r.run for r in full_reports(root)] == [runs[0].spec.hash]
    assert main(["report", str(root), "--html", str(tmp_path / "r.html")]) == 0
    assert 'id="study-freshb-smoke"' in (tmp_path / "r.html").read_text()


def test_means_without_exact_layers_are_without_them(mine):
    """BP has no other layers; FA's ρ and nudging leave out the layer that its cosine leaves out."""
    bp = make_facts(cosines=(1.0,) * 5, exact_layers=(0, 1, 2, 3, 4))
    fa = make_facts(cosines=(0.4, 0.1, 0.1, 0.1, 1.0), exact_layers=(4,))
    means = LayerMeans(
        mean=(0.2, 0.2, 0.2, 0.2, 1.0),
        std=(0.1,) * 5,
        measurable=(256,) * 5,
        deep_mean=0.4,
        deep_mean_without_exact=0.2,
    )
    fuller = full(fa, random.Random(0))
    assert fuller.perturbation is not None
    assert fuller.nudging is not None
    measured = {
        name: getattr(fuller, name).model_copy(update={"credit": means}) for name in ("perturbation", "nudging")
    }
    fa = fuller.model_copy(update=measured)
    for facts, deep, rho in ((bp, "–", None), (fa, "+0.100", "+0.200")):
        by_header = {tuple(t[0]): t[1] for t in tables(mine("template", facts))}
        row = next(dict(zip(h, r, strict=True)) for h, r in by_header.items() if "deep mean without exact layers" in h)
        assert row["deep mean without exact layers"] == deep
        if rho is not None:
            row = next(dict(zip(h, r, strict=True)) for h, r in by_header.items() if "nudging" in h)
            assert (row["ρ"], float(row["nudging"])) == (rho, 0.2)


def test_a_report_without_feedback_is_not_asked_for_the_null_of_feedback(asked):
    for exact, state in (((0, 1, 2, 3, 4), "answered"), ((4,), "author")):
        found = asked(make_facts(cosines=(1.0,) * 5, exact_layers=exact), method_name="bp")["PF04"]
        assert found["state"] == state
        assert ("not applicable" in found["answer"]) == (state == "answered")


def test_entries_of_one_name_are_told_apart_by_the_settings_in_which_they_differ():
    specs = [make_spec({"method": "bp", "lr": lr}) for lr in (0.001, 0.002)] + [make_spec({"method": "ep"})]
    found = _told_apart([Entry(s.label, [], [], [], s) for s in specs] + [Entry("mine", [], [], [])])
    assert [e.label for e in found] == ["bp, lr 0.001", "bp, lr 0.002", specs[2].label, "mine"]


def test_the_blank_form_asks_every_question(capsys):
    form = out(capsys, "checklist")
    assert all(question in form for question in QUESTIONS.values())
    asked = json.loads(out(capsys, "checklist", "--json"))
    assert [q["question"] for q in asked["questions"]] == [QUESTIONS[p.number] for p in PITFALLS]
    assert "\\begin{document}" in out(capsys, "checklist", "--standalone")
