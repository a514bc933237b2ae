"""A bundle is whole and unaltered, or it is one line of error; what is loaded is what was trained."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from tests.refusals import refusal

from creditscope import DiagnosticReport, diagnose, train
from creditscope.data import eval_batches
from creditscope.files import dump_line, plain, read_json, write_atomic
from creditscope.training.bundle import PARTS, load_bundle

from .small import DFA_RMS, FA_NONE, small_quadratic, spec, use


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundles") / "run"
    with pytest.MonkeyPatch.context() as patch:
        use(patch, small_quadratic())
        train(spec(**DFA_RMS, epochs=1), out)
    return out


@pytest.fixture
def bundle(trained: Path, tmp_path: Path) -> Path:
    """A copy to be spoilt."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def rewrite(bundle: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = bundle / "spec.json"
    content = json.loads(path.read_text())
    replaced = change(content)
    path.write_text(json.dumps(content if replaced is None else replaced))


def restamp(bundle: Path, name: str) -> None:
    """Make the stated checksum fit an altered part: what a careful forger, or a bug in an exporter, would do."""
    digest = hashlib.sha256((bundle / name).read_bytes()).hexdigest()
    rewrite(bundle, lambda c: c["files"].update({name: digest}))


# ---- whole ---------------------------------------------------------------------------------------------------------


def test_bundle_holds_the_five_documented_files_and_their_checksums(trained):
    assert sorted(p.name for p in trained.iterdir()) == sorted([*PARTS, "spec.json"])
    stated = json.loads((trained / "spec.json").read_text())
    assert stated["schema_version"] == 1
    assert stated["versions"].keys() == {"creditscope", "torch", "numpy", "safetensors"}
    for name in PARTS:
        assert stated["files"][name] == hashlib.sha256((trained / name).read_bytes()).hexdigest()


def test_loaded_spec_is_the_trained_spec(trained):
    assert load_bundle(trained).spec == spec(**DFA_RMS, epochs=1)


@pytest.mark.parametrize("changes", [DFA_RMS, FA_NONE, {}])
def test_restored_model_and_rule_measure_what_the_written_report_says(tmp_path, monkeypatch, changes):
    ds = small_quadratic()
    use(monkeypatch, ds)
    loaded = load_bundle(train(spec(**changes, epochs=1), tmp_path / "run").path)
    written = DiagnosticReport.from_json(tmp_path / "run/report.json")
    again = diagnose(loaded.model(ds), eval_batches(ds, 2), credit=loaded.rule())
    assert again.facts.alignment == written.facts.alignment
    assert again.facts.scale == written.facts.scale
    assert again.facts.reference == written.facts.reference
    assert again.facts.convention.samples == written.facts.convention.samples


def test_restored_feedback_is_that_of_training_and_not_a_fresh_draw(trained):
    saved = safetensors.torch.load_file(trained / "credit.safetensors")
    rule = load_bundle(trained).rule()
    assert rule.state().keys() == saved.keys() == {"B.0", "B.1", "B.2"}
    assert all(torch.equal(t, saved[name]) for name, t in rule.state().items())


# ---- spoilt --------------------------------------------------------------------------------------------------------


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "altered": lambda data: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:],
    "emptied": lambda data: b"",
    "cut to ten bytes": lambda data: data[:10],
    "cut in half": lambda data: data[: len(data) // 2],
}


@pytest.mark.parametrize("name", [*PARTS, "spec.json"])
@pytest.mark.parametrize("how", ["missing", *DAMAGE])
def test_a_damaged_part_is_named(bundle, name, how):
    if how == "missing":
        (bundle / name).unlink()
    else:
        (bundle / name).write_bytes(DAMAGE[how]((bundle / name).read_bytes()))
    message = refusal(lambda: load_bundle(bundle))
    assert name in message
    assert how == "missing" or name == "spec.json" or "altered" in message
    assert how != "missing" or "missing" in message


@pytest.mark.parametrize("name", ["model.safetensors", "credit.safetensors"])
@pytest.mark.parametrize("data", [b"", b"\x08\0\0\0\0\0\0\0{}", b"\xff" * 64])
def test_broken_tensors_with_a_fitting_checksum_are_one_line_when_read(bundle, name, data):
    (bundle / name).write_bytes(data)
    restamp(bundle, name)
    loaded = load_bundle(bundle)
    message = refusal((lambda: loaded.model(small_quadratic())) if name.startswith("model") else loaded.rule)
    assert name in message


def test_truncated_tensors_are_one_line_without_verification_too(bundle):
    path = bundle / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    loaded = load_bundle(bundle, verify=False)
    assert "model.safetensors" in refusal(lambda: loaded.model(small_quadratic()))


def test_weights_of_another_network_are_refused_by_the_first_that_does_not_fit(bundle):
    safetensors.torch.save_file({"embed.linear.weight": torch.zeros(3, 3)}, bundle / "model.safetensors")
    restamp(bundle, "model.safetensors")
    assert "blocks.0" in refusal(lambda: load_bundle(bundle).model(small_quadratic()))


