"""One network in three loops: plain, Lightning, transformers Trainer. The trajectory is the same, and so is the stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from creditscope import CreditscopeError, DiagnosticThresholds, Monitor
from creditscope.credit import BP

from ..stream.nets import D_IN, C, D, batch
from ..stream.test_find import Residual

EPOCHS, LR = 3, 0.05
ALWAYS = DiagnosticThresholds(h_norm_explosion_ratio=1e-3, g_norm_floor=1e6)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(D_IN, D), nn.Linear(D, C)
        self.stack = nn.ModuleList(Residual() for _ in range(3))

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        h = self.first(x)
        for block in self.stack:
            h = block(h)
        logits = self.last(h)
        return {"logits": logits} if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}


def fresh() -> Net:
    torch.manual_seed(3)
    return Net()


def data() -> TensorDataset:
    return TensorDataset(*batch((D_IN,), n=96, seed=7))


def options(**more: Any) -> dict[str, Any]:
    return {"credit": BP(), "blocks": "stack.*", **more}


def given() -> list[Any]:
    return [batch((D_IN,), n=128, seed=k) for k in range(2)]


def plain() -> list[dict[str, Any]]:
    model = fresh()
    monitor = Monitor(model, given(), **options())
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    monitor.step(0)
    for epoch in range(1, EPOCHS + 1):
        for x, y in DataLoader(data(), batch_size=32):
            optimizer.zero_grad()
            model(x, y)["loss"].backward()
            optimizer.step()
        monitor.step(epoch)
    return monitor.history


def lightning_fit(directory: Path, **more: Any) -> Any:
    pytest.importorskip("lightning", reason="extra lightning is missing: the Lightning callback is NOT tested")
    import lightning.pytorch as pl

    from creditscope.integrations.lightning import MonitorCallback

    class Module(pl.LightningModule):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.net = fresh()

        def training_step(self, item: Any, _: int) -> Tensor:
            return self.net(*item)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=LR)

    callback = MonitorCallback(given(), network="net", **options(**more))
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=pl.loggers.CSVLogger(directory),
        callbacks=[callback],
        **quiet,  # type: ignore[arg-type,unused-ignore]
    )
    trainer.fit(Module(), DataLoader(data(), batch_size=32))
    return callback.monitor, trainer


@pytest.mark.parametrize(
    ("network", "said"),
    [("no_such", "network='no_such' is no part of Net; name one of its parts: first, last, stack"),
     (lambda module: 3, "network(module) returned a int; return the torch module to measure")],
)  # fmt: skip
def test_a_network_that_is_not_there_is_one_line(network, said):
    pytest.importorskip("lightning", reason="extra lightning is missing: the Lightning callback is NOT tested")
    from creditscope.integrations.lightning import MonitorCallback

    with pytest.raises(CreditscopeError) as caught:
        MonitorCallback(given(), network=network).on_fit_start(None, fresh())
    assert str(caught.value) == said


def hugging_face_run(directory: Path, **more: Any) -> Any:
    pytest.importorskip("transformers", reason="extra hf is missing: the Trainer callback is NOT tested")
    pytest.importorskip(
        "accelerate", reason="accelerate is missing (transformers.Trainer needs it): Trainer NOT tested"
    )
    import transformers

    from creditscope.integrations.transformers import MonitorCallback

    class InOrder(transformers.Trainer):  # type: ignore[misc,unused-ignore]
        def get_train_dataloader(self) -> Any:
            items = [{"x": x, "labels": y} for x, y in zip(*data().tensors, strict=True)]
            return DataLoader(items, batch_size=32)  # type: ignore[arg-type]

    model = fresh()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    callback = MonitorCallback(given(), **options(**more))
    arguments = transformers.TrainingArguments(
        str(directory),
        num_train_epochs=EPOCHS,
        max_grad_norm=0.0,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    trainer = InOrder(model, arguments, optimizers=(optimizer, constant), callbacks=[callback], train_dataset=data())
    trainer.train()
    return callback.monitor, trainer


def assert_same_lines(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    assert [line["epoch"] for line in ours] == [line["epoch"] for line in theirs] == list(range(EPOCHS + 1))
    for a, b in zip(ours, theirs, strict=True):
        assert a.keys() == b.keys()
        assert a["fired"] == b["fired"]
        for key in ("h", "g_per_sample", "cosine", "gamma", "growth", "stability", "eval_loss", "eval_accuracy"):
            np.testing.assert_allclose(a[key], b[key], rtol=1e-6, err_msg=key)


def test_lightning_gives_the_trajectory_of_a_plain_loop_and_logs_it(tmp_path):
    monitor, trainer = lightning_fit(tmp_path / "log", path=tmp_path / "run")
    assert_same_lines(plain(), monitor.history)
    lines = [json.loads(line) for line in (tmp_path / "run/trajectory.jsonl").read_text().splitlines()]
    assert lines == monitor.history
    assert monitor.history[0]["h"] != monitor.history[1]["h"]
    logged = (Path(trainer.logger.log_dir) / "metrics.csv").read_text()
    assert "creditscope/growth" in logged


def test_transformers_trainer_gives_the_trajectory_of_a_plain_loop(tmp_path):
    monitor, _ = hugging_face_run(tmp_path)
    assert_same_lines(plain(), monitor.history)


@pytest.mark.parametrize(
    ("run", "epochs"),
    [(lightning_fit, lambda t: t.current_epoch), (hugging_face_run, lambda t: t.state.global_step / 3)],
)
def test_a_monitor_that_fires_stops_the_training(run, epochs, tmp_path):
    monitor, trainer = run(tmp_path, thresholds=ALWAYS, patience=2)
    assert [line["epoch"] for line in monitor.history] == [0, 1]
    assert epochs(trainer) == 1
    monitor, _ = run(tmp_path, every=4)
    assert [line["epoch"] for line in monitor.history] == [0, 4, 8]
