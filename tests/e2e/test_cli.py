"""The command line as a user meets it: real processes' entry point, real files, exit codes, one-line errors."""

import errno
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from creditscope.cli import main
from creditscope.cli.verdict import annotation, exit_code

TINY = ["--dataset", "quadratic", "--width", "8", "--depth", "2", "--epochs", "1", "--batch-size", "2000"]


def one_line_error(capsys, *args: str) -> str:
    assert main(args) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    assert captured.err.startswith("creditscope: ")
    return captured.err


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    root: Path = tmp_path_factory.mktemp("store")
    for name, flags in {
        "dfa": ["--method", "dfa", "--credit-norm", "rms"],
        "dfa-null": ["--method", "dfa", "--credit-norm", "rms", "--train-last", "0"],
        "bp": ["--method", "bp"],
        "bp-null": ["--method", "bp", "--train-last", "0"],
    }.items():
        assert main(["train", *TINY, *flags, "--out", str(root / name)]) == 0
    return root


def test_help_of_every_command_shows_an_example(capsys):
    assert main(["--help"]) == 0
    commands = re.findall(r"^  (\w+)  ", capsys.readouterr().out, re.MULTILINE)
    assert {"demo", "train", "diagnose", "report"} <= set(commands)
    for command in ("demo", "train", "diagnose", "report"):
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
        out = capsys.readouterr().out
        assert f"Example: creditscope {command}" in out
        assert "default" in out


