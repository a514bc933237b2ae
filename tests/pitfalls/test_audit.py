"""What the files of a bundle can tell: whole, damaged, alone and among neighbours."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.calls import one_line_error, out

from creditscope.cli import main
from creditscope.credit.registry import make_rule
from creditscope.files import dump_line, read_json, sha256_file, write_tensors
from creditscope.measure.sweep import sweep
from creditscope.models.resmlp import ResMLP
from creditscope.pitfalls.evidence import audit_bundles
from creditscope.protocol.report import DiagnosticReport, make_report
from creditscope.stream.interface import make_stream
from creditscope.training.bundle import write_spec
from creditscope.training.spec import RunSpec


@cache
def measured(method: str) -> tuple[Any, Any, DiagnosticReport]:
    """A small untrained network, its rule, and the basic report."""
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(256, 20, generator=rng), torch.randint(10, (256,), generator=rng)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = ResMLP(20, 10, width=8, depth=2)
    rule = make_rule(method)
    rule.setup(make_stream(model, x, len(x)), 10, rng)
    report = make_report(sweep(model, [(x[:128], y[:128]), (x[128:], y[128:])], rule), headline_acc=0.3, n_test=256)
    return model, rule, report


def bundle(root: Path, method: str = "dfa", seed: int = 42, **change: Any) -> Path:
    norm = {} if method == "bp" else {"credit_norm": "none"}
    spec = RunSpec(**{"method": method, **norm, "width": 8, "depth": 2, "epochs": 1, "seed": seed, **change})
    path = root / spec.slug
    path.mkdir(parents=True)
    model, rule, report = measured(method)
    write_tensors(path / "model.safetensors", model.state_dict())
    write_tensors(path / "credit.safetensors", rule.state())
    (path / "trajectory.jsonl").write_bytes(dump_line({"epoch": 1, "accuracy": 0.3}))
    report.to_json(path / "report.json")
    write_spec(path, spec, with_files=True)
    return path


def alter(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the facts of the stored report and set the checksum right."""
    content = read_json(path / "report.json", "report")
    change(content["facts"])
    (path / "report.json").write_text(json.dumps(content))
    spec = read_json(path / "spec.json", "spec")
    spec["files"]["report.json"] = sha256_file(path / "report.json")
    (path / "spec.json").write_text(json.dumps(spec))


def answers(path: Path) -> dict[int, tuple[str, str]]:
    (one,) = audit_bundles(path)
    assert all(answer.sentence and "\n" not in answer.sentence for _, answer in one.answers)
    return {p.number: (answer.status, answer.sentence) for p, answer in one.answers}


def test_a_whole_bundle_alone(tmp_path: Path) -> None:
    got = answers(bundle(tmp_path))
    assert len(got) == 15
    assert {k for k, (status, _) in got.items() if status == "clear"} >= {1, 2, 3, 7, 8, 10, 11, 13, 14}
    assert [got[k][0] for k in (4, 9, 12, 15)] == ["cannot be told", "cannot be told", "found", "cannot be told"]
    assert "fresh-B" in got[4][1]
    assert "no null (random-blocks baseline)" in got[12][1]


def test_backpropagation(tmp_path: Path) -> None:
    got = answers(bundle(tmp_path, "bp"))
    assert got[4][0] == got[7][0] == got[5][0] == got[6][0] == "clear"


def test_nulls_beside_it(tmp_path: Path) -> None:
    path = bundle(tmp_path)
    null = bundle(tmp_path, train_last=0)
    got = answers(path)
    assert got[12] == ("clear", "the null is beside it (matched)")
    assert got[9][0] == "clear"
    assert null.name in got[9][1]
    assert answers(null)[12][0] == "clear"
    shutil.rmtree(null)
    bundle(tmp_path, train_last=0, epochs=2, schedule_epochs=2)
    got = answers(path)
    assert got[9][0] == "found"
    assert "epochs 1 against 2" in got[9][1]
    assert got[12][0] == "found"


