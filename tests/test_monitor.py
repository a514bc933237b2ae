"""A Monitor in a plain loop: the same numbers as diagnose, a history on disk, a stop that is kept; wrong use in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.refusals import refusal
from torch import nn

from creditscope import DiagnosticThresholds, Monitor, diagnose
from creditscope.credit import BP
from creditscope.models import ResMLP

from .stream.nets import D_IN, C, D, batch, shaken
from .stream.test_find import ladder

ALWAYS = DiagnosticThresholds(h_norm_explosion_ratio=1e-3, g_norm_floor=1e6)
"""D1 and D2 fire on any network."""


def given(n: int = 2) -> list[Any]:
    return [batch((D_IN,), n=128, seed=k) for k in range(n)]


def test_each_line_is_what_diagnose_says_at_that_moment(tmp_path):
    model = shaken(ladder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    monitor = Monitor(model, given(), credit=BP(), path=tmp_path / "run")
    x, y = batch((D_IN,), seed=9)
    for epoch in range(3):
        report = diagnose(model, given(), credit=BP())
        fired = monitor.step(epoch)
        facts, line = report.facts, monitor.history[-1]
        failed = [c.id for c in report.verdict.checks if c.answer == "fail"]
        assert line["fired"] == failed
        assert fired == tuple(check for check in failed if check != "C")  # which decides nothing
        assert line["epoch"] == epoch
        assert (line["h"], line["g_per_sample"]) == (list(facts.scale.mean), list(facts.reference.per_sample))
        assert (line["growth"], line["stability"]) == (facts.scale.growth, facts.stability.deepest)
        assert (line["eval_accuracy"], line["eval_loss"]) == (facts.accuracy, facts.loss)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    lines = [json.loads(line) for line in (tmp_path / "run" / "trajectory.jsonl").read_text().splitlines()]
    assert lines == monitor.history
    assert not monitor.should_stop
    assert "exists already" in refusal(lambda: Monitor(model, given(), path=tmp_path / "run"))


def test_training_is_the_same_with_and_without_a_monitor():
    def trained(watched: bool) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(ladder(), nn.Dropout(0.5)).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        monitor = Monitor(model, given(), credit=BP()) if watched else None
        x, y = batch((D_IN,), seed=9)
        for epoch in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if monitor is not None:
                monitor.step(epoch)  # between backward and step: the gradients must survive
            optimizer.step()
        return model.state_dict()

    plain, watched = trained(False), trained(True)
    assert all(torch.equal(plain[k], watched[k]) for k in plain)


@pytest.mark.parametrize(
    ("stop_on", "patience", "stops_at"),
    [
        (("D1&D2",), 1, 0),
        (("D1 & D2",), 3, 2),
        (("C", "D1"), 2, 1),
        ("D2", 1, 0),
        ((), 1, None),
        (("D1&D2&C",), 1, None),
    ],
)
def test_should_stop_after_patience_measurements_running(stop_on, patience, stops_at):
    thresholds = DiagnosticThresholds(h_norm_explosion_ratio=1e-3, g_norm_floor=1e6, stability_drift_ceiling=1.0)
    monitor = Monitor(shaken(ladder()), given(), thresholds=thresholds, stop_on=stop_on, patience=patience)
    stopped = []
    for epoch in range(4):
        assert monitor.step(epoch) == ("D1", "D2")
        stopped.append(monitor.should_stop)
    assert stopped == [stops_at is not None and epoch >= stops_at for epoch in range(4)]


def test_a_pause_starts_the_count_again():
    model = shaken(ladder())
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    monitor = Monitor(model, given(), patience=2)
    bad = [True, False, True, False, True, True]
    for epoch, broken in enumerate(bad):
        model.load_state_dict({k: v * float("nan") if broken else v for k, v in weights.items()})
        assert ({"D1", "D2"} <= set(monitor.step(epoch))) == broken
        assert monitor.history[-1]["diverged"] == broken
        assert monitor.should_stop == (epoch == 5)


@pytest.mark.parametrize(("stop_on", "fires"), [(("D1&D2",), False), (("D1", "C"), True)])
def test_c_fires_where_it_was_asked_for(stop_on, fires):
    drift = DiagnosticThresholds(stability_drift_ceiling=1e-9)
    monitor = Monitor(shaken(ladder()), given(), stop_on=stop_on, thresholds=drift)
    assert str(monitor) == "Monitor: nothing measured yet"
    assert ("C" in monitor.step(0)) == fires
    assert "C" in monitor.history[-1]["fired"]
    told = f"Monitor: 1 measurement; epoch 0: growth {monitor.history[-1]['growth']:.3g}; {'C' if fires else 'no check'} fired"
    assert str(monitor) == told + ("; should stop" if fires else "")


def test_every_n_th_step_is_measured():
    monitor = Monitor(shaken(ladder()), given(), every=3, thresholds=ALWAYS)
    fired = [monitor.step(k) for k in range(7)]
    assert [line["epoch"] for line in monitor.history] == [0, 3, 6]
    assert [bool(f) for f in fired] == [True, False, False, True, False, False, True]


def test_writers_see_every_line_and_a_compiled_model_is_watched_through_the_original():
    class Keep:
        def __init__(self) -> None:
            self.lines: list[Any] = []

        def write(self, line: Any) -> None:
            self.lines.append(dict(line))

    keep = Keep()
    model = shaken(ResMLP(D_IN, C, width=D, depth=2))
    monitor = Monitor(torch.compile(model), given(), writers=[keep])  # type: ignore[arg-type]
    monitor.step(0)
    assert keep.lines == monitor.history
    assert monitor.model is model


def test_of_two_monitors_with_one_path_the_second_is_refused_and_nothing_is_written_over(tmp_path):
    model = shaken(ladder())
    first, second = (Monitor(model, given(), path=tmp_path / "t.jsonl") for _ in range(2))  # neither file is there yet
    first.step(0)
    kept = (tmp_path / "t.jsonl").read_bytes()
    assert "exists already" in refusal(lambda: second.step(0))
    assert (tmp_path / "t.jsonl").read_bytes() == kept
    first.step(1)
    assert (tmp_path / "t.jsonl").read_text().count("\n") == 2
    assert "exists already" in refusal(lambda: Monitor(model, given(), path=tmp_path / "t.jsonl"))


def test_wrong_use_is_one_line(tmp_path):
    model = shaken(ladder())
    (tmp_path / "file").write_text("")
    cases: list[tuple[str, dict[str, Any]]] = [
        ("every is 0", {"every": 0}),
        ("every is 'day'", {"every": "day"}),
        ("names 'D3'", {"stop_on": ("D1&D3",)}),
        ("patience is 0", {"patience": 0}),
        ("cannot create", {"path": tmp_path / "file" / "run"}),
        ("no module is named", {"blocks": "nothing.*"}),
    ]
    for says, options in cases:
        assert says in refusal(Monitor, model, given(), **options)
    assert "eval_batches is empty" in refusal(Monitor, model, iter(()))
    assert "give a torch.nn.Module" in refusal(Monitor, None, given())
    assert "epoch is 'one'" in refusal(Monitor(model, given()).step, "one")


@pytest.mark.parametrize("move", [lambda m: m.to("meta"), lambda m: m.double()])
def test_a_model_that_has_moved_is_refused(move, tmp_path: Path):
    model = shaken(ladder())
    monitor = Monitor(model, given(), path=tmp_path / "t.jsonl")
    move(model)
    assert "made for a model on cpu in float32 and the model is now on" in refusal(monitor.step, 1)
    assert not (tmp_path / "t.jsonl").exists()
