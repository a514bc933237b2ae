"""Two thousand runs on a thousand simulated workers, with failures: nothing lost, nothing twice."""

from __future__ import annotations

import pytest

from creditscope.runs.store import Store

driver = pytest.importorskip("benchmarks.driver", exc_type=ImportError)  # measures its memory as Windows does not
DIES, RAISES, SILENT = driver.DIES, driver.RAISES, driver.SILENT
Simulated, simulate, specs = driver.Simulated, driver.simulate, driver.specs


def test_two_thousand_runs_with_failures(tmp_path):
    found = simulate(tmp_path, 2000, 1000, 0.05)
    assert found["rows"] == 2000
    assert (found["lost"], found["twice"], found["started_again_when_whole"]) == (0, 0, 0)
    assert found["workers_at_once"] == 1000
    assert set(found["failed"]) == {DIES, RAISES, SILENT}
    assert found["commands"] > 1  # the failures were trained by the same command again


def test_the_simulation_sees_a_run_that_is_started_twice(tmp_path):
    (tmp_path / "parts").mkdir()
    store = Store(tmp_path / "store", create=True)
    executor = Simulated(tmp_path / "parts", 10, 0.0)
    (spec,) = specs(1)
    arguments = spec.model_dump(), str(store.out(spec)), None
    executor.submit(None, *arguments).result(timeout=60)
    assert executor.written[spec.hash] == 1
    assert executor.started[spec.hash] == 1
    assert store.has(spec)
    executor.shutdown()