def test_seeds_of_a_group(tmp_path: Path) -> None:
    path = bundle(tmp_path, seed=1)
    bundle(tmp_path, seed=2)
    assert answers(path)[15][0] == "clear"
    for seed in (1, 2, 3):
        bundle(tmp_path, "bp", seed=seed)
    status, sentence = answers(path)[15]
    assert status == "found"
    assert sentence.endswith("3")
    assert "bp" in sentence


def test_missing_and_empty_credit(tmp_path: Path) -> None:
    path = bundle(tmp_path)
    write_tensors(path / "credit.safetensors", {})
    assert answers(path)[7][0] == "found"
    (path / "credit.safetensors").unlink()
    (one,) = audit_bundles(path)
    assert "credit.safetensors is missing" in one.problem
    assert answers(path)[7][0] == "found"


def test_a_broken_report(tmp_path: Path) -> None:
    path = bundle(tmp_path)
    (path / "report.json").write_text("{")
    got = answers(path)
    assert got[2] == ("cannot be told", "report.json cannot be read")
    assert sum(status == "cannot be told" for status, _ in got.values()) >= 10


def test_other_samples(tmp_path: Path) -> None:
    path, other = bundle(tmp_path, seed=1), bundle(tmp_path, seed=2)
    alter(other, lambda f: f["convention"].update(samples="feedbeef"))
    status, sentence = answers(path)[8]
    assert status == "found"
    assert other.name in sentence


FOUND: dict[int, Callable[[dict[str, Any]], None]] = {
    2: lambda f: f["reference"].update(batch_mean_128=[1e-4, 1e-6, 1e-9]),
    3: lambda f: f["convention"].update(dtype="float16"),
    5: lambda f: f["aggregate"].update(headline=0.1, norm_weighted=-0.1),
    6: lambda f: f["concentration"].update(top_layer=0, top_share=0.5 / 0.52),  # of cosines .5, .01, .01
    7: lambda f: f["alignment"].update(mean=[1.0, 1.0, 1.0]),
    10: lambda f: f["convention"].update(mode="train"),
    11: lambda f: f["scale"].update(mean=[1.0, 1.0, 1.0], median=[1.0, 1.0, 1.0]),
    13: lambda f: f["convention"].update(reduction="mean"),
    14: lambda f: f["reference"].update(zero_samples=[0, 7, 0]),
}


@pytest.mark.parametrize("number", FOUND)
def test_found_in_the_report(tmp_path: Path, number: int) -> None:
    path = bundle(tmp_path)
    same = dict.fromkeys(("headline", "concat", "norm_weighted", "flattened", "clamped_128"), 0.2)
    alter(path, lambda f: f["alignment"].update(mean=[0.2, 0.2, 0.2]))
    alter(path, lambda f: f["aggregate"].update(same))
    assert answers(path)[number][0] == "clear"
    alter(path, FOUND[number])
    got = answers(path)
    assert got[number][0] == "found", got[number]


def test_fresh_b_in_the_report(tmp_path: Path) -> None:
    path = bundle(tmp_path)
    null = {"trained": 0.3, "mean": 0.0, "std": 0.03, "z": 10.0, "draws": [0.0, 0.1], "layers": [1, 2], "seed": 1}
    alter(path, lambda f: f.update(fresh_b=null))
    assert answers(path)[4][0] == "clear"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bundle(tmp_path / "runs")
    told = out(capsys, "pitfalls", "audit", path)
    assert all(words in told for words in ("dfa(none)", "clear, ", *(f"PF{k:02d}" for k in range(1, 16))))
    assert main(["pitfalls", "audit", str(path), "--strict"]) == 3
    capsys.readouterr()
    bundle(tmp_path / "runs", "bp")
    content = json.loads(out(capsys, "pitfalls", "audit", tmp_path / "runs", "--format", "json"))
    assert len(content) == 2
    assert len(content[0]["answers"]) == 15
    assert {a["status"] for a in content[0]["answers"]} <= {"clear", "found", "cannot be told"}


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_text("x")])
def test_no_bundle_is_one_line(tmp_path: Path, make: Callable[[Path], Any], capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "x")
    err = one_line_error(capsys, "pitfalls", "audit", tmp_path / "x")
    assert err.startswith("creditscope: ")
    assert err.count("\n") == 1
