"""creditscope diagnose"""

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.cli.calls import out

from creditscope.cli import main

from .calls import TINY, one_line_error


def test_diagnose_finds_nulls_beside_the_bundle_and_ends_with_the_verdict(store, capsys, tmp_path):
    lines = out(capsys, "diagnose", store / "dfa", "--json", tmp_path / "r.json").strip().splitlines()
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
    text = capsys.readouterr().out.splitlines()
    assert text[-1] == line
    assert f"::warning title=creditscope incomplete%3A bp::{line}" in text
    assert main(["diagnose", str(alone / "bp"), "--json", str(tmp_path / "r.json")]) == 0
    profile = json.loads((tmp_path / "r.json").read_text())["facts"]["profile"]
    assert profile == json.loads((store / "bp" / "report.json").read_text())["facts"]["profile"]  # as training wrote it
    estimate = f"; estimate {profile['margin']['pp']:+.1f} pp from the checkpoint (no failure found so far)"
    assert capsys.readouterr().out.splitlines()[-1] == line.replace(" (no failure found so far)", estimate)
    assert main(["report", str(alone), "--strict"]) == 4
    assert main(["report", str(alone)]) == 0
    assert main(["diagnose", str(alone / "bp"), "--protocol", "three-check/1.0"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "VERDICT: trustworthy (D3 not measured)"


def test_a_network_judged_alone_names_what_judges_it_with_its_seeds(store, capsys, tmp_path):
    assert "Judged alone" not in out(capsys, "diagnose", store / "bp", "--no-profile")  # there is no other seed
    shutil.copytree(store, tmp_path / "runs")
    assert main(["train", *TINY, "--method", "bp", "--seed", "7", "--out", str(tmp_path / "runs" / "other")]) == 0
    line, first, *_ = out(capsys, "diagnose", tmp_path / "runs" / "bp", "--no-profile").splitlines()
    assert line == f"Judged alone. With seed 7 beside it: creditscope report {tmp_path / 'runs'}"
    assert first.startswith("VERDICT: ")


def test_a_directory_of_bundles_is_told_to_be_one(store, capsys):
    said = one_line_error(capsys, "diagnose", str(store))
    assert f"{store} holds 4 bundles (bp, bp-null, dfa, dfa-null): give one of them" in said
    assert f"creditscope report {store}" in said


def test_a_null_has_no_verdict(store, capsys, tmp_path):
    accuracy = json.loads((store / "dfa-null" / "trajectory.jsonl").read_text().splitlines()[-1])["accuracy"]
    text = out(capsys, "diagnose", store / "dfa-null")
    assert text.startswith(f"This is a null (random-blocks baseline): accuracy {accuracy:.3f}. It has no verdict")
    assert "VERDICT" not in text
    assert "S1" not in text
    assert "mean ‖h_l‖" in text
    long = out(capsys, "diagnose", store / "dfa-null", "--long", "--strict", "--github")
    assert long.startswith("This is a null")
    assert "::" not in long
    assert not re.search("VERDICT|S1|D3|From the claim|Warnings", long)
    assert len(long.splitlines()) > len(text.splitlines())
    null = ["--method", "dfa", "--credit-norm", "rms", "--train-last", "0"]
    assert main(["train", *TINY, *null, "--out", str(store / "dfa-null")]) == 0  # finished: as it was
    said = capsys.readouterr()
    assert "VERDICT" not in said.out
    assert said.err.rstrip().endswith(f"next: creditscope diagnose {store / 'dfa'}")
    assert main(["train", *TINY, *null, "--out", str(tmp_path / "alone")]) == 0
    assert "next: train the network that it is the baseline of" in " ".join(capsys.readouterr().err.split())


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


def test_four_diagnostic_is_named_in_the_output(store, capsys):
    assert "four-diagnostic/" in out(capsys, "diagnose", store / "bp", "--protocol", "four-diagnostic")


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


def test_a_run_that_was_interrupted_is_not_called_missing(tmp_path, capsys):
    (tmp_path / ".dfa.partial").mkdir()
    assert "is not trained to its end; run the same" in one_line_error(capsys, "diagnose", str(tmp_path / "dfa"))
