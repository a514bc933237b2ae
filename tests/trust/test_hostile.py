"""A slice of the fuzzer, and each attack by name."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
import torch
from tests.refusals import refusal
from tests.runs.driver import tiny_specs
from tests.trust.fuzz import KINDS, Good, fuzz, resign
from tests.trust.hostile import hostile_bytes

from creditscope import CreditscopeError, DiagnosticReport, diagnose, load_bundle
from creditscope.cli.train import MAX_CONFIG, read_yaml
from creditscope.data.cifar_pickle import load_pickle
from creditscope.files import MAX_JSON, read_tensors, write_atomic
from creditscope.runs.store import Store
from creditscope.training.bundle import read_trajectory
from creditscope.training.loop import train


def test_a_few_hundred_damaged_files_of_every_kind_are_read_or_refused(tmp_path):
    done = fuzz(350, 60, tmp_path, seed=1)
    assert done.offences == []
    assert {kind for kind, _ in done.counts} == set(KINDS)
    assert sum(n for (_, what), n in done.counts.items() if what == "refused") > 100


@pytest.mark.parametrize("k", range(len(hostile_bytes(Path("x")))))
def test_no_reader_runs_or_swallows_an_attack(k, tmp_path):
    canary, path = tmp_path / "canary", tmp_path / "file"
    path.write_bytes(hostile_bytes(canary)[k])
    for read in (read_yaml, load_pickle, read_trajectory, DiagnosticReport.from_json, lambda p: read_tensors(p, "x")):
        with contextlib.suppress(CreditscopeError):
            read(path)
    assert not canary.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def refused(read, path, data, says):
    path.write_bytes(data)
    assert says in refusal(read, path)


def test_yaml_aliases_are_refused_before_they_multiply(tmp_path):
    refused(read_yaml, tmp_path / "c.yaml", b"width: &a [x]\ndepth: [*a, *a]", "aliases")


def test_a_config_is_small_and_its_numbers_are_too(tmp_path):
    refused(read_yaml, tmp_path / "c.yaml", b"#" * (MAX_CONFIG + 1), "larger than")
    refused(read_yaml, tmp_path / "c.yaml", b"seed: " + b"9" * 5000, "not plain YAML")
    refused(read_yaml, tmp_path / "c.yaml", b"seed: 2020-13-41", "not plain YAML")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"\x80\x04]\x94r\xff\xff\xff\x7f.", "LONG_BINPUT 2147483647"),
        (b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b".", "FRAME 1099511627776"),
        (b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".", "not a readable CIFAR pickle"),
        (b"cnumpy\nndarray\n((L1099511627776L\ntS'O'\ntR.", "not a readable CIFAR pickle"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(L9999999999L\ntS'b'\ntR.", "without its content"),
    ],
)
def test_sizes_that_a_pickle_declares_are_checked_before_anything_is_made(data, match, tmp_path):
    refused(load_pickle, tmp_path / "p", data, match)


def test_a_trajectory_is_objects_of_limited_size(tmp_path, monkeypatch):
    path = tmp_path / "t.jsonl"
    refused(read_trajectory, path, b"[" * 100_000, "cannot be read as JSON lines")
    refused(read_trajectory, path, b"[1]\n", "not a trajectory")
    refused(read_trajectory, path, b"", "not a trajectory")
    monkeypatch.setattr("creditscope.training.bundle.MAX_JSON", 10)
    refused(read_trajectory, path, b'{"epoch": 0}', "more than")
    assert MAX_JSON > 10


def report() -> dict:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    return diagnose(model, [(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))], blocks=["0", "1"]).to_dict()


def test_a_report_whose_lists_do_not_fit_its_depth_is_one_line():
    data = report()
    data["facts"]["reference"]["per_sample"] = []
    assert "reference.per_sample has 0 entries for 3 layers" in refusal(lambda: DiagnosticReport.from_dict(data))


def test_a_report_without_one_of_its_checks_is_one_line():
    data = report()
    del data["verdict"]["checks"][2]
    assert "checks must be D1, D2, D3 and C" in refusal(lambda: DiagnosticReport.from_dict(data))


def test_files_that_a_bundle_names_are_inside_it(tmp_path):
    good = Good(tmp_path, tmp_path / "canary")
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    spec = good.bundle / "spec.json"
    spec.write_text(spec.read_text().replace('"report.json"', '"../../../outside"'))
    resign(good.bundle)
    refusal(load_bundle, good.bundle)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    write_atomic(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert "No space left" in refusal(lambda: write_atomic(path, b"new"))
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


def test_links_in_a_store_lead_nothing_out_of_it(tmp_path):
    """A lock, a temporary file or a run in progress that is a link: what it points to stays as it is."""
    spec, out = tiny_specs(1)[0], tmp_path / "runs" / "r"
    out.parent.mkdir()
    victim, elsewhere = tmp_path / "victim", tmp_path / "elsewhere"
    victim.write_bytes(b"mine")
    elsewhere.mkdir()
    (out.parent / ".r.lock").symlink_to(victim)
    assert "cannot create" in refusal(lambda: train(spec, out))
    (out.parent / ".r.lock").unlink()
    (out.parent / ".r.partial").symlink_to(elsewhere)
    assert "is a symbolic link" in refusal(lambda: train(spec, out))
    (tmp_path / "report.json").symlink_to(victim)
    write_atomic(tmp_path / "report.json", b"theirs")  # the link is replaced, never followed
    assert (tmp_path / "report.json").read_bytes() == b"theirs"
    assert victim.read_bytes() == b"mine"
    assert list(elsewhere.iterdir()) == []


def test_a_link_as_a_run_is_removed_and_not_what_it_points_to(tmp_path):
    store = Store(tmp_path / "store", create=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "thesis").write_bytes(b"years of work")
    (store.root / "runs" / "abc").symlink_to(outside)
    with contextlib.suppress(CreditscopeError):
        store.remove("abc")
    assert (outside / "thesis").read_bytes() == b"years of work"
    assert all(row["problem"] for row in store.rows())
