"""The training loop: a second, plain implementation of it; interruption and resumption to the same bits; refusals."""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from tests.known import known
from tests.refusals import refusal
from torch import Tensor

from creditscope import CreditscopeError, train
from creditscope.data.dataset import epoch_batches
from creditscope.training.build import build_model, derived_seed
from creditscope.training.bundle import load_bundle
from creditscope.training.loop import discard_partial
from creditscope.training.spec import RunSpec

from .small import DFA_RMS, FA_NONE, hashes, small_images, small_quadratic, spec, stop_after, use

METHODS: dict[str, dict[str, Any]] = {
    "bp": {},
    "fa": FA_NONE,
    "dfa": DFA_RMS,
    "penalty, site output": {**DFA_RMS, "penalty": 0.01, "credit_site": "output"},
    "frozen": {**DFA_RMS, "train_last": 0},
    "random targets": {**FA_NONE, "targets": "random"},
    "another rate for the head": {**DFA_RMS, "head_lr": 1e-4},
    "clipped": {**DFA_RMS, "grad_clip": 0.1},
    "clipped as one": {"grad_clip": 0.1, "clip_over": "global"},
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, small_quadratic())


def weights(out: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(out / "model.safetensors")


def in_child(target: Any) -> int:
    """Run in a forked process; its exit code."""
    child = multiprocessing.get_context("fork").Process(target=target)
    child.start()
    child.join(60)
    return known(child.exitcode)


# ---- what is computed ----------------------------------------------------------------------------------------------


def plainly_trained(s: RunSpec, credit: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[float]]:
    """The run once more, without creditscope's loop: torch's own scheduler and unfused AdamW, one sum as objective."""
    ds = small_quadratic()
    model: Any = build_model(s, ds.input_shape, ds.n_classes)
    head = [*model.out_ln.parameters(), *model.out_head.parameters()]
    rest = [*model.embed.parameters(), *model.blocks.parameters()]
    groups: list[dict[str, Any]] = [{"params": rest}, {"params": head, "lr": s.head_lr or s.lr or 0}]
    optimizer = torch.optim.AdamW(groups, lr=s.lr or 0, weight_decay=s.weight_decay, fused=False)
    steps = math.ceil(len(ds.train_y) / s.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=(s.schedule_epochs or 0) * steps)
    losses = []
    for epoch in range(1, (s.epochs or 0) + 1):
        seen = 0.0
        for x, y in epoch_batches(ds, s.batch_size, s.seed, epoch, False):
            optimizer.zero_grad()
            logits, hs = model(x, return_hidden=True)
            loss = F.cross_entropy(logits, y)
            seen += float(loss.detach()) * len(y)
            if s.method == "bp":
                objective = loss
            else:
                e = (torch.softmax(logits, 1) - F.one_hot(y, 10)).detach()
                a = [e @ credit[f"B.{layer}"] for layer in range(3)]
                a = [v / (v.square().mean(1, keepdim=True).sqrt() + 1e-6) for v in a]
                objective = (hs[0] * a[0]).sum() / len(y)
                for layer, block in enumerate(model.blocks):
                    objective = objective + (block(hs[layer].detach()) * a[layer]).sum() / len(y)
                objective = objective + F.cross_entropy(model.readout(hs[-1].detach()), y)
            objective.backward()
            if s.grad_clip:
                everything = [list(model.parameters())]
                parts = [list(module.parameters()) for module in (model.embed, *model.blocks)]
                for params in everything if s.clip_over == "global" else parts:
                    clipped_by_hand(params, s.grad_clip)
            optimizer.step()
            schedule.step()
        losses.append(seen / len(ds.train_y))
    return model.state_dict(), losses


def clipped_by_hand(params: list[Tensor], largest: float) -> None:
    """g * min(1, c / (‖g‖ + 1e-6)), ‖g‖ over all of `params` in float64."""
    square = sum(float(p.grad.double().square().sum()) for p in params if p.grad is not None)
    for p in params:
        if p.grad is not None:
            p.grad = p.grad * min(1.0, largest / (math.sqrt(square) + 1e-6))


CLIPPED = [{"grad_clip": c, "clip_over": over} for c in (0.05, 0.5) for over in ("module", "global")]


@pytest.mark.parametrize("changes", [{**rule, **clip} for rule in ({}, DFA_RMS) for clip in CLIPPED], ids=str)
def test_clipped_training_equals_a_plain_loop_that_clips_each_part_by_hand(tmp_path, changes):
    """One step of Adam does not see the length of a gradient, many do: three epochs, to 1e-6 of the largest weight."""
    s = spec(**changes)
    train(s, tmp_path / "run")
    credit = safetensors.torch.load_file(tmp_path / "run/credit.safetensors")
    state, _ = plainly_trained(s, credit)
    for name, t in weights(tmp_path / "run").items():
        np.testing.assert_allclose(t, state[name], rtol=0, atol=2e-6, err_msg=name)
    other, _ = plainly_trained(s.model_copy(update={"grad_clip": None}), credit)
    assert any(float((other[name] - t).abs().max()) > 1e-4 for name, t in state.items())  # and the clip does something


@pytest.mark.parametrize(
    "changes",
    [{}, DFA_RMS, {**DFA_RMS, "schedule_epochs": 5}, {**DFA_RMS, "head_lr": 1e-4}],
    ids=["bp", "dfa", "longer schedule", "another rate for the head"],
)
def test_training_equals_a_plain_loop_with_torchs_own_scheduler(tmp_path, changes):
    s = spec(**changes)
    bundle = train(s, tmp_path / "run")
    state, losses = plainly_trained(s, safetensors.torch.load_file(tmp_path / "run/credit.safetensors"))
    for name, t in weights(tmp_path / "run").items():
        np.testing.assert_allclose(t, state[name], rtol=2e-3, atol=2e-5, err_msg=name)
    np.testing.assert_allclose([line["train_loss"] for line in bundle.trajectory[1:]], losses, rtol=1e-4)


def test_first_epoch_of_a_longer_schedule_is_a_prefix_and_not_that_of_a_shorter_one(tmp_path):
    whole = train(spec(), tmp_path / "whole")
    prefix = train(spec(epochs=1, schedule_epochs=3), tmp_path / "prefix")
    short = train(spec(epochs=1), tmp_path / "short")
    assert prefix.trajectory == whole.trajectory[:2]
    assert short.trajectory[1] != whole.trajectory[1]


def test_trajectory_has_a_line_per_epoch_and_its_accuracy_is_that_of_the_saved_weights(tmp_path):
    bundle = train(spec(**DFA_RMS), tmp_path / "run")
    assert [line["epoch"] for line in bundle.trajectory] == [0, 1, 2, 3]
    ds = small_quadratic()
    with torch.no_grad():
        accuracy = float((bundle.model(ds)(ds.test_x).argmax(1) == ds.test_y).double().mean())
    assert bundle.accuracy == accuracy == bundle.report["headline_acc"][0]
    assert bundle.trajectory[0]["train_loss"] == "NaN"
    assert {len(bundle.trajectory[-1][key]) for key in ("h", "g_per_sample", "cosine")} == {3}


def test_random_targets_do_not_depend_on_the_labels_and_differ_from_them(tmp_path, monkeypatch):
    random = train(spec(**DFA_RMS, targets="random"), tmp_path / "random")
    labels = train(spec(**DFA_RMS), tmp_path / "labels")
    ds = small_quadratic()
    use(monkeypatch, dataclasses.replace(ds, train_y=torch.zeros_like(ds.train_y)))
    blind = train(spec(**DFA_RMS, targets="random"), tmp_path / "blind")
    assert {**blind.files, "report.json": ""} == {**random.files, "report.json": ""}
    facts = [{**bundle.report["facts"], "profile": None} for bundle in (blind, random)]
    assert facts[0] == facts[1]  # the readouts of the profile do read the labels
    assert labels.files["model.safetensors"] != random.files["model.safetensors"]
    assert labels.files["credit.safetensors"] == random.files["credit.safetensors"]


def test_random_targets_are_redrawn_for_every_batch_of_every_epoch(tmp_path, monkeypatch):
    from creditscope.training.objective import Objective

    seen: list[tuple[int, ...]] = []
    original = Objective.backward

    def watching(self: Objective, x: Tensor, y: Tensor, *rest: Any) -> Tensor:
        seen.append(tuple(y.tolist()))
        return original(self, x, y, *rest)

    monkeypatch.setattr(Objective, "backward", watching)
    train(spec(**DFA_RMS, targets="random"), tmp_path / "run")
    assert len(seen) == 3 * 4
    assert len(set(seen)) == 3 * 4
    drawn = np.bincount([label for batch in seen for label in batch], minlength=10)
    assert drawn.sum() == 600
    assert ((drawn - 60) ** 2 / 60).sum() < 27.9  # chi-squared, 9 degrees of freedom, 1 in 1,000


def test_every_method_starts_from_the_same_network_and_another_seed_from_another(tmp_path):
    def start(name: str, **changes: Any) -> dict[str, Any]:
        bundle = train(spec(epochs=1, **changes), tmp_path / name)
        return {key: bundle.trajectory[0][key] for key in ("accuracy", "h", "g_per_sample")}

    starts = {name: start(name, **changes) for name, changes in METHODS.items()}
    assert all(value == starts["bp"] for value in starts.values())
    assert start("other seed", seed=43) != starts["bp"]
    model_files = {train(spec(epochs=1, **c), tmp_path / n).files["model.safetensors"] for n, c in METHODS.items()}
    assert len(model_files) == len(METHODS)


def test_seed_changes_weights_and_feedback(tmp_path):
    one, two = (train(spec(**DFA_RMS, seed=seed), tmp_path / str(seed)) for seed in (1, 2))
    assert one.files["model.safetensors"] != two.files["model.safetensors"]
    assert one.files["credit.safetensors"] != two.files["credit.safetensors"]


def test_frozen_null_keeps_its_blocks_and_trains_the_rest(tmp_path):
    s = spec(**DFA_RMS).null("matched")
    bundle = train(s, tmp_path / "null")
    ds = small_quadratic()
    initial = build_model(s, ds.input_shape, ds.n_classes).state_dict()
    for name, t in bundle.model(ds).state_dict().items():
        assert torch.equal(t, initial[name]) == name.startswith("blocks"), name


def test_training_leaves_the_global_generator_and_the_thread_count_alone(tmp_path):
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train(spec(**DFA_RMS), tmp_path / "a")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    train(spec(**DFA_RMS), tmp_path / "b")
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")


@pytest.mark.parametrize("arch", ["vit-mini", "small-cnn"])
def test_image_architectures_train_and_resume_to_the_same_bits(tmp_path, monkeypatch, arch):
    use(monkeypatch, small_images())
    depth = {"depth": 1} if arch == "vit-mini" else {"depth": 3}
    s = spec(dataset="cifar10", arch=arch, width=4, epochs=2, batch_size=3, **FA_NONE, **depth)
    assert s.augment
    train(s, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(s, tmp_path / "parts", progress=stop_after(1))
    train(s, tmp_path / "parts")
    assert hashes(tmp_path / "whole") == hashes(tmp_path / "parts")


def test_a_run_that_diverges_ends_in_a_bundle_whose_report_says_so(tmp_path, monkeypatch):
    ds = small_quadratic()
    x = ds.train_x.clone()
    x[0, 0] = math.nan
    use(monkeypatch, dataclasses.replace(ds, train_x=x))
    bundle = train(spec(), tmp_path / "run")
    assert bundle.trajectory[-1]["diverged"] is True
    assert bundle.trajectory[0]["diverged"] is False
    assert load_bundle(tmp_path / "run").report["verdict"]["line"] == "VERDICT: needs walk-back: diverged"


# ---- the same bits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_interrupted_and_resumed_gives_the_files_of_an_uninterrupted_run(tmp_path, name):
    s = spec(**METHODS[name], epochs=4)
    train(s, tmp_path / "whole")
    for epoch in (0, 1, 1, 3):  # twice at the same place; epoch 0: before anything was saved
        with pytest.raises(KeyboardInterrupt):
            train(s, tmp_path / "parts", progress=stop_after(epoch))
        assert not (tmp_path / "parts").exists()
    seen: list[int] = []
    train(s, tmp_path / "parts", progress=lambda done, total, line: seen.append(done))
    assert seen == [3, 4]
    assert hashes(tmp_path / "parts") == hashes(tmp_path / "whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["parts", "whole"]


def test_interrupted_in_the_middle_of_an_epoch(tmp_path, monkeypatch):
    from creditscope.training.objective import Objective

    s = spec(**DFA_RMS)
    train(s, tmp_path / "whole")
    calls = 0
    original = Objective.backward

    def failing(self: Objective, x: Tensor, y: Tensor, *rest: Any) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 6:  # four steps per epoch: the second step of the second epoch
            raise RuntimeError("power cut")
        return original(self, x, y, *rest)

    monkeypatch.setattr(Objective, "backward", failing)
    with pytest.raises(RuntimeError, match="power cut"):
        train(s, tmp_path / "parts")
    train(s, tmp_path / "parts")
    assert hashes(tmp_path / "parts") == hashes(tmp_path / "whole")


def test_killed_processes_leave_nothing_behind_in_the_finished_bundle(tmp_path):
    s = spec(**FA_NONE)
    train(s, tmp_path / "whole")

    def killed() -> None:
        train(
            s, tmp_path / "parts", progress=lambda d, n, line: os.kill(os.getpid(), signal.SIGKILL) if d == 2 else None
        )

    assert in_child(killed) == -signal.SIGKILL
    assert not (tmp_path / "parts").exists()
    # what a process leaves that is killed while it writes
    (tmp_path / ".parts.partial/.resume.safetensors.4711.tmp").write_bytes(b"half a file")
    train(s, tmp_path / "parts")
    assert hashes(tmp_path / "parts") == hashes(tmp_path / "whole")


def test_two_processes_write_the_files_that_one_writes(tmp_path):
    specs = {"a": spec(**DFA_RMS), "b": spec(**FA_NONE)}
    for name, s in specs.items():
        train(s, tmp_path / "one" / name)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=train, args=(s, tmp_path / "two" / name)) for name, s in specs.items()]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0]
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")
    assert len(hashes(tmp_path / "one")) == 2 * 5


