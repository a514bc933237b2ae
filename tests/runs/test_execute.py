"""Order and progress of many runs whose epochs do not cost the same."""

from __future__ import annotations

import io
from concurrent.futures import Future
from typing import Any

import pytest
from rich.console import Console
from tests.runs.driver import Inline

from creditscope.runs import execute as run
from creditscope.training.bundle import TRAJECTORY
from creditscope.training.spec import make_spec

RESMLP = make_spec({"dataset": "cifar10", "arch": "resmlp", "method": "bp", "epochs": 100, "seed": 1})
VIT = make_spec({"dataset": "cifar10", "arch": "vit-mini", "method": "bp", "epochs": 5, "seed": 1})


EP = make_spec({"dataset": "cifar10", "arch": "resmlp", "method": "ep", "epochs": 30, "seed": 1})


@pytest.mark.parametrize("costly", [VIT, EP], ids=["five epochs of a transformer", "thirty of equilibrium propagation"])
def test_costly_epochs_go_before_a_hundred_of_a_small_network(tmp_path, costly):
    order = []

    class Noting(Inline):
        """Answers at once that the run is done, and notes the order."""

        def submit(self, fn: Any, spec: dict[str, Any], *rest: Any) -> Future[Any]:
            order.append(spec)
            return super().submit(lambda: (run.DONE, "", ""))

    jobs = [(spec, tmp_path / spec.hash) for spec in (RESMLP, costly)]
    assert run.execute(jobs, Noting(), console=Console(file=io.StringIO())) == []
    assert order == [costly.model_dump(), RESMLP.model_dump()]


def test_the_time_left_weighs_epochs_by_their_cost(tmp_path, monkeypatch):
    """One of five long epochs in 40 s: four times 40 s for its run, and 100 / 50 of that for the small network's."""
    todo = {spec.hash: (spec, tmp_path / spec.hash) for spec in (RESMLP, VIT)}
    clock = [0.0]
    monkeypatch.setattr("creditscope.runs.execute.time.monotonic", lambda: clock[0])
    said = io.StringIO()
    bar = run._Bar(todo, Console(file=said))
    partial = tmp_path / f".{VIT.hash}.partial"
    partial.mkdir()
    (partial / TRAJECTORY).write_bytes(b"{}\n" * 2)  # the initialisation and one epoch
    clock[0] = 40.0
    bar.show(set(todo))
    left = 40.0 * (4 + 100 / run.ARCH_COST["vit-mini"]) / 60
    assert said.getvalue().strip() == f"2 of 2 runs left, about {left:.0f} minutes"


def test_a_look_at_the_progress_waits_as_long_as_the_last_one_took(monkeypatch):
    """With n runs a look takes a time that grows with n, and so does the number of looks: without this, n squared."""
    clock = [0.0]
    monkeypatch.setattr("creditscope.runs.execute.time.monotonic", lambda: clock[0])
    pace = run._Pace()

    def due() -> bool:
        return pace.due

    assert due()
    with pace:
        clock[0] += 3.0
    assert not due()
    clock[0] += run.LOOKING * 3.0 - 0.1
    assert not due()
    clock[0] += 0.2
    assert due()
    with pace:
        clock[0] += 0.0
    clock[0] += run.POLL - 0.1
    assert not due()


def test_the_bar_counts_the_epochs_of_unfinished_runs(tmp_path):
    some = [make_spec({"epochs": 1 + k, "seed": k}) for k in range(5)]
    jobs = {spec.hash: (spec, tmp_path / spec.hash) for spec in some}
    bar = run._Bar(jobs, Console(file=io.StringIO()))
    assert bar._done(set(jobs)) == 0
    longest = next(key for key, (spec, _) in jobs.items() if spec.epochs == 5)
    partial = tmp_path / f".{longest}.partial"
    partial.mkdir()
    (partial / "trajectory.jsonl").write_text("{}\n" * 4)  # before training, and three epochs
    assert bar._done(set(jobs)) == pytest.approx(3)
    assert bar._done({longest}) == pytest.approx(1 + 2 + 3 + 4 + 3)
