"""`creditscope report` from a user's side: my own report beside other networks, and runs whose rule is not at hand."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.cli.calls import one_line_error, out
from tests.training.small import small_quadratic, spec, use

from creditscope import credit_rule
from creditscope.cli import main
from creditscope.credit import registry
from creditscope.protocol.report import make_report
from creditscope.training.loop import train

from ..protocol.factory import make_facts


@pytest.fixture
def mine(tmp_path) -> Path:
    report = make_report(make_facts(), headline_acc=0.61, n_test=1000, method_name="my network", notes="my data, L = 3")
    report.to_json(tmp_path / "my.json")
    return tmp_path / "my.json"


def words(text: str) -> str:
    return " ".join(text.split())


def test_my_report_stands_in_the_table_in_the_page_and_in_its_tiles(store, mine, tmp_path, capsys):
    page_file = tmp_path / "page.html"
    files = {"json": tmp_path / "all.json", "markdown": tmp_path / "all.md", "latex": tmp_path / "all.tex"}
    flags = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    text = out(capsys, "report", mine, store, "--html", page_file, *flags)
    assert "my network" in words(text)
    assert "0.610" in text
    page = page_file.read_text()
    table = re.search(r'<table class="audit".*?</table>', page, re.DOTALL)
    assert table is not None
    assert table[0].count('<th role="rowheader"') == 3
    assert "my network" in table[0]
    assert "my data, L = 3" in table[0]
    linked = re.findall(r'href="#(run-\w+)"', table[0])
    packed = " ".join(re.findall(r'data-networks="([^"]*)"', page)).split()
    assert all(packed.count(key) == 1 for key in linked)
    assert len(linked) == 3
    tiles = re.findall(r"(\d+) of (\d+)", page.split("<table")[0])
    assert tiles
    assert {total for _, total in tiles} == {"3"}
    assert [entry["method"] for entry in json.loads(files["json"].read_text())][-1] == "my network"
    for kind in ("markdown", "latex"):
        assert "my network" in files[kind].read_text()


def test_reports_alone_and_a_directory_of_them_make_a_table(mine, tmp_path, capsys):
    reports = tmp_path / "reports"
    reports.mkdir()
    shutil.copy(mine, reports / "a.json")
    other = make_report(make_facts(), headline_acc=[0.5, 0.52], method_name="their network")
    other.to_json(reports / "b.json")
    (reports / "notes.json").write_text('{"todo": "write the paper"}')
    assert main(["report", str(reports), "--html", str(tmp_path / "page.html")]) == 0
    printed = capsys.readouterr()
    assert "my network" in words(printed.out)
    assert "their network" in words(printed.out)
    assert "0.510 ± 0.014" in words(printed.out)
    assert "left out" in printed.err
    assert "notes.json" in printed.err
    # what `report --json` wrote is read back as the same rows
    first = out(capsys, "report", reports, "--json", tmp_path / "all.json")
    assert out(capsys, "report", tmp_path / "all.json") == first


def test_a_directory_without_bundles_and_reports_is_one_line(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert "holds no bundle and no report" in one_line_error(capsys, "report", tmp_path / "empty")


def test_stored_facts_need_no_rule_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(registry, "_rules", dict(registry._rules))
    monkeypatch.setattr(registry, "_origin", dict(registry._origin))

    @credit_rule("on-my-laptop")
    def push(hiddens, logits, y):
        return [h.sign() for h in hiddens]

    use(monkeypatch, small_quadratic())
    for last in (None, 0):
        train(spec(method="on-my-laptop", credit_norm="none", train_last=last), tmp_path / "runs" / f"{last}")
    del registry._rules["on-my-laptop"]
    assert main(["report", str(tmp_path / "runs"), "--html", str(tmp_path / "page.html")]) == 0
    printed = capsys.readouterr()
    assert "left out" not in printed.err
    assert "on-my-laptop" in words(printed.out)
    assert "matched" in printed.out  # its null was found
    assert main(["diagnose", str(tmp_path / "runs" / "None")]) == 2  # to measure it, the rule is needed
    assert "method 'on-my-laptop' is unknown" in capsys.readouterr().err


def test_a_report_of_bundles_shows_the_gamma_that_was_measured(store, tmp_path):
    assert main(["report", str(store), "--json", str(tmp_path / "all.json")]) == 0
    for group in json.loads((tmp_path / "all.json").read_text()):
        for report in group["reports"]:
            name = "dfa" if group["method"].startswith("dfa") else "bp"
            measured = json.loads((store / name / "report.json").read_text())["facts"]
            assert report["facts"]["aggregate"] == measured["aggregate"]
            assert report["facts"]["aggregate"]["concat"] is not None
            assert report["facts"]["evaluation"] == measured["evaluation"]


def test_report_prints_one_row_per_method_and_writes_markdown(store, capsys, tmp_path):
    assert main(["report", str(store), "--markdown", str(tmp_path / "t.md")]) == 0
    text, err = capsys.readouterr()
    assert err == f"creditscope: written: {tmp_path / 't.md'}\n"
    assert "dfa(rms)" in text
    assert "three-check/1.1" in text
    rows = [line for line in (tmp_path / "t.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 2  # header, bp, dfa


def test_diff_starts_with_both_verdicts_and_names_what_only_one_has(store, capsys, tmp_path):
    main(["diagnose", str(store / "bp"), "--json", str(tmp_path / "one.json"), "--no-profile"])
    main(["diagnose", str(store / "dfa"), "--full", "--json", str(tmp_path / "two.json")])
    content = json.loads((tmp_path / "one.json").read_text())
    (tmp_path / "one.json").write_text(json.dumps({**content, "method_name": ""}))
    first, second, *rest = out(capsys, "diff", tmp_path / "one.json", tmp_path / "two.json").splitlines()
    assert first == f"a: one ({tmp_path / 'one.json'}): {content['verdict']['line']}"
    assert second.startswith(f"b: dfa(rms) ({tmp_path / 'two.json'}): VERDICT: ")
    text = "\n".join(rest)
    assert "only in b: " in text
    assert "readout of the twin's h_l" in text.partition("only in b: ")[2]
    for raw in ("top_share", "deep_cosine", "twin_readout", "reference_norm"):
        assert raw not in text
    assert main(["diff", str(tmp_path / "one.json"), str(tmp_path / "one.json")]) == 0
    assert capsys.readouterr().out.splitlines()[2] == "Nothing that both reports hold has changed."
