"""What the recipes share: where entries go, who audits, how rules are named."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from creditscope.board.claim import read_claim, sealed
from creditscope.board.entry import Entry, read_entry
from creditscope.board.make import evaluation, write_entry
from creditscope.runs.groups import Group, nulls_for
from creditscope.runs.record import Record
from creditscope.training.spec import RunSpec

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = ROOT / "board" / "entries"
BY = "creditscope"
MOST_REPORTS = 3
"""Of one entry; the accuracies of all seeds stand in each of them."""
NAMES = {
    "bp": "backpropagation", "fa": "FA", "dfa": "DFA", "ep": "EP", "sb": "State Bridge", "cb": "Credit Bridge",
    "fa-weights": "FA inside blocks", "usf": "sign symmetry uSF", "brsf": "sign symmetry brSF", "frsf": "sign symmetry frSF",
    "kp": "Kolen-Pollack", "wm": "weight mirror", "sdfa": "sign-DFA", "sparse-dfa": "sparse DFA",
    "dfa-sublayers": "DFA inside blocks", "drtp": "DRTP", "greedy": "greedy local losses", "pc": "predictive coding",
    "epc": "error-based predictive coding", "dtp": "difference target propagation", "fgrad": "forward gradient",
    "nodepert": "node perturbation", "pepita": "PEPITA", "ff": "Forward-Forward", "random": "random credit (control)",
}  # fmt: skip


def title(spec: RunSpec) -> str:
    """The label of a run with the rule's name spelt out: "DFA (rms, λ=0.01)"."""
    rest = spec.label.removeprefix(spec.method)
    return f"{NAMES.get(spec.method, spec.method)} {rest}".strip()


def put(name: str, fields: dict[str, Any], reports: Sequence[Any], out: Path = ENTRIES, **stated: Any) -> Entry:
    """Write the entry and say what it holds. What an earlier run of the recipe wrote is replaced, or left as it is where only
    the date would change; evaluations by others stay."""
    made, files = evaluation(reports, by=BY, **stated)
    place, kept = out / name, []
    if place.is_dir():
        before = read_claim(place)
        kept = [e for e in before.to_dict()["evaluations"] if e["kind"] == "external"]
        files |= {f["file"]: (place / f["file"]).read_bytes() for e in kept for f in e["reports"]}
        dated = made | {"date": before.evaluations[0].date.isoformat()}
        if sealed({**fields, "name": name, "evaluations": [dated, *kept]}, name) == before:
            print(f"{name}: as it was", flush=True)
            return read_entry(place)
    entry = write_entry(place, {**fields, "evaluations": [made, *kept]}, files, replace=True)
    audit = entry.current
    margin = f", margin {audit.margin.margin_pp:+.1f} pp" if audit.margin else ""
    print(
        f"{name}: audited {audit.accuracies}{margin}, {audit.locality or 'not certified'}, {audit.status}", flush=True
    )
    return entry


def evidence_of(group: Group, pool: Sequence[Record]) -> tuple[list[Any], dict[str, Any]]:
    """(reports of the networks of a group, what `put` states of them): archived runs, each with its nulls from the pool."""
    found = [nulls_for(record, pool) for record in group.records]
    kinds = ("matched", "bp", "bp_trained")
    nulls = {k: [f[k].accuracy for f in found] for k in kinds if all(k in f for f in found)}
    reports = [
        report if record.certificate is None else report.with_certificate(record.certificate)
        for report, record in zip(group.reports, group.records, strict=True)
    ]
    return reports[:MOST_REPORTS], {
        "seeds": group.seeds,
        "bp_accuracy": nulls.pop("bp_trained", []),
        "nulls": nulls,
        "device": "CPU, x86_64, one thread",
        "spec": group.spec.model_dump(mode="json"),
    }


def own_code(versions: Mapping[str, str]) -> dict[str, str]:
    return {"name": "creditscope", "version": versions.get("creditscope", ""), "licence": "Apache-2.0"}


def out_of(arguments: list[str] | None = None) -> Path:
    """The directory for the entries: the first argument, or board/entries."""
    given = sys.argv[1:] if arguments is None else arguments
    return Path(given[0]) if given else ENTRIES
