"""Every built-in rule through the whole house: train, kill and resume to the bit, diagnose, profile, report."""

from __future__ import annotations

from typing import Any

import pytest
import safetensors.torch
import torch

from creditscope import diagnose, train
from creditscope.credit.registry import all_rules
from creditscope.data.dataset import eval_batches, profile_batches
from creditscope.protocol.report import DiagnosticReport

from .small import hashes, small_quadratic, spec, stop_after, use

RULES = {name: rule for name, rule in all_rules().items() if rule.__module__.startswith("creditscope.")}
CHEAP: dict[str, dict[str, Any]] = {
    "ep": {"steps": 2},
    "pc": {"steps": 3},
    "sb": {"width": 8},
    "cb": {"width": 8, "warmup": 0.5},
    "dtp": {"width": 8},
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_through_the_whole_house(name, tmp_path, monkeypatch):
    data = small_quadratic()
    use(monkeypatch, data)
    norm = {"credit_norm": "rms"} if RULES[name].uses_norm else {}
    run = spec(method=name, epochs=2, options=CHEAP.get(name, {}), **norm)
    whole = train(run, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(run, tmp_path / "resumed", progress=stop_after(1))
    resumed = train(run, tmp_path / "resumed")
    left, right = hashes(whole.path), hashes(resumed.path)
    assert [f for f in left if left[f] != right.get(f)] == []

    model, rule = whole.model(data), whole.rule()
    if name in ("kp", "wm"):  # what moves after each step has moved
        first = safetensors.torch.load_file(whole.path / "credit.safetensors")
        assert int(first["steps" if name == "wm" else "optim.step.0.linear1.weight"]) == 8  # 4 batches, 2 epochs
    report = diagnose(model, eval_batches(data, 2, 64), credit=rule, method_name=run.label, **profile_batches(data))
    assert report.facts.profile is not None
    assert report.facts.alignment is not None
    read = DiagnosticReport.from_dict(whole.report)
    assert name in str(read)
    assert ("Γ is not what it optimises" in str(read)) == (name == "ff")
    null = train(run.null("matched"), tmp_path / "null").model(data)
    start = {n: t for n, t in null.state_dict().items() if n.startswith("blocks.")}
    from creditscope.training.build import build_model

    fresh = build_model(run, data.input_shape, data.n_classes).state_dict()
    assert all(torch.equal(t, fresh[n]) for n, t in start.items())
