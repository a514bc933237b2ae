"""creditscope claim, creditscope board, and diagnose on a report."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from tests.cli.calls import one_line_error, out

from creditscope.cli import main

from ..board.entries import ROOT, made, stored_report

NEEDED = ["--architecture", "a chain", "--data", "made up", "--code", "mine", "--by", "me"]


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "report.json"
    stored_report().to_json(path)
    return path


def test_new_check_badge_and_build(tmp_path, report, capsys):
    entry = tmp_path / "board" / "entries" / "my-rule"
    assert main(["claim", "new", str(report), "--out", str(entry), *NEEDED]) == 0
    assert "1 of 1 entries hold" in out(capsys, "claim", "check", tmp_path / "board")
    assert main(["claim", "badge", str(entry), "--out", str(tmp_path / "badge.svg")]) == 0
    assert "✓ pass" in (tmp_path / "badge.svg").read_text()
    assert main(["board", "list", str(tmp_path / "board")]) == 0
    assert main(["board", "build", str(tmp_path / "board"), "--out", str(tmp_path / "site")]) == 0
    copied = tmp_path / "site" / "entries" / "my-rule"
    assert {p.name for p in copied.iterdir()} == {"claim.json", "report.json", "badge.svg"}
    assert (copied / "report.json").read_bytes() == (entry / "report.json").read_bytes()


def test_new_says_what_is_missing_and_writes_nothing(tmp_path, report, capsys):
    new = ("claim", "new", report, "--out", tmp_path / "x")
    said = one_line_error(capsys, *new, *NEEDED[:-2])
    assert said == "creditscope: claim new needs --by (who audited: a name or an account)\n"
    assert re.findall(r"--\w+", one_line_error(capsys, *new)) == ["--code", "--architecture", "--data", "--by"]
    one_line_error(capsys, *new, *NEEDED, "--accuracy", "40")
    assert not (tmp_path / "x").exists()


def test_new_asks_on_a_terminal(tmp_path, report, monkeypatch):
    answers = iter(["my code", "a chain", "digits", "me"])
    asked: list[str] = []

    def answer(words: str) -> str:
        asked.append(words)
        return next(answers)

    monkeypatch.setattr("builtins.input", answer)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    assert main(["claim", "new", str(report), "--out", str(tmp_path / "my-rule")]) == 0
    claim = json.loads((tmp_path / "my-rule" / "claim.json").read_text())
    assert (claim["code"]["name"], claim["architecture"], claim["data"]) == ("my code", "a chain", "digits")
    assert claim["evaluations"][0]["by"] == "me"
    assert len(asked) == 4


def test_check_of_a_lie_is_one_line_and_code_3(tmp_path, capsys):
    made(tmp_path / "a-rule")
    made(tmp_path / "b-rule")
    path = tmp_path / "b-rule" / "report.json"
    path.write_text(path.read_text().replace('"pass"', '"fail"', 1))
    assert main(["claim", "check", str(tmp_path), "--github"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("holds ")
    assert lines[1] == (
        "  marked: claimed accuracy 0.900, +59.7 pp: above what was audited, 95 % interval 0.289 to 0.318"
    )
    assert lines[2].startswith("REFUSED ")
    assert "it is another file" in lines[2]
    assert lines[3].startswith("::error title=creditscope claim::")
    assert lines[4].startswith("as stated by the authors, not checked: ")
    assert lines[5:] == ["1 of 2 entries hold"]


def test_seal_after_an_edit_and_add_an_evaluation(tmp_path, report, capsys):
    made(tmp_path / "a-rule")
    path = tmp_path / "a-rule" / "claim.json"
    path.write_text(path.read_text().replace('"a rule"', '"a better name"'))
    assert main(["claim", "check", str(tmp_path)]) == 3
    assert main(["claim", "seal", str(tmp_path / "a-rule")]) == 0
    assert main(["claim", "check", str(tmp_path)]) == 0
    assert main(["claim", "add", str(tmp_path / "a-rule"), str(report), "--by", "a reader"]) == 0
    assert [e["kind"] for e in json.loads(path.read_text())["evaluations"]] == ["audit", "external"]
    capsys.readouterr()
    said = one_line_error(capsys, "claim", "add", tmp_path / "a-rule", path, "--by", "a reader")
    assert "is not a creditscope report: " in said


def test_a_site_is_not_written_over_somebodys_directory(tmp_path, capsys):
    made(tmp_path / "a-rule")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "thesis.tex").write_text("mine")
    said = one_line_error(capsys, "board", "build", tmp_path / "a-rule", "--out", tmp_path / "site")
    assert "not empty and not a board" in said


def test_diagnose_judges_a_report_again(tmp_path, report, capsys):
    assert main(["diagnose", str(report), "--strict"]) == 0
    content = json.loads(report.read_text())
    content["verdict"]["status"] = "fail"
    report.write_text(json.dumps(content))
    assert main(["diagnose", str(report), "--strict"]) == 0  # what the file says of itself is not read
    content["facts"]["depth"] = None
    report.write_text(json.dumps(content))
    assert main(["diagnose", str(report), "--strict"]) == 4
    content["facts"]["scale"]["growth"] *= 100
    report.write_text(json.dumps(content))
    assert "growth is" in one_line_error(capsys, "diagnose", report, "--strict")
    assert main(["diagnose", str(report), "--full"]) == 2


def test_the_scan_of_the_gate_needs_the_standard_library_only(tmp_path):
    """Python without site-packages: no torch, no tyro, no numpy."""
    (tmp_path / "bad.py").write_text("import torch.nn.functional as F\nprint(x.norm(-1))\n")
    (tmp_path / "good.py").write_text("print(1)\n")
    gate = ROOT / ".github" / "actions" / "gate" / "scan.py"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-S", "-I", str(gate), *arguments],
            capture_output=True,
            text=True,
            check=False,
            encoding="utf-8",
        )

    found = run(str(tmp_path / "bad.py"), "--format", "github")
    assert found.returncode == 1, found.stderr
    assert found.stdout.startswith("::warning file=")
    assert "PF01" in found.stdout
    assert run(str(tmp_path / "good.py")).returncode == 0
    assert run(str(tmp_path / "no-such-place")).returncode == 2
