"""The store: index and directories, failures, what is corrupted, newer or read-only."""

from __future__ import annotations

import errno
import json
import shutil
import sqlite3
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.refusals import refusal
from tests.runs.driver import Inline, tiny_specs

from creditscope.runs.execute import run_store, train_one
from creditscope.runs.executors import make_executor
from creditscope.runs.store import INDEX_VERSION, Store
from creditscope.training import loop
from creditscope.training.loop import train


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    root: Path = tmp_path_factory.mktemp("finished") / "store"
    assert run_store(tiny_specs(1), Store(root, create=True), Inline()) == []
    return root


@pytest.fixture
def store(finished, tmp_path) -> Store:
    shutil.copytree(finished, tmp_path / "store")
    return Store(tmp_path / "store")


def test_index_equals_its_rebuild_and_the_specs(store):
    before = store.rows()
    assert {r["hash"] for r in before} == {s.hash for s in tiny_specs(1)}
    assert all(r["problem"] == "" and 0 <= r["accuracy"] <= 1 for r in before)
    store.rebuild()
    assert store.rows() == before


@pytest.mark.parametrize("content", [b"", b"this is no database, whatever its name says" * 100])
def test_index_that_is_empty_or_broken_is_rebuilt(store, content):
    before = store.rows()
    for p in store.root.glob("index.sqlite*"):
        p.unlink()
    (store.root / "index.sqlite").write_bytes(content)
    assert store.rows() == before


def test_index_with_a_broken_page_or_without_its_table_gives_the_same_rows(store):
    before = store.rows()
    path = store.root / "index.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("VACUUM")
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(bytes(data))
    assert store.rows() == before
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE IF EXISTS runs")
        db.execute(f"PRAGMA user_version={INDEX_VERSION}")
    assert store.rows() == before


def test_index_of_another_version_is_rebuilt(store):
    before = store.rows()
    with sqlite3.connect(store.root / "index.sqlite") as db:
        db.execute("PRAGMA user_version=99")
    assert store.rows() == before


def test_removed_run_leaves_the_index_and_its_side_files(store):
    key = store.rows()[0]["hash"]
    store.cached(key, lambda: {"a": 1})
    store.remove(store.find(key[:8]))
    assert key not in {r["hash"] for r in store.rows()}
    assert not list(store.root.rglob(f"*{key}*"))


def test_newer_store_is_one_line(store):
    (store.root / "store.json").write_text(json.dumps({"schema_version": 99}))
    assert "schema version 99" in refusal(lambda: Store(store.root))


def test_directory_that_is_no_store_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "not a store" in refusal(lambda: Store(tmp_path, create=True))
    assert "not a store (it has no store.json)" in refusal(lambda: Store(tmp_path))
    assert "not a store" in refusal(lambda: Store(tmp_path / "nothing"))


def test_corrupted_run_is_reported_the_others_go_on_and_nothing_is_lost(store):
    broken, gone, *_ = tiny_specs(1)
    (store.out(broken) / "model.safetensors").write_bytes(b"half")
    store.remove(gone.hash)
    failures = run_store(tiny_specs(1), store, Inline())
    assert [f.spec.hash for f in failures] == [broken.hash]
    assert "checksum" in failures[0].message
    assert "runs rm" in failures[0].message
    assert (store.out(broken) / "model.safetensors").read_bytes() == b"half"
    assert store.has(gone)


def test_run_whose_spec_is_truncated_is_a_row_with_its_problem(store):
    key = store.rows()[0]["hash"]
    (store.out(key) / "spec.json").write_text("{")
    row = next(r for r in store.rows() if r["hash"] == key)
    assert "not valid JSON" in row["problem"]
    rows = store.rows()
    store.rebuild()
    assert store.rows() == rows


def test_failure_is_recorded_with_its_traceback_and_gone_after_a_retry(tmp_path, monkeypatch):
    store = Store(tmp_path / "store", create=True)
    bad = tiny_specs(1)[0]
    whole = loop._Run._epoch

    def full_disk(run: Any, epoch: int) -> float:
        if run.spec.hash == bad.hash:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(run, epoch)

    monkeypatch.setattr(loop._Run, "_epoch", full_disk)
    failures = run_store(tiny_specs(1), store, Inline())
    assert [f.spec.hash for f in failures] == [bad.hash]
    record = store.failures()[bad.hash]
    assert "No space left" in record["message"]
    assert "Traceback" in record["traceback"]
    assert sum(store.has(s) for s in tiny_specs(1)) == len(tiny_specs(1)) - 1
    monkeypatch.undo()
    assert run_store(tiny_specs(1), store, Inline()) == []
    assert store.failures() == {}


def test_store_that_cannot_be_written_is_one_line_to_run_and_can_be_read(store, monkeypatch):
    rows = store.rows()

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert "Read-only" in refusal(lambda: run_store(tiny_specs(1), store, Inline()))
    real = sqlite3.connect

    def connect(path: Any, **kwargs: Any) -> Any:
        if path != ":memory:":
            raise sqlite3.OperationalError("unable to open database file")
        return real(path, **kwargs)

    monkeypatch.setattr(sqlite3, "connect", connect)
    assert store.rows() == rows


def test_busy_run_is_waited_for_not_failed(tmp_path):
    store = Store(tmp_path / "store", create=True)
    spec = tiny_specs(1)[0]
    inside, go_on = threading.Event(), threading.Event()

    def slow(done: int, total: int, line: dict[str, Any]) -> None:
        inside.set()
        go_on.wait(60)

    other = threading.Thread(target=lambda: train(spec, store.out(spec), progress=slow))
    other.start()
    assert inside.wait(60)
    assert store.running() == [spec.hash]
    assert train_one(spec.model_dump(), str(store.out(spec)), None)[0] == "busy"
    threading.Timer(1.0, go_on.set).start()
    assert run_store([spec], store, Inline()) == []
    other.join()
    assert store.has(spec)
    assert store.running() == []


def test_hash_prefix_that_fits_nothing_or_much_is_one_line(store):
    assert "no run" in refusal(lambda: store.find("zz"))
    assert "no run" in refusal(lambda: store.find(""))


def test_facts_are_measured_once(store):
    calls: list[int] = []

    def measure() -> dict[str, int]:
        calls.append(1)
        return {"v": 1}

    for _ in range(2):
        assert store.cached("x", measure) == {"v": 1}
    assert calls == [1]


def test_unknown_or_missing_executor_is_one_line(monkeypatch):
    assert "unknown" in refusal(lambda: make_executor("cloud"))
    import sys

    for name, module in (("ray", "ray"), ("dask", "distributed"), ("slurm", "submitit")):
        monkeypatch.setitem(sys.modules, module, None)
        assert f"pip install 'creditscope[{name}]'" in refusal(partial(make_executor, name))


def test_a_run_that_can_be_read_again_is_no_problem_any_more(store, monkeypatch):
    """A rule of one's own that one command did not know and the next one does."""
    from creditscope.runs import store as module

    real = module._row
    at = module.COLUMNS.index("problem")

    def unreadable(run, stamp):
        row = real(run, stamp)
        return (*row[:at], "unknown rule", *row[at + 1 :])

    monkeypatch.setattr(module, "_row", unreadable)
    (store.root / "index.sqlite").unlink(missing_ok=True)
    assert all(row["problem"] == "unknown rule" for row in store.rows())
    monkeypatch.undo()
    assert all(row["problem"] == "" for row in store.rows())
