"""Everything on the fake accelerator: a run there must be that of the CPU to the bit, and the host must not wait inside an epoch.

Not collected by itself: tests/device/test_fake_accelerator.py runs it in a process of its own, for the device stays registered.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.device.accelerator import Accelerator, FakeTensor, accelerator
from tests.refusals import refusal
from tests.training.small import DFA_RMS, FA_NONE, small_images, small_quadratic, spec, use
from torch import nn

import creditscope
from creditscope.credit.base import CreditRule
from creditscope.credit.registry import all_rules
from creditscope.data import Dataset, eval_batches
from creditscope.data.dataset import epoch_batches, on_device
from creditscope.errors import CreditscopeError
from creditscope.protocol.diagnosis import diagnose
from creditscope.runs.execute import run_specs, train_one
from creditscope.runs.groups import audit
from creditscope.runs.record import mixed_devices, record_of
from creditscope.runs.verify import kind_of, verify
from creditscope.stream.devices import described, device_text, find_device, full_precision, has_float64, tf32_allowed
from creditscope.studies.audit import audit_table
from creditscope.training import loop
from creditscope.training.bundle import Bundle
from creditscope.training.certify import certify_bundle
from creditscope.training.loop import Total, train
from creditscope.training.spec import RunSpec

FAKE = torch.device("fake", 0)
STEPS = 4
"""Batches of 64 in an epoch of the small data set."""
COSTLY: dict[str, dict[str, Any]] = {"ep": {"steps": 3}, "pc": {"steps": 3}, "epc": {"steps": 2}}
RULES = sorted(all_rules())


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, small_quadratic())
    monkeypatch.setattr(loop, "profile_batches", lambda ds: {})


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Where the host waited, for each epoch."""
    found: list[list[str]] = []
    whole = loop._Run._epoch

    def epoch(self: Any, number: int) -> float:
        from tests.device import accelerator as fake

        here = fake._active[-1].waits if fake._active else []
        before = len(here)
        loss = whole(self, number)
        found.append(here[before:])
        return loss

    monkeypatch.setattr(loop._Run, "_epoch", epoch)
    return found


def of(rule: str, **changes: Any) -> RunSpec:
    norm = {"credit_norm": "rms"} if all_rules()[rule].uses_norm else {}
    return spec(**{"method": rule, "options": COSTLY.get(rule, {}), "epochs": 1, **norm, **changes})


def both(made: RunSpec, path: Path, dataset: Dataset | None = None, **options: Any) -> tuple[Bundle, Bundle]:
    """The run on the CPU and on the accelerator."""
    here = train(made, path / "cpu", dataset=dataset, **options)
    with accelerator():
        there = train(made, path / "fake", dataset=dataset, device="fake", **options)
    return here, there


def test_the_accelerator_fails_what_a_real_one_would() -> None:
    with accelerator() as device:
        a = torch.randn(2, 3).to(FAKE, non_blocking=True)
        assert isinstance(a, FakeTensor)
        assert not device.waits
        with pytest.raises(RuntimeError, match="same device"):
            a + torch.randn(2, 3)
        with pytest.raises(RuntimeError, match="draws random numbers"):
            torch.randn(2, device=FAKE)
        with pytest.raises(RuntimeError, match="draws random numbers"):
            nn.Linear(2, 2).to(FAKE).reset_parameters()
        with pytest.raises(RuntimeError, match="same device"):
            a + torch.zeros(2, 3, device="fake:1")
        for read in (
            lambda: a.sum().item(),
            a.tolist,
            a.cpu,
            lambda: bool(a.any()),
            lambda: a[a > 0],
            a.nonzero,
        ):
            before = len(device.waits)
            read()
            assert len(device.waits) == before + 1, read
        torch.randn(2, 3).to(FAKE)  # the host waits for such a copy
        assert len(device.waits) == before + 2


@pytest.mark.parametrize("rule", RULES)
def test_a_run_on_another_device_is_that_of_the_cpu_and_waits_once_per_epoch(
    rule: str, tmp_path: Path, waits: list[list[str]]
) -> None:
    here, there = both(of(rule), tmp_path)
    reads = STEPS if rule in ("random", "fgrad", "nodepert") else 0  # their draws follow from the logits
    assert [len(w) for w in waits] == [0, 1 + reads], waits
    assert here.files["credit.safetensors"] == there.files["credit.safetensors"]
    if (
        rule == "fgrad"
    ):  # torch differentiates forwards by another formula there, and the next draws follow from its rounding
        assert not differing(here.trajectory[0], there.trajectory[0])
        return
    for name in ("model.safetensors", "trajectory.jsonl"):
        assert here.files[name] == there.files[name], name
    then, now = here.report, there.report
    assert (then["facts"]["convention"].pop("device"), now["facts"]["convention"].pop("device")) == ("cpu", "fake")
    assert then["facts"] == now["facts"]


