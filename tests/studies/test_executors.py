"""The engines beside the local one give the same bits; each is skipped where its library is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.studies.driver import TINY
from tests.studies.kills import result_hashes
from tests.studies.test_store import Inline

from creditscope.studies.executors import make_executor
from creditscope.studies.run import run_store
from creditscope.studies.store import Store
from creditscope.training.spec import make_spec

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "module", "options"),
    [("dask", "distributed", {}), ("slurm", "submitit", {"cluster": "local"}), ("ray", "ray", {})],
)
def test_same_result_hashes_as_in_this_process(name, module, options, tmp_path):
    pytest.importorskip(module)
    specs = [make_spec({**TINY, "epochs": 1, "seed": seed}) for seed in range(2)]

    def results(executor: Any, where: Path) -> dict[str, str]:
        assert run_store(specs, Store(where, create=True), executor) == []
        executor.shutdown()
        return result_hashes(where)

    executor = make_executor(name, 1, folder=str(tmp_path / "logs"), **options)
    assert results(executor, tmp_path / "theirs") == results(Inline(), tmp_path / "ours")