@pytest.mark.parametrize(
    "state", [{}, {"B.0": torch.zeros(10, 8), "B.2": torch.zeros(10, 8)}, {"B.0": torch.zeros(10, 9)}]
)
def test_credit_state_that_does_not_fit_never_becomes_a_measurement(bundle, state):
    safetensors.torch.save_file(state, bundle / "credit.safetensors")
    restamp(bundle, "credit.safetensors")
    ds = small_quadratic()

    def measure() -> None:
        loaded = load_bundle(bundle)
        diagnose(loaded.model(ds), eval_batches(ds, 2), credit=loaded.rule())

    refusal(measure)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.update(schema_version=2), "upgrade creditscope"),
        (lambda c: c.update(schema_version="1"), "schema_version '1'"),
        (lambda c: c.update(schema_version=0), "schema_version 0"),
        (lambda c: c.pop("schema_version") and None, "schema_version None"),
        (lambda c: c["spec"].update(seed=43), "altered"),
        (lambda c: c["spec"].update(penalty=0.5), "altered"),
        (lambda c: c["spec"].update(unheard_of=1), "unknown field"),
        (lambda c: c["spec"].update(method="nope"), "was altered"),
        (lambda c: c["spec"].update(method="../nope"), "'../nope' is unknown"),
        (lambda c: c["spec"].update(width=-1), "width"),
        (lambda c: c["spec"].update(dataset=["quadratic"]), "dataset"),
        (lambda c: c["spec"].update(arch={"a": 1}), "arch"),
        (lambda c: c["spec"].update({"a\nb": 1}), "unknown field"),
        (lambda c: c.update(spec_hash="0" * 64), "altered"),
        (lambda c: c.pop("spec") and None, "no 'spec' entry"),
        (lambda c: c.update(spec=[]), "no 'spec' entry"),
        (lambda c: c.pop("files") and None, "not finished"),
        (lambda c: c["files"].pop("credit.safetensors") and None, "credit.safetensors is missing"),
        (lambda c: c["files"].update({"../../etc/passwd": "0"}), "outside the bundle"),
        (lambda c: c["files"].update({"/etc/passwd": "0"}), "outside the bundle"),
        (lambda c: c["files"].update({"..": "0"}), ".."),
        (lambda c: c["files"].update({"extra.safetensors": "0"}), "extra.safetensors"),
        (lambda c: c["files"].update({"report.json": 3}), "report.json"),
        (lambda c: c.update(versions=3), "versions"),
        (lambda c: c.update(versions="ab"), "versions"),
        (lambda c: [c], "no 'spec' entry"),
        (lambda c: 3, "no 'spec' entry"),
    ],
)
def test_a_spec_file_that_does_not_hold_is_one_line(bundle, change, says):
    rewrite(bundle, change)
    assert says in refusal(lambda: load_bundle(bundle))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[" * 100_000,
        b'{"a": 1' + b"0" * 5000 + b"}",
        "\ufeff{}".encode(),
        b'"\\ud800"',
        b'{"a": "\xff"}',
    ],
    ids=range(8),
)
def test_a_spec_file_that_is_not_json_of_a_bundle_is_one_line(bundle, text):
    (bundle / "spec.json").write_bytes(text)
    assert "spec.json" in refusal(lambda: load_bundle(bundle))


def test_paths_that_are_no_bundle_are_one_line(tmp_path, trained):
    assert "does not exist" in refusal(lambda: load_bundle(tmp_path / "nothing"))
    assert "not a directory" in refusal(lambda: load_bundle(trained / "spec.json"))
    assert "spec.json is missing" in refusal(lambda: load_bundle(tmp_path))


def test_broken_trajectory_is_one_line(bundle):
    (bundle / "trajectory.jsonl").write_text('{"epoch": 0}\n{"epo')
    restamp(bundle, "trajectory.jsonl")
    assert "trajectory.jsonl" in refusal(lambda: load_bundle(bundle).trajectory)


# ---- files ---------------------------------------------------------------------------------------------------------


def test_numbers_that_json_lacks_become_words_at_any_depth():
    line = {"a": math.nan, "b": [math.inf, {"c": (-math.inf, 1.5)}], "d": None}
    assert plain(line) == {"a": "NaN", "b": ["Infinity", {"c": ["-Infinity", 1.5]}], "d": None}
    assert json.loads(dump_line(line), parse_constant=pytest.fail) == plain(line)


def test_atomic_write_replaces_the_file_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert "cannot write" in refusal(lambda: write_atomic(tmp_path / "no/such/file", b""))


def test_json_over_the_size_limit_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr("creditscope.files.MAX_JSON", 10)
    (tmp_path / "big.json").write_text("[1, 2, 3, 4]")
    assert "12 bytes" in refusal(lambda: read_json(tmp_path / "big.json", "report"))