@pytest.mark.parametrize("rule", ["random", "nodepert", "fgrad"])
def test_draws_that_follow_from_the_labels_need_no_copy_to_the_host(
    rule: str, tmp_path: Path, waits: list[list[str]]
) -> None:
    here, there = both(of(rule, options={"source": "labels"}), tmp_path)
    assert [len(w) for w in waits] == [0, 1], waits
    assert here.files["credit.safetensors"] == there.files["credit.safetensors"]
    if rule == "fgrad":
        assert not differing(here.trajectory, there.trajectory, 1e-4)
    else:
        assert here.files["model.safetensors"] == there.files["model.safetensors"]


@pytest.mark.parametrize(
    ("arch", "rule"),
    [("small-cnn", FA_NONE), ("vit-mini", DFA_RMS), ("resmlp", {"method": "bp"})],
    ids=str,
)
def test_images_are_augmented_there_to_the_same_bits(
    arch: str, rule: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[list[str]]
) -> None:
    use(monkeypatch, small_images())
    shape = {"width": 8} | ({} if arch == "small-cnn" else {"depth": 1})
    made = spec(
        dataset="cifar10", arch=arch, **{**shape, **rule, "epochs": 1, "batch_size": 2, "depth": shape.get("depth")}
    )
    assert made.augment
    here, there = both(made, tmp_path, small_images())
    assert [len(w) for w in waits] == [0, 1], waits
    if arch == "vit-mini":  # attention has another kernel on the CPU
        assert not differing(here.trajectory, there.trajectory, 1e-4)
    else:
        assert here.files["model.safetensors"] == there.files["model.safetensors"]


def test_crops_by_index_arithmetic_are_the_windows() -> None:
    """A second computation of the augmentation, on the CPU's own images."""
    data = small_images()
    with accelerator():
        moved = on_device(data, FAKE)
        assert on_device(data, FAKE) is moved
        for (x, y), (x2, y2) in zip(
            epoch_batches(data, 3, 7, 2, True), epoch_batches(moved, 3, 7, 2, True), strict=True
        ):
            assert (x2.device, y2.device) == (FAKE, FAKE)
            assert torch.equal(x, x2.cpu())
            assert torch.equal(y, y2.cpu())


@pytest.mark.parametrize(
    "changes",
    [
        {**DFA_RMS, "targets": "random", "penalty": 0.01, "grad_clip": 1.0},
        {**FA_NONE, "train_last": 1, "credit_site": "output", "head_lr": 1e-2},
        {"method": "bp", "train_last": 0, "grad_clip": 0.1, "clip_over": "global"},
        {"method": "ep", "options": {"symmetric": True, "reading": "error", "steps": 2}},
        {"method": "ep", "options": {"states": "float64", "clamp": True, "steps": 2}},
        {"method": "cb", "credit_norm": "none", "options": {"warmup": 0.0, "draws": 2, "condition": "error"}},
        {"method": "dfa", "credit_norm": "rms", "dataset": "student", "arch": "student"},
    ],
    ids=str,
)
def test_options_of_a_run_do_not_change_this(changes: dict[str, Any], tmp_path: Path, waits: list[list[str]]) -> None:
    here, there = both(
        spec(**{**changes, "epochs": 1}), tmp_path, replace(small_quadratic(), name=changes.get("dataset", "quadratic"))
    )
    assert [len(w) for w in waits] == [0, 1], waits
    assert here.files["model.safetensors"] == there.files["model.safetensors"]
    assert here.files["trajectory.jsonl"] == there.files["trajectory.jsonl"]


@pytest.mark.parametrize("rule", ["kp", "sb"])
def test_a_run_goes_on_there_and_only_there(rule: str, tmp_path: Path) -> None:
    made = of(rule, epochs=2)

    def stop(done: int, *_: Any) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with accelerator():
        with pytest.raises(KeyboardInterrupt):
            train(made, tmp_path / "fake", device="fake", progress=stop)
        assert "was begun on fake (Fake accelerator) and this is cpu" in refusal(lambda: train(made, tmp_path / "fake"))
        resumed = train(made, tmp_path / "fake", device="fake")
    whole = train(made, tmp_path / "cpu")
    assert resumed.files["model.safetensors"] == whole.files["model.safetensors"]
    assert resumed.files["credit.safetensors"] == whole.files["credit.safetensors"]


class Broken(all_rules()["dfa"]):  # type: ignore[misc]
    name = "broken"

    def credit(self, batch: Any) -> Any:
        credits = super().credit(batch)
        return [*credits[:-1], credits[-1] * float("inf")] if batch.stream.model.training else credits


