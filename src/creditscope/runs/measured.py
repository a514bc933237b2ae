"""Facts added to finished runs: everything that this version measures, from the weights that a store keeps."""

from __future__ import annotations

import math
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.files import dump_json, read_json, write_atomic
from creditscope.measure.facts import Facts
from creditscope.protocol.report import DiagnosticReport
from creditscope.runs.record import measure_full
from creditscope.runs.store import Store

SAME = 1e-3
"""How far, relatively, growth and ‖g_L‖ may be from the run's own report: rounding of another processor, no more."""


def lacking(store: Store, key: str) -> list[str]:
    """Facts that this version measures and the file of the run does not name; all of them where there is no file."""
    path = _file(store, key)
    if not path.exists():
        return list(Facts.model_fields)
    content = read_json(path, "measured facts")
    facts = content.get("facts") if isinstance(content, dict) else None
    return [name for name in Facts.model_fields if not isinstance(facts, dict) or name not in facts]


def measure(store: Store, key: str, data_dir: str | Path | None = None) -> DiagnosticReport:
    """Measure the final network of a run at level full and keep it under full/; an older file is replaced when the new one
    is whole. Weights that do not give what the run's report states are refused."""
    bundle = store.bundle(key)
    content = measure_full(bundle, None, data_dir)
    report = DiagnosticReport.from_dict(content, key)
    recorded = DiagnosticReport.from_dict(bundle.report, str(bundle.path)).facts
    for name, then, now in (
        ("growth", recorded.scale.growth, report.facts.scale.growth),
        ("‖g_L‖", recorded.reference.per_sample[-1], report.facts.reference.per_sample[-1]),
    ):
        if not (math.isclose(then, now, rel_tol=SAME) or then == now or (math.isnan(then) and math.isnan(now))):
            raise CreditscopeError(f"the weights of run {key[:10]} give {name} {now:g} and its report states {then:g}")
    path = _file(store, key)
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise CreditscopeError(f"cannot write to the store {store.root}: {error.strerror or error}") from None
    write_atomic(path, dump_json(content))
    return report


def _file(store: Store, key: str) -> Path:
    return store.root / "full" / f"{key}.json"