def test_hashed_files_hold_no_time_host_path_or_process(tmp_path):
    train(spec(), tmp_path / "some-directory")
    for path in (tmp_path / "some-directory").iterdir():
        content = path.read_bytes()
        for word in (b"some-directory", os.uname().nodename.encode(), str(tmp_path).encode()):
            assert word not in content


# ---- finished, locked, foreign --------------------------------------------------------------------------------------


def test_finished_run_is_returned_without_training(tmp_path):
    first = train(spec(), tmp_path / "run")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "run").iterdir()}
    calls: list[Any] = []
    again = train(spec(), tmp_path / "run", progress=lambda *args: calls.append(args))
    assert again.files == first.files
    assert calls == []
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "run").iterdir()}


def test_directory_of_another_run_is_refused_and_left_alone(tmp_path):
    train(spec(), tmp_path / "run")
    before = hashes(tmp_path / "run")
    assert "holds another run" in refusal(lambda: train(spec(seed=7), tmp_path / "run"))
    assert hashes(tmp_path / "run") == before


def test_directory_or_file_that_is_no_bundle_is_refused_and_left_alone(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.tex").write_text("years of work")
    assert "is not a bundle" in refusal(lambda: train(spec(), tmp_path / "full"))
    assert (tmp_path / "full/thesis.tex").read_text() == "years of work"
    (tmp_path / "file").write_text("")
    refusal(lambda: train(spec(), tmp_path / "file"))
    refusal(lambda: train(spec(), tmp_path / "file" / "below"))


def test_empty_directory_is_filled(tmp_path):
    (tmp_path / "run").mkdir()
    train(spec(epochs=1), tmp_path / "run")
    assert load_bundle(tmp_path / "run").spec == spec(epochs=1)


def test_interrupted_run_of_another_spec_is_refused_until_it_is_discarded(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(spec(), tmp_path / "run", progress=stop_after(1))
    assert "belongs to another run" in refusal(lambda: train(spec(seed=7), tmp_path / "run"))
    discard_partial(tmp_path / "run")
    assert train(spec(seed=7), tmp_path / "run").spec.seed == 7


def test_truncated_resume_file_is_one_line(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(spec(), tmp_path / "run", progress=stop_after(1))
    resume = tmp_path / ".run.partial/resume.safetensors"
    resume.write_bytes(resume.read_bytes()[:100])
    assert "resume.safetensors" in refusal(lambda: train(spec(), tmp_path / "run"))


def test_second_process_is_refused_while_the_first_one_trains(tmp_path):
    def second() -> None:
        try:
            train(spec(), tmp_path / "run")
        except CreditscopeError as error:
            os._exit(17 if "another process" in str(error) else 1)
        os._exit(0)

    codes: list[int] = []

    def progress(done: int, total: int, line: dict[str, Any]) -> None:
        if done == 1:
            codes.append(in_child(second))

    train(spec(), tmp_path / "run", progress=progress)
    assert codes == [17]


def test_derived_seeds_are_distinct_and_fit_a_generator():
    seeds = {
        derived_seed(s, *words) for s in (0, 1, 42, 2**31 - 1) for words in ((1,), (2,), (2, 1), (2, 2), (3, 1), (1, 2))
    }
    assert len(seeds) == 24
    assert all(0 <= seed < 2**63 for seed in seeds)