class Elsewhere(all_rules()["dfa"]):  # type: ignore[misc]
    name = "elsewhere"

    def credit(self, batch: Any) -> Any:
        return [a.cpu() for a in super().credit(batch)]


def test_credit_that_is_not_finite_is_refused_at_the_end_of_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from creditscope.credit import registry

    monkeypatch.setitem(registry._rules, "broken", Broken)
    monkeypatch.setitem(registry._rules, "elsewhere", Elsewhere)
    with accelerator():
        with pytest.raises(CreditscopeError, match="'broken' returned NaN or Inf at layer 2 although"):
            train(spec(method="broken", credit_norm="none"), tmp_path / "a", device="fake")
        with pytest.raises(
            CreditscopeError, match="'elsewhere' returned credit on cpu at layer 0 and the network is on fake:0"
        ):
            train(spec(method="elsewhere", credit_norm="none"), tmp_path / "b", device="fake")


def test_what_is_recorded_of_a_device(tmp_path: Path) -> None:
    here, there = both(of("dfa", epochs=1), tmp_path)
    assert (here.spec.hash, here.device["type"]) == (there.spec.hash, "cpu")
    assert there.device == {
        "type": "fake",
        "name": "Fake accelerator",
        "torch": torch.__version__,
        "deterministic": True,
        "tf32": False,
    }
    assert device_text(there.device) == "fake (Fake accelerator)"
    assert json.loads((there.path / "spec.json").read_text())["device"] == there.device
    assert mixed_devices([here, here]) == ""
    assert "1 on cpu" in mixed_devices([here, there])
    assert "1 on fake (Fake accelerator)" in mixed_devices([here, there])
    second = train(of("dfa", seed=1), tmp_path / "second")
    assert audit_table(audit([there, second]), "t").notes == (mixed_devices([there, second]),)
    assert audit_table(audit([here, second]), "t").notes == ()
    with accelerator():
        assert (find_device("auto"), find_device("fake:1")) == (FAKE, torch.device("fake", 1))
        assert described(FAKE)["deterministic"] is False  # outside a run
        assert kind_of(record_of(there)) == "fake"
        again = verify(record_of(there), device="fake")
        assert (again.status, again.same_device) == ("exact", True)
        other = verify(record_of(there), device="cpu")
        assert (other.status, other.same_device) == ("exact", False)


