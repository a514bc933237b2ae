"""Every test process uses one thread: tests run in parallel processes, and sums then come out the same everywhere."""

import os
from collections import Counter
from typing import Any

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault(
    "CREDITSCOPE_CHECK_UNTOUCHED", "1"
)  # every measurement compares the model's state before and after

import torch  # noqa: E402  (the thread count is read when torch is loaded)

torch.set_num_threads(1)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Tests that make environments from the network run where they are asked for: `-m network`."""
    if "network" not in config.option.markexpr:
        asked = [item for item in items if not item.get_closest_marker("network")]
        config.hook.pytest_deselected(items=[item for item in items if item not in asked])
        items[:] = asked


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Each reason for which tests were skipped, in one line with how many: a skip that nobody reads is a test that is gone."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[" ".join(reason.removeprefix("Skipped: ").split())] += 1
    for reason, n in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {n}: {reason}")
    if not reasons:
        terminalreporter.write_line("skipped 0")


def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    """For `make test-all`: nothing may be skipped but what CREDITSCOPE_MAY_SKIP names (words of the reasons, comma-separated)."""
    allowed = os.environ.get("CREDITSCOPE_MAY_SKIP")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if allowed is None or reporter is None or hasattr(session.config, "workerinput"):
        return
    words = [word for word in allowed.split(",") if word]
    left = [r for r in reporter.stats.get("skipped", ()) if not any(w in str(r.longrepr) for w in words)]
    if left and exitstatus == 0:
        session.exitstatus = 1
