"""What several processes do at once, and what a killed one leaves: claims, new files, locks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from filelock import Timeout
from tests.refusals import refusal

from creditscope import CreditscopeError
from creditscope.files import claim_directory, is_locked, locked, write_atomic, write_new
from creditscope.runs.store import Store


def claim(root: Path) -> None:
    claim_directory(root, "mark.json", b"{}", "a thing", own=("runs",))


@pytest.mark.parametrize("left", [[], ["runs"], [".mark.json.77.tmp", "runs"], [".mark.json.77-00ff.tmp"]])
def test_what_a_killed_claim_leaves_does_not_stop_the_next(left, tmp_path):
    for name in left:
        (tmp_path / name).mkdir() if name == "runs" else (tmp_path / name).write_bytes(b"{")
    claim(tmp_path)
    claim(tmp_path)
    assert (tmp_path / "mark.json").read_bytes() == b"{}"


@pytest.mark.parametrize("name", ["thesis.tex", ".bashrc", "mark.json.bak"])
def test_a_directory_that_holds_somebodys_files_is_not_claimed(name, tmp_path):
    (tmp_path / name).write_text("x")
    assert f"not empty and not a thing (it holds {name})" in refusal(claim, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_claim_that_another_finishes_between_two_looks_holds(tmp_path, monkeypatch):
    """The other makes the marker and fills the directory while we look at it: its files are not taken for a stranger's."""
    real = os.listdir

    def listdir(path):
        claim_by_the_other = [*real(path), "index.sqlite"]
        (tmp_path / "mark.json").write_bytes(b"{}")
        return claim_by_the_other

    monkeypatch.setattr(os, "listdir", listdir)
    claim(tmp_path)


def test_threads_that_make_one_store_at_once_all_have_it(tmp_path):
    failed = []

    def make(gate: threading.Barrier, root: Path) -> None:
        gate.wait(30)
        try:
            Store(root, create=True)
        except CreditscopeError as error:
            failed.append(str(error))

    for k in range(20):
        gate = threading.Barrier(8)
        threads = [threading.Thread(target=make, args=(gate, tmp_path / f"{k}")) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert failed == []


def test_a_new_file_is_never_written_over(tmp_path):
    write_new(tmp_path / "a", b"first")
    assert "exists already" in refusal(lambda: write_new(tmp_path / "a", b"second"))
    assert (tmp_path / "a").read_bytes() == b"first"
    write_atomic(tmp_path / "a", b"third")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"third"}


HOLD = """
import sys, time
from filelock import FileLock
lock = FileLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
time.sleep(600)
"""


def test_a_lock_excludes_ends_with_its_process_and_leaves_no_file(tmp_path):
    path = tmp_path / ".x.lock"
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    assert is_locked(path)
    with pytest.raises(CreditscopeError, match="busy"), locked(path, CreditscopeError("busy"), wait=0.1):
        pass
    process.kill()
    process.wait(60)
    process.stdout.close()
    assert path.exists()  # killed: its file stays
    assert not is_locked(path)
    assert not path.exists()
    with locked(path, CreditscopeError("busy")):
        assert is_locked(path)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CreditscopeError, match="cannot create"), locked(tmp_path / "link", CreditscopeError("busy")):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_directory_that_takes_no_lock_is_not_called_busy(tmp_path, monkeypatch):
    """filelock answers both with a timeout; /proc is such a directory."""

    def acquire(*_, **__):
        raise Timeout("")

    monkeypatch.setattr("creditscope.files.FileLock.acquire", acquire)
    with pytest.raises(CreditscopeError, match=r"cannot create .*choose another directory"):
        locked(tmp_path / "none" / "lock", CreditscopeError("busy")).__enter__()
    (tmp_path / "lock").touch()
    with pytest.raises(CreditscopeError, match=r"^busy$"):
        locked(tmp_path / "lock", CreditscopeError("busy")).__enter__()
