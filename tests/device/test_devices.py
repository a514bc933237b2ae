"""Devices as they are named, recorded and shared out; half precision. What needs a second device is in suite.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.refusals import refusal
from tests.training.small import DFA_RMS, small_quadratic, spec, use

from creditscope.cli.place import several
from creditscope.errors import CreditscopeError
from creditscope.runs.executors import make_executor
from creditscope.runs.executors.local import LocalExecutor, own_device
from creditscope.runs.record import Record, mixed_devices
from creditscope.runs.verify import Verification, kind_of
from creditscope.stream.devices import CPU, described, device_text, find_device, full_precision, tf32_allowed
from creditscope.training.loop import _Run, train
from creditscope.training.spec import make_spec


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpu", "device 'gpu' is unknown; use auto, cpu, cuda"),
        ("meta", "holds no numbers"),
        ("xpu", "device 'xpu' cannot be used"),
    ],
)
def test_a_device_that_cannot_be_used_is_one_line(name: str, says: str) -> None:
    with pytest.raises(CreditscopeError, match=says) as refused:
        find_device(name)
    assert "\n" not in str(refused.value)


def test_auto_is_the_cpu_where_there_is_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("creditscope.stream.devices.accelerator", lambda: None)
    assert find_device("auto") == find_device("cpu") == CPU
    with pytest.raises(CreditscopeError, match="--devices 0,1 needs an accelerator, and this machine has only a CPU"):
        several("0,1", "cpu")
    assert "'0,x' is not a list of numbers" in refusal(lambda: several("0,x", "cpu"))
    assert "names a device twice" in refusal(lambda: several("1,1", "cpu"))


def test_the_device_is_in_the_bundle_and_not_in_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, small_quadratic())
    monkeypatch.setattr("creditscope.training.loop.profile_batches", lambda ds: {})
    made = train(spec(**DFA_RMS, epochs=1), tmp_path / "run", device="cpu")
    assert made.device == described(CPU) == json.loads((made.path / "spec.json").read_text())["device"]
    assert (made.device["type"], made.device["torch"]) == ("cpu", torch.__version__)
    assert "device" not in made.spec.model_dump()
    assert device_text({}) == "cpu"
    assert device_text({"type": "cuda", "name": "A"}) == "cuda (A)"


def on(**device: str) -> Record:
    return Record(make_spec({"method": "bp"}), [], {}, device=dict(device))


def test_runs_of_different_devices_are_told_apart() -> None:
    old, first, second = on(), on(type="cpu", name="A"), on(type="cpu", name="B")
    gpu = on(type="cuda", name="G")
    assert mixed_devices([old, first, first]) == ""
    assert mixed_devices([first, second]).endswith("1 on cpu (A), 1 on cpu (B)")
    assert mixed_devices([old, gpu, gpu]).endswith("1 on cpu, 2 on cuda (G)")
    assert [kind_of(run) for run in (old, first)] == ["cpu", "cpu"]
    for then, now, same in ((old, first, True), (first, first, True), (first, second, False), (gpu, first, False)):
        assert Verification(then, 1, {}, (), (), now.device).same_device is same


WHO = "(__import__('os').getpid(), __import__('creditscope.runs.executors.local', fromlist=['_']).own_device())"


def test_every_worker_keeps_its_device() -> None:
    executor = LocalExecutor(devices=["fake:0", "fake:1"], per_device=2)
    try:
        assert executor.workers == 4
        answers = [executor.submit(eval, WHO) for _ in range(12)]
        by_process = {f.result() for f in answers}
    finally:
        executor.shutdown()
    assert {device for _, device in by_process} <= {"fake:0", "fake:1"}
    assert len({process for process, _ in by_process}) == len(by_process)  # none has had two
    assert own_device() == "cpu"


def test_contradictions_about_devices_are_refused() -> None:
    assert "--workers and --devices are both given" in refusal(lambda: LocalExecutor(2, devices=["cuda:0"]))
    assert "--per-device 4 needs --devices" in refusal(lambda: LocalExecutor(per_device=4))
    assert "0 runs per device train nothing" in refusal(lambda: make_executor("local", per_device=0))


@pytest.mark.parametrize(
    ("rule", "scale"),
    [
        ({"method": "bp", "penalty": 0.01}, 1.0),
        ({**DFA_RMS, "train_last": 1}, 1.0),
        ({"method": "dfa", "credit_norm": "none", "penalty": 0.0}, 1.0),
        ({"method": "dfa", "credit_norm": "none"}, 1e-6),
    ],
)
def test_gradients_in_fp16_are_those_of_fp32_to_its_rounding(
    rule: dict[str, Any], scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """scale: of the feedback. Credit a million times as small is far below what fp16 holds: the scale of each block saves it."""
    use(monkeypatch, small_quadratic())
    found = {}
    for precision in ("fp32", "fp16"):
        run = _Run(make_spec({"width": 32, "depth": 3, "precision": precision, **rule}), small_quadratic(), Path())
        run.model.train()
        if rule.get("credit_norm") == "none":
            run.rule.B = [b * scale for b in run.rule.B]  # type: ignore[attr-defined]
        run.objective.backward(small_quadratic().train_x[:100], small_quadratic().train_y[:100])
        found[precision] = {n: p.grad for n, p in run.model.named_parameters() if p.grad is not None}
    assert found["fp16"].keys() == found["fp32"].keys()
    for name, g in found["fp32"].items():
        assert found["fp16"][name].dtype == torch.float32
        assert float((found["fp16"][name] - g).norm()) <= 2e-3 * float(g.norm()), name


def test_rules_with_passes_of_their_own_have_no_half_precision() -> None:
    for precision in ("bf16", "fp16"):
        with pytest.raises(CreditscopeError, match=f"precision {precision} is not available for method ep"):
            make_spec({"method": "ep", "precision": precision})


def test_full_precision_ends_with_the_settings_of_before() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert tf32_allowed()
        with full_precision():
            assert not tf32_allowed()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
