"""What the recipes share: where entries go, who audits, how rules are named."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from creditscope.board.entry import Entry
from creditscope.board.make import evaluation, write_entry
from creditscope.training.spec import RunSpec

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = ROOT / "board" / "entries"
BY = "creditscope"
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
    """Write the entry, replacing what an earlier run of the recipe wrote, and say what it holds."""
    made, files = evaluation(reports, by=BY, **stated)
    entry = write_entry(out / name, {**fields, "evaluations": [made]}, files, replace=True)
    audit = entry.current
    margin = f", margin {audit.margin.margin_pp:+.1f} pp" if audit.margin else ""
    print(
        f"{name}: audited {audit.accuracies}{margin}, {audit.locality or 'not certified'}, {audit.status}", flush=True
    )
    return entry


def out_of(arguments: list[str] | None = None) -> Path:
    """The directory for the entries: the first argument, or board/entries."""
    given = sys.argv[1:] if arguments is None else arguments
    return Path(given[0]) if given else ENTRIES
