"""Writers for trackers; and what happens where a foreign library is not there, or not wanted."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.refusals import refusal

from creditscope import DiagnosticReport, Monitor
from creditscope.credit import BP
from creditscope.integrations.base import layer_table, outcome, profile_curves, require, scalars

from ..stream.nets import D_IN, batch, shaken
from ..stream.test_find import ladder

ROOT = Path(__file__).parents[2]


def monitored(writer: Any) -> list[dict[str, Any]]:
    monitor = Monitor(shaken(ladder()), [batch((D_IN,), n=128)], credit=BP(), writers=[writer])
    monitor.step(0)
    monitor.step(2)
    return monitor.history


def test_a_line_becomes_plain_numbers():
    line = {"epoch": 3, "h": [1.0, 2.0], "cosine": [None, 0.5], "gamma": None, "fired": ["D1"], "diverged": False}
    assert scalars(line) == {
        "creditscope/h/0": 1.0,
        "creditscope/h/1": 2.0,
        "creditscope/cosine/1": 0.5,
        "creditscope/fired/D1": 1.0,
        "creditscope/fired/D2": 0.0,
        "creditscope/fired/C": 0.0,
        "creditscope/diverged": 0.0,
    }


def report() -> DiagnosticReport:
    from ..test_arrays import CLAIMS, loss_from, profiled

    return profiled(torch.float32, loss_from=loss_from, level="full", **CLAIMS)


def test_a_report_becomes_a_table_of_its_layers():
    found: Any = report()
    columns, rows = layer_table(found)
    assert columns == ["layer", "h", "g", "cosine", "rho", "nudging", "readout", "twin_readout"]
    assert [row[0] for row in rows] == [0, 1, 2, 3]
    assert [row[1] for row in rows] == list(found.facts.scale.mean)
    assert [row[3] for row in rows] == list(found.facts.alignment.mean)
    assert set(profile_curves(found)) == {"network", "twin"}
    assert outcome(found)["creditscope/status"] == found.status
    answers = {name: outcome(found)[f"creditscope/{name}"] for name in ("D1", "D2", "D3", "C")}
    assert answers == {name: check.answer for name, check in found.checks.items()}
    assert answers["C"] == "pass"  # a reader gets "low"


def written_events(directory: Path, use: Callable[[Any], Any]) -> tuple[Any, Any]:
    """(what `use` gives back of a TensorBoard writer, the events that it leaves)."""
    pytest.importorskip("tensorboard", reason="extra tensorboard is missing: its writer is NOT tested")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from creditscope.integrations.tensorboard import TensorBoardWriter

    writer = TensorBoardWriter(directory)
    given = use(writer)
    writer.close()
    return given, EventAccumulator(str(directory), {"images": 0, "tensors": 0, "histograms": 0}).Reload()


def test_tensorboard(tmp_path):
    history, events = written_events(tmp_path, monitored)
    for name in ("growth", "h/2", "g_per_sample/0", "fired/D1"):
        points = events.Scalars(f"creditscope/{name}")
        assert [p.step for p in points] == [0, 2]
        assert [p.value for p in points] == pytest.approx([scalars(line)[f"creditscope/{name}"] for line in history])


def test_tensorboard_gets_a_report_as_curves_figures_and_text(tmp_path):
    found = report()
    _, events = written_events(tmp_path, lambda writer: writer.write_report(found))
    points = events.Scalars("creditscope/layers/h")
    assert [p.step for p in points] == [0, 1, 2, 3]
    assert [p.value for p in points] == pytest.approx(found.facts.scale.mean)
    assert "creditscope/layers/cosine" in events.Tags()["histograms"]
    assert set(events.Tags()["images"]) == {"creditscope/report", "creditscope/profile"}
    assert events.Images("creditscope/report")[0].width > 300
    (told,) = events.Tensors("creditscope/verdict/text_summary")
    assert told.tensor_proto.string_val[0].decode() == found.verdict.line


@pytest.fixture
def wandb(tmp_path, monkeypatch) -> Any:
    pytest.importorskip("wandb", reason="extra wandb is missing: its writer is NOT tested")
    from creditscope.integrations.wandb import WandbWriter

    monkeypatch.setenv("WANDB_SILENT", "true")
    return WandbWriter(project="test", dir=str(tmp_path))


def test_wandb_offline(tmp_path, wandb):
    assert wandb.run.settings.mode == "offline"
    history = monitored(wandb)
    assert wandb.run.summary["creditscope/growth"] == pytest.approx(history[-1]["growth"])
    assert wandb.run.summary["creditscope/epoch"] == 2
    wandb.close()
    (written,) = Path(tmp_path).glob("wandb/offline-run-*/run-*.wandb")
    kept = written.read_bytes()  # each value stands behind its name, as JSON
    assert kept.count(b"creditscope/growth") >= len(history)
    assert kept.count(json.dumps(history[-1]["growth"]).encode()) >= len(history)


def test_wandb_gets_a_report_as_a_table_a_plot_and_a_summary(tmp_path, wandb):
    found = report()
    wandb.write_report(found)
    assert wandb.run.summary["creditscope/verdict"] == found.verdict.line
    wandb.close()
    tables = {p.name.split("_")[0]: json.loads(p.read_text()) for p in Path(tmp_path).rglob("*.table.json")}
    assert len(tables) == 2  # the layers, and the points of the profile
    layers = next(t for name, t in tables.items() if name == "layers")
    columns, rows = layer_table(found)
    assert layers["columns"] == columns
    assert layers["data"] == [[pytest.approx(v) for v in row] for row in rows]


TRACKIO = """
import json
from creditscope.integrations.trackio import TrackioWriter
from tests.integrations.test_writers import monitored, report
writer = TrackioWriter(project="test", auto_log_gpu=False)
{}
writer.close()
print(json.dumps([told]))
"""


def tracked(tmp_path: Path, code: str) -> tuple[Any, list[tuple[int, Any]]]:
    """What `code` has told, and (step, metrics) of each point that trackio has kept.

    In a process of its own: trackio looks up its directory when it is imported, and finishes its runs at exit.
    """
    pytest.importorskip("trackio", reason="extra trackio is missing: its writer is NOT tested")
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    program = [sys.executable, "-c", TRACKIO.format(code)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    with closing(sqlite3.connect(tmp_path / "test.db")) as database:
        rows = database.execute("select step, metrics from metrics order by step").fetchall()
    return told, [(step, json.loads(metrics)) for step, metrics in rows]


def test_trackio_gets_a_report_as_tables(tmp_path):
    line, ((_, shown),) = tracked(tmp_path, "found = report(); writer.write_report(found); told = found.verdict.line")
    assert shown["creditscope/verdict"] == line
    assert shown["creditscope/layers"]["_type"] == "trackio.table"
    assert shown["creditscope/layers"]["_value"][3]["layer"] == 3
    assert len(shown["creditscope/profile"]["_value"]) == 4


def test_trackio(tmp_path):
    history, rows = tracked(tmp_path, "told = monitored(writer)")
    assert [step for step, _ in rows] == [0, 2]
    for (_, kept), line in zip(rows, history, strict=True):
        assert {name: kept[name] for name in scalars(line)} == pytest.approx(scalars(line))


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("lightning", "lightning"),
        ("transformers", "hf"),
        ("tensorboard", "tensorboard"),
        ("wandb", "wandb"),
        ("trackio", "trackio"),
    ],
)
def test_a_missing_extra_is_one_line_with_the_command(module, extra, monkeypatch, tmp_path):
    import importlib

    sys.modules.pop(f"creditscope.integrations.{module}", None)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, f"{module}.pytorch", None)

    def used() -> Any:
        loaded = importlib.import_module(f"creditscope.integrations.{module}")
        if module == "tensorboard":
            return loaded.TensorBoardWriter(tmp_path)
        return loaded.WandbWriter() if module == "wandb" else loaded.TrackioWriter(project="test")

    assert f"pip install 'creditscope[{extra}]'" in refusal(used)


def test_no_framework_is_imported_unless_used():
    code = (
        "import sys, creditscope.monitor, creditscope.stream.find\n"
        "import creditscope.integrations.base, creditscope.integrations.wandb\n"
        "foreign = {'lightning', 'transformers', 'tensorboard', 'wandb', 'trackio', 'timm'} & set(sys.modules)\n"
        "assert not foreign, foreign"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_library_that_is_there_is_handed_over():
    assert require("json", "nothing").dumps([1]) == "[1]"
