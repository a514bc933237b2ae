"""creditscope demo"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass
class Demo:
    """Train BP, FA (none), DFA (rms), DFA (none) and their random-blocks baselines (nulls) on the embedded dataset.
    Diagnose each, and print accuracy and Γ next to what the protocol finds. Works offline.

    Example: creditscope demo --out runs/demo --workers 2
    """

    out: Path = Path("runs/demo")
    """Directory for the trained networks and the reports."""
    workers: int | None = None
    """Networks to train at the same time (default: one per core)."""
    device: str = "cpu"
    """Where the runs are trained: cpu, cuda, cuda:1, mps, ..., or auto (an accelerator, if there is one)."""
    devices: str | None = None
    """Numbers of the devices that this machine trains on, for example 0,1,2,3; each run gets one of them."""
    per_device: int = 1
    """Runs at the same time on one device (with --devices)."""
    epochs: int = 25
    """Epochs per network."""
    seeds: tuple[int, ...] = (42, 123, 456)
    """Seeds; every method is trained once per seed."""
    method: tuple[str, ...] = ()
    """Further methods to train and audit, as NAME or NAME:NORM (for example fa:rms)."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision of the matrix products in training; measurement uses fp32 and float64 either way."""

    def execute(self) -> int:
        from rich.console import Console

        from creditscope.cli.place import chosen, several
        from creditscope.cli.report import TITLE, summary
        from creditscope.files import make_directory, write_atomic
        from creditscope.render.html import html_page, networks
        from creditscope.render.tables import table_markdown, table_text
        from creditscope.runs.execute import run_specs
        from creditscope.runs.executors.local import LocalExecutor
        from creditscope.runs.groups import audit
        from creditscope.studies.audit import audit_table
        from creditscope.studies.grid import BP, DFA, DFA_NONE, FA, with_nulls
        from creditscope.training.spec import make_spec

        recipe = {"dataset": "quadratic", "epochs": self.epochs, "precision": self.precision}
        methods = (BP, FA, DFA, DFA_NONE, *map(_method, self.method))
        specs = with_nulls(make_spec({**recipe, "seed": s, **m}) for s in self.seeds for m in methods)
        console = Console(stderr=True)
        devices = several(self.devices, self.device) if self.devices else None
        device = None if devices else str(chosen(self.device))
        executor = LocalExecutor(self.workers, devices=devices, per_device=self.per_device)
        make_directory(self.out / "networks", f"cannot create {self.out / 'networks'}", "; choose another --out")
        epochs = f"{self.epochs} epoch{'s' * (self.epochs != 1)}"
        console.print(
            f"{len(specs)} networks (ResMLP d=128, L=4, quadratic teacher, {epochs}), {executor.workers} at a "
            "time: a few minutes. If interrupted, run it again to resume.",
            soft_wrap=not console.is_terminal,  # in a log it is one line
        )
        bundles = run_specs(specs, self.out / "networks", executor, console=console, device=device)
        executor.shutdown()
        groups = audit(bundles)
        table = audit_table(groups, TITLE)
        print(table_text(table, TITLE))
        reports = self.out / "reports"
        reports.mkdir(parents=True, exist_ok=True)
        for group in groups:
            for report, bundle in zip(group.reports, group.records, strict=True):
                report.to_json(reports / f"{bundle.spec.slug}.json")
        write_atomic(self.out / "audit.md", table_markdown(table).encode())
        write_atomic(self.out / "audit.json", summary(groups))
        page = self.out / "report.html"
        write_atomic(page, html_page(groups, networks(groups, bundles), "creditscope demo").encode())
        failing = next((g for g in groups if any(r.status == "fail" for r in g.reports)), groups[0])
        print(f"\nWritten: {self.out / 'audit.md'} (this table), {self.out / 'audit.json'} (every number),")
        print(f"         {reports}/ (one report per network), {self.out / 'networks'}/ (the trained networks)")
        print(f"Look at it:  {page.resolve().as_uri()} (one page, opens in any browser)")
        print(f"Look closer: creditscope diagnose {failing.records[0].path}")
        sys.stdout.flush()
        return 0


def _method(text: str) -> dict[str, str]:
    name, _, norm = text.partition(":")
    return {"method": name, "credit_norm": norm} if norm else {"method": name}
