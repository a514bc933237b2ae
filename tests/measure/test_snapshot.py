"""A line of a trajectory says what a whole diagnosis of the same network says."""

from __future__ import annotations

from typing import Any

import torch
from tests.known import known

from creditscope import DiagnosticThresholds, diagnose
from creditscope.credit import DFA
from creditscope.models import ResMLP
from creditscope.protocol.trajectory import snapshot
from creditscope.stream.interface import InterfaceStream

from ..stream.nets import D_IN, C, D, batch, shaken


def test_snapshot_and_diagnose_agree_and_fired_checks_follow_the_thresholds():
    model: Any = shaken(ResMLP(D_IN, C, width=D, depth=2)).train()
    given = [batch((D_IN,), n=128, seed=k) for k in range(8)]
    stream = InterfaceStream(model.eval(), given[0][0][:3])
    rule = DFA()
    rule.setup(stream, C, torch.Generator().manual_seed(0))
    report = diagnose(model, given, credit=rule)
    facts = report.facts
    model.train()
    line = snapshot(model, given, rule, stream=stream)
    assert model.training
    assert line["h"] == list(facts.scale.mean)
    assert line["g_per_sample"] == list(facts.reference.per_sample)
    assert line["cosine"] == list(known(facts.alignment).mean)
    assert (line["gamma"], line["growth"]) == (known(facts.aggregate).headline, facts.scale.growth)
    assert line["stability"] == facts.stability.deepest
    assert line["fired"] == [c.id for c in report.verdict.checks if c.answer == "fail"]
    assert line["diverged"] is False
    strict = DiagnosticThresholds(h_norm_explosion_ratio=1e-3, g_norm_floor=1e6, stability_drift_ceiling=1e-9)
    assert {"D1", "D2"} <= set(snapshot(model, given, rule, stream=stream, thresholds=strict)["fired"])
    assert snapshot(model, given, None, stream=stream)["cosine"] is None