def facts_of(model: nn.Module, batches: list[Any], rule: CreditRule, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = diagnose(model, batches, credit=rule, level="full", **options).to_dict()["facts"]
    found["convention"].pop("device")
    return found


@pytest.mark.parametrize("rule", ["dfa", "sb"])
def test_every_measure_profile_and_certificate_there(rule: str, tmp_path: Path) -> None:
    made, data = train(of(rule, epochs=1), tmp_path / "cpu"), small_quadratic()
    batches, fit = eval_batches(data, 2, 32), [(data.train_x, data.train_y)]
    here = facts_of(made.model(data), batches, made.rule(), fit_batches=fit)
    certificate = certify_bundle(made, data, 8)
    with accelerator():
        moved = on_device(data, FAKE)
        model = made.model(moved)
        assert next(model.parameters()).device == FAKE
        there = facts_of(model, batches, made.rule(device=FAKE), fit_batches=fit)  # batches go where the model is
        assert next(model.parameters()).device == FAKE
        same = certify_bundle(made, moved, 8)
    assert close(here, there), differing(here, there)
    assert same.label == certificate.label
    assert [a.answer for a in same.answers.values()] == [a.answer for a in certificate.answers.values()]


def close(a: Any, b: Any, rel: float = 1e-6) -> bool:
    return not differing(a, b, rel)


def differing(a: Any, b: Any, rel: float = 1e-6, path: str = "") -> list[str]:
    """Paths of what two JSON values do not share; numbers up to `rel`."""
    if isinstance(a, dict) and isinstance(b, dict):
        return [p for k in a.keys() | b.keys() for p in differing(a.get(k), b.get(k), rel, f"{path}.{k}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [p for k, (x, y) in enumerate(zip(a, b, strict=True)) for p in differing(x, y, rel, f"{path}[{k}]")]
    if isinstance(a, float) and isinstance(b, float):
        return [] if a == b or abs(a - b) <= rel * max(1.0, abs(a)) else [f"{path}: {a} {b}"]
    return [] if a == b else [f"{path}: {a} {b}"]


class Here:
    """An executor that runs at once, in this process."""

    def submit(self, fn: Any, *args: Any) -> Any:
        from concurrent.futures import Future

        future: Future[Any] = Future()
        future.set_result(fn(*args))
        return future

    def shutdown(self, cancel: bool = False) -> None:
        pass


def test_a_step_of_a_study_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from creditscope.runs import execute

    monkeypatch.setattr(execute, "_dataset", lambda name, data_dir: small_quadratic())
    made = of("dfa", epochs=1)
    with accelerator():
        runs = run_specs([made, made.null("matched")], tmp_path, Here(), device="fake")
        state, message, _ = train_one(of("ep", epochs=1).model_dump(), str(tmp_path / "x"), None, "cuda")
    assert {run.device["type"] for run in runs} == {"fake"}
    assert (state, "cannot be used" in message) == ("error", True)
    group = audit(runs)[0]
    assert group.label == "dfa(rms)"


def test_a_device_without_float64_is_measured_on_the_cpu_and_says_so(tmp_path: Path) -> None:
    made = of("sb", epochs=1)
    here = train(made, tmp_path / "cpu")
    has_float64.cache_clear()
    try:
        with accelerator(float64=False):
            assert not has_float64(FAKE)
            with pytest.raises(CreditscopeError, match="method ep computes in float64, which fake:0 does not have"):
                train(of("ep"), tmp_path / "ep", device="fake")
            there = train(made, tmp_path / "fake", device="fake")
            model = here.model(small_quadratic()).to(FAKE)
            report = creditscope.diagnose(model, eval_batches(small_quadratic(), 2, 32), credit=here.rule(device=FAKE))
            assert "fake has no float64" in report.notes
            assert report.facts.convention.device == "cpu"
            assert next(model.parameters()).device == FAKE
    finally:
        has_float64.cache_clear()
    assert here.files["model.safetensors"] == there.files["model.safetensors"]
    assert here.files["trajectory.jsonl"] == there.files["trajectory.jsonl"]


def test_measuring_and_training_switch_tf32_off_and_back() -> None:
    seen: list[bool] = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(4, 4)
            self.blocks = nn.ModuleList([nn.Linear(4, 4)])
            self.head = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(tf32_allowed())
            h = self.embed(x)
            return self.head(h + self.blocks[0](h))

    conv: Any = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    conv.fp32_precision = "tf32"
    assert tf32_allowed()
    creditscope.diagnose(Net(), [(torch.randn(8, 4), torch.randint(0, 3, (8,))) for _ in range(2)])
    assert seen
    assert not any(seen)
    assert conv.fp32_precision == "tf32"
    with full_precision():
        assert not tf32_allowed()


def test_half_precision_is_that_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The products of training are cast by the autocast of the device; the fake one has no casts of its own."""
    asked: list[Any] = []
    real = torch.autocast

    class Asked(real):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            asked.append(args)
            super().__init__(*args, **kwargs)

    with accelerator():
        for precision, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
            for rule in ("dfa", "bp"):
                run = loop._Run(of(rule, precision=precision), small_quadratic(), Path(), FAKE)
                monkeypatch.setattr(torch, "autocast", Asked)
                asked.clear()
                x, y = run.dataset.train_x[:32], run.dataset.train_y[:32]
                run.objective.backward(x, y)
                monkeypatch.setattr(torch, "autocast", real)
                assert ("fake", dtype) in asked


def test_the_mean_loss_is_summed_in_float64_on_the_host() -> None:
    total = Total()
    values = [(0.1, 64), (1e8, 64), (0.3, 8)]
    for value, n in values:
        total.add(torch.tensor(value), n)
    exact = sum(float(torch.tensor(v)) * n for v, n in values) / 136
    assert total.mean() == pytest.approx(exact, rel=1e-15)


def test_the_whole_suite_ran_on_the_accelerator() -> None:
    """A guard of the guard: operations were really counted there."""
    with accelerator() as device:
        run = loop._Run(of("dfa"), small_quadratic(), Path(), FAKE)
        assert isinstance(device, Accelerator)
        before = device.operations
        run.objective.backward(run.dataset.train_x[:8], run.dataset.train_y[:8])
        assert device.operations > before + 50


def test_what_make_test_gpu_runs_passes_here_and_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.device import on_hardware

    monkeypatch.setattr(on_hardware, "eval_batches", lambda ds: eval_batches(ds, 2, 32))
    monkeypatch.setattr(on_hardware, "spec_of", of)
    with accelerator():
        assert on_hardware.compared("dfa", FAKE, small_quadratic(), tmp_path) == []
        assert on_hardware.judged(FAKE, small_quadratic(), tmp_path) == []
        assert len(on_hardware.speed(FAKE, small_quadratic(), steps=1)) == 5
        monkeypatch.setattr(on_hardware, "FACTS", -1.0)
        found = on_hardware.compared("bp", FAKE, small_quadratic(), tmp_path)
    assert found[0] == "bp: scale.mean of the same network differs"