def test_diagnose_finds_nulls_beside_the_bundle_and_ends_with_the_verdict(store, capsys, tmp_path):
    assert main(["diagnose", str(store / "dfa"), "--json", str(tmp_path / "r.json")]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[-1].startswith("VERDICT: ")
    report = json.loads((tmp_path / "r.json").read_text())
    assert [m["null"] for m in report["facts"]["depth"]["margins"]] == ["matched", "bp"]
    accuracy = json.loads((store / "dfa" / "trajectory.jsonl").read_text().splitlines()[-1])["accuracy"]
    null = json.loads((store / "dfa-null" / "trajectory.jsonl").read_text().splitlines()[-1])["accuracy"]
    assert report["facts"]["depth"]["margins"][0]["margin_pp"] == pytest.approx(100 * (accuracy - null))


def test_strict_gives_3_for_a_failure_0_for_a_pass_and_4_otherwise(store, capsys, tmp_path):
    codes = {"pass": 0, "fail": 3, "inconsistent": 4, "inconclusive": 4, "incomplete": 4}
    for name in ("dfa", "bp"):
        main(["diagnose", str(store / name), "--json", str(tmp_path / "r.json")])
        status = json.loads((tmp_path / "r.json").read_text())["verdict"]["status"]
        assert main(["diagnose", str(store / name), "--strict"]) == codes[status]
    alone = tmp_path / "alone"
    shutil.copytree(store / "bp", alone / "bp")
    capsys.readouterr()
    line = "VERDICT: incomplete: D3 depth utility not measured (no failure found so far)"
    assert main(["diagnose", str(alone / "bp"), "--strict", "--github", "--no-profile"]) == 4
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == line
    assert f"::warning title=creditscope incomplete%3A bp::{line}" in out
    assert main(["diagnose", str(alone / "bp"), "--json", str(tmp_path / "r.json")]) == 0
    profile = json.loads((tmp_path / "r.json").read_text())["facts"]["profile"]
    assert profile == json.loads((store / "bp" / "report.json").read_text())["facts"]["profile"]  # as training wrote it
    estimate = f"; estimate {profile['margin']['pp']:+.1f} pp from the checkpoint (no failure found so far)"
    assert capsys.readouterr().out.splitlines()[-1] == line.replace(" (no failure found so far)", estimate)
    assert main(["report", str(alone), "--strict"]) == 4
    assert main(["report", str(alone)]) == 0
    assert main(["diagnose", str(alone / "bp"), "--protocol", "three-check/1.0"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "VERDICT: trustworthy (D3 not measured)"


def test_exit_code_and_annotation_of_every_status():
    codes = {"pass": 0, "fail": 3, "inconsistent": 4, "inconclusive": 4, "incomplete": 4}
    levels = {"pass": "notice", "fail": "error"}

    def made(status: str) -> Any:
        verdict = SimpleNamespace(line="VERDICT: 50 %\nnot a command")
        return SimpleNamespace(status=status, method_name="a, b: c", verdict=verdict)

    for status, code in codes.items():
        assert exit_code([made(status)]) == code
        assert exit_code([made("pass"), made(status)]) == code
        assert exit_code([made("fail"), made(status)]) == 3
        title = f"creditscope {status}%3A a%2C b%3A c"
        wanted = f"::{levels.get(status, 'warning')} title={title}::VERDICT: 50 %25%0Anot a command"
        assert annotation(made(status)) == wanted
    assert exit_code([]) == 4


def test_credit_that_trains_nothing_does_not_count(store, tmp_path):
    """DFA at site input: a_L is measured and no part of Γ; BP's credit is the gradient, of which every layer counts."""
    for name, counting in (("dfa", (0, 1)), ("bp", (0, 1, 2))):
        main(["diagnose", str(store / name), "--full", "--json", str(tmp_path / "r.json")])
        facts = json.loads((tmp_path / "r.json").read_text())["facts"]
        cosines = facts["alignment"]["mean"]
        assert tuple(facts["alignment"]["counting"]) == counting
        assert facts["aggregate"]["headline"] == pytest.approx(sum(cosines[k] for k in counting) / len(counting))
        assert facts["aggregate"]["gamma_all_layers"] == pytest.approx(sum(cosines) / len(cosines))
        rho = facts["perturbation"]["credit"]
        deep = counting[1:]
        assert rho["deep_mean"] == pytest.approx(sum(rho["mean"][k] for k in deep) / len(deep))
        assert rho["deep_mean_all_layers"] == pytest.approx(sum(rho["mean"][1:]) / 2)
        if name == "dfa":
            assert facts["fresh_b"]["layers"] == [1]
            assert facts["concentration"]["top_share"] is None  # two layers are too few
            assert facts["alignment"]["counting_note"] == "a_2 trains nothing and does not count"


def test_a_report_of_bundles_shows_the_gamma_that_was_measured(store, tmp_path):
    assert main(["report", str(store), "--json", str(tmp_path / "all.json")]) == 0
    for group in json.loads((tmp_path / "all.json").read_text()):
        for report in group["reports"]:
            name = "dfa" if group["method"].startswith("dfa") else "bp"
            measured = json.loads((store / name / "report.json").read_text())["facts"]
            assert report["facts"]["aggregate"] == measured["aggregate"]
            assert report["facts"]["aggregate"]["concat"] is not None
            assert report["facts"]["evaluation"] == measured["evaluation"]


def test_four_diagnostic_is_named_in_the_output(store, capsys):
    assert main(["diagnose", str(store / "bp"), "--protocol", "four-diagnostic"]) == 0
    assert "four-diagnostic/" in capsys.readouterr().out


def test_report_prints_one_row_per_method_and_writes_markdown(store, capsys, tmp_path):
    assert main(["report", str(store), "--markdown", str(tmp_path / "t.md")]) == 0
    out = capsys.readouterr().out
    assert "dfa(rms)" in out
    assert "three-check/1.1" in out
    rows = [line for line in (tmp_path / "t.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 2  # header, bp, dfa


def test_a_second_train_of_the_same_run_does_nothing_and_of_another_is_refused(store, capsys):
    before = {p: p.stat().st_mtime_ns for p in (store / "bp").iterdir()}
    assert main(["train", *TINY, "--method", "bp", "--out", str(store / "bp")]) == 0
    assert {p: p.stat().st_mtime_ns for p in (store / "bp").iterdir()} == before
    capsys.readouterr()
    assert "holds another run" in one_line_error(capsys, "train", *TINY, "--seed", "1", "--out", str(store / "bp"))


def test_yaml_and_flags_together_flags_win(capsys, tmp_path):
    (tmp_path / "run.yaml").write_text(
        "method: dfa\ncredit_norm: none\nwidth: 8\ndepth: 2\nepochs: 1\nbatch_size: 2000\n"
    )
    out = tmp_path / "run"
    assert main(["train", "--config", str(tmp_path / "run.yaml"), "--credit-norm", "rms", "--out", str(out)]) == 0
    spec = json.loads((out / "spec.json").read_text())["spec"]
    assert (spec["method"], spec["credit_norm"], spec["width"]) == ("dfa", "rms", 8)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["fly"], "unknown command 'fly'"),
        (["train", "--method", "magic"], "method 'magic' is unknown; choose one of"),
        (["train", "--method", "dfa"], "needs credit_norm"),
        (["train", "--method", "bp", "--credit-norm", "rms"], "do not apply to method bp"),
        (["train", "--speed", "9"], "--speed"),
        (["train", "--credit-norm", "l2"], "Expected one of 'none', 'rms'; see creditscope train --help"),
        (["train", "--epoch", "1"], "Perhaps you meant: --epochs INT; see creditscope train --help"),
        (["train", "--epochs", "abc"], "Error parsing --epochs: 'abc' is no INT; see creditscope train --help"),
        (["train", "--epochs", "-3"], "epochs: must be 1 or more (got -3)\n"),
        (["diagnose"], "bundle"),
        (["train", "--lr", "-1"], "lr: must be more than 0 (got -1.0)"),
        (["train", "--arch", "vit-mini"], "needs images"),
        (["diagnose", "nowhere"], "nowhere is not a directory"),
        (["report", "nowhere"], "nowhere is neither a directory nor a file"),
        (["diagnose", ".", "--protocol", "two-check"], "two-check"),
    ],
)
def test_a_users_mistake_is_one_line_with_code_2(args, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says in one_line_error(capsys, *args)
    assert list(tmp_path.iterdir()) == []  # nothing half-written


def test_a_path_that_may_not_be_read_is_one_line(capsys, monkeypatch):
    def refuse(args):
        raise PermissionError(errno.EACCES, "Permission denied", "locked/spec.json")

    monkeypatch.setattr("creditscope.cli.rules.run", refuse)
    assert "locked/spec.json: Permission denied; check the path" in one_line_error(capsys, "rules")
    for error, says in (
        (OSError(errno.ENOSPC, "No space left on device"), "creditscope: No space left on device\n"),
        (OSError(), "creditscope: OSError\n"),
        (OSError(errno.EIO, "broken\nline", "a\nb"), "creditscope: a b: broken line\n"),
    ):

        def fail(args, error=error):
            raise error

        monkeypatch.setattr("creditscope.cli.rules.run", fail)
        assert one_line_error(capsys, "rules") == says


def test_yaml_with_a_python_tag_or_a_list_is_refused(capsys, tmp_path):
    (tmp_path / "bad.yaml").write_text("method: !!python/object/apply:os.system ['true']\n")
    assert "not plain YAML" in one_line_error(capsys, "train", "--config", str(tmp_path / "bad.yaml"))
    (tmp_path / "list.yaml").write_text("- method\n")
    assert "must hold a mapping" in one_line_error(capsys, "train", "--config", str(tmp_path / "list.yaml"))


def test_damaged_bundles_are_one_line(store, capsys, tmp_path):
    for name, damage, says in [
        ("credit", lambda p: (p / "credit.safetensors").unlink(), "credit.safetensors is missing"),
        ("model", lambda p: (p / "model.safetensors").write_bytes(b"\x08"), "altered"),
        ("newer", lambda p: _edit(p, schema_version=99), "schema version 99"),
    ]:
        shutil.copytree(store / "dfa", tmp_path / name / "dfa")
        damage(tmp_path / name / "dfa")
        assert says in one_line_error(capsys, "diagnose", str(tmp_path / name / "dfa"))


def _edit(bundle: Path, **changes: object) -> None:
    content = json.loads((bundle / "spec.json").read_text())
    (bundle / "spec.json").write_text(json.dumps({**content, **changes}))


def test_demo_trains_nulls_writes_its_files_and_resumes(capsys, tmp_path):
    out = tmp_path / "demo"
    args = ["demo", "--out", str(out), "--epochs", "1", "--seeds", "1", "2", "--workers", "2"]
    assert main(args) == 0
    text = capsys.readouterr().out
    for label in ("bp", "fa(none)", "dfa(rms)", "dfa(none)"):
        assert label in text
    assert len(list((out / "networks").iterdir())) == 2 * 8
    assert len(list((out / "reports").glob("*.json"))) == 2 * 4
    audit = json.loads((out / "audit.json").read_text())
    for entry in audit:
        nulls = {m["null"] for m in entry["reports"][0]["facts"]["depth"]["margins"]}
        assert nulls == {"matched", "bp"}
        assert entry["reports"][0]["facts"]["depth"]["margins"][0]["interval"].startswith("paired t over 2")
    hashes = {p.name: (p / "spec.json").read_bytes() for p in (out / "networks").iterdir()}
    shutil.rmtree(out / "networks" / sorted(hashes)[0])
    assert main(args) == 0
    assert {p.name: (p / "spec.json").read_bytes() for p in (out / "networks").iterdir()} == hashes


def test_version(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"creditscope \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)
