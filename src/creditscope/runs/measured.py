"""Facts added to finished runs: everything that this version measures, from the weights that a store keeps."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from creditscope.errors import CreditscopeError
from creditscope.files import dump_json, make_directory, read_json, write_atomic
from creditscope.measure.facts import Facts
from creditscope.protocol.report import DiagnosticReport
from creditscope.runs.record import measure_full
from creditscope.runs.store import Store
from creditscope.training.certify import certify_bundle

SAME = 1e-3
"""How far, relatively, growth and ‖g_L‖ may be from the run's own report: rounding of another processor, no more."""
CERTIFICATE = "certificate"


def lacking(store: Store, key: str) -> list[str]:
    """What this version measures and the file of the run does not hold; all of it where there is no file."""
    path = _file(store, key)
    wanted = [*Facts.model_fields, CERTIFICATE]
    if not path.exists():
        return wanted
    content = read_json(path, "measured facts")
    facts = content.get("facts") if isinstance(content, dict) else None
    if not isinstance(facts, dict):
        return wanted
    found = [name for name in Facts.model_fields if name not in facts or (name == "training" and not facts[name])]
    bundle = store.bundle(key)
    if not bundle.spec.frozen:
        unread = not facts.get("profile") and not bundle.report.get("facts", {}).get("profile")
        found += ["profile"] * (unread and "profile" not in found) + [CERTIFICATE] * (not content.get(CERTIFICATE))
    return found


def measure(
    store: Store, key: str, data_dir: str | Path | None = None, device: torch.device | None = None
) -> DiagnosticReport:
    """Measure the final network of a run at level full and keep it under full/, with the certificate of its rule.

    A null has no certificate: no block of it is trained. An older file is replaced when the new one is whole. Weights that do
    not give what the run's report states are refused."""
    bundle = store.bundle(key)
    content = measure_full(bundle, None, data_dir, device)
    report = DiagnosticReport.from_dict(content, key)
    recorded = DiagnosticReport.from_dict(bundle.report, str(bundle.path)).facts
    for name, then, now in (
        ("growth", recorded.scale.growth, report.facts.scale.growth),
        ("‖g_L‖", recorded.reference.per_sample[-1], report.facts.reference.per_sample[-1]),
    ):
        if not (math.isclose(then, now, rel_tol=SAME) or then == now or (math.isnan(then) and math.isnan(now))):
            raise CreditscopeError(f"the weights of run {key[:10]} give {name} {now:g} and its report states {then:g}")
    if not bundle.spec.frozen:
        report = report.with_certificate(certify_bundle(bundle, bundle.dataset(data_dir, device)))
        content = report.to_dict()
    path = _file(store, key)
    make_directory(path.parent, f"cannot write to the store {store.root}", parents=False)
    write_atomic(path, dump_json(content))
    return report


def _file(store: Store, key: str) -> Path:
    return store.root / "full" / f"{key}.json"
