"""Writers for trackers; and what happens where a foreign library is not there, or not wanted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from creditscope import CreditscopeError, Monitor
from creditscope.credit import BP
from creditscope.integrations.base import require, scalars

from ..stream.nets import D_IN, batch, shaken
from ..stream.test_find import ladder


def monitored(writer: Any) -> list[dict[str, Any]]:
    monitor = Monitor(shaken(ladder()), [batch((D_IN,), n=128)], credit=BP(), writers=[writer])
    monitor.step(0)
    monitor.step(2)
    writer.close()
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


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="extra tensorboard is missing: its writer is NOT tested")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from creditscope.integrations.tensorboard import TensorBoardWriter

    history = monitored(TensorBoardWriter(tmp_path))
    events = EventAccumulator(str(tmp_path)).Reload()
    for name in ("growth", "h/2", "g_per_sample/0", "fired/D1"):
        points = events.Scalars(f"creditscope/{name}")
        assert [p.step for p in points] == [0, 2]
        assert [p.value for p in points] == pytest.approx([scalars(line)[f"creditscope/{name}"] for line in history])


def test_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="extra wandb is missing: its writer is NOT tested")
    from creditscope.integrations.wandb import WandbWriter

    monkeypatch.setenv("WANDB_SILENT", "true")
    writer = WandbWriter(project="test", dir=str(tmp_path))
    assert writer.run.settings.mode == "offline"
    history = monitored(writer)
    (written,) = Path(tmp_path).glob("wandb/offline-run-*/run-*.wandb")
    assert b"creditscope" in written.read_bytes()
    assert writer.run.summary["creditscope/growth"] == pytest.approx(history[-1]["growth"])


def test_trackio(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    pytest.importorskip("trackio", reason="extra trackio is missing: its writer is NOT tested")
    from creditscope.integrations.trackio import TrackioWriter

    monitored(TrackioWriter(project="test"))
    assert any(tmp_path.rglob("*.db"))


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

    with pytest.raises(CreditscopeError) as caught:
        used()
    assert f"pip install 'creditscope[{extra}]'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_framework_is_imported_unless_used():
    code = (
        "import sys, creditscope.monitor, creditscope.find, creditscope.integrations.base, creditscope.integrations.wandb\n"
        "foreign = {'lightning', 'transformers', 'tensorboard', 'wandb', 'trackio', 'timm'} & set(sys.modules)\n"
        "assert not foreign, foreign"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_library_that_is_there_is_handed_over():
    assert require("json", "nothing").dumps([1]) == "[1]"
