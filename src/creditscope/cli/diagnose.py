"""creditscope diagnose"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from creditscope.cli.output import annotation, exit_code, left_out, report_text, tell_written
from creditscope.errors import CreditscopeError
from creditscope.files import write_atomic
from creditscope.training.bundle import Bundle, find_bundles, is_bundle, load_bundle

if TYPE_CHECKING:
    from creditscope.protocol.report import DiagnosticReport


@dataclass
class Diagnose:
    """Measure and judge the network of a bundle, or the arrays of a record. A report is judged again from its facts.
    Exit code 0; with --strict 0 if the verdict passes, 3 if it fails, 4 otherwise. A null has no verdict: 0.

    Example: creditscope diagnose runs/dfa --protocol four-diagnostic --json report.json --strict
    """

    bundle: Annotated[Path, tyro.conf.Positional]
    """Directory of the bundle, a record (arrays of a network as .npz or .safetensors) or a report (.json)."""
    protocol: str = "three-check"
    """Verdict policy: three-check, three-check/1.0 or four-diagnostic."""
    null: tuple[Path, ...] = ()
    """Bundles of random-blocks baselines (default: those in the same directory that match)."""
    data_dir: Path | None = None
    """Where the CIFAR files are."""
    device: str = "cpu"
    """Where it is measured: cpu, cuda, cuda:1, mps, ..., or auto (an accelerator, if there is one)."""
    json: Path | None = None
    """Also write the report as JSON to this file."""
    markdown: Path | None = None
    """Also write the report as Markdown to this file."""
    full: bool = False
    """Also measure perturbation correlation, nudging and the fresh-B null; prints as with --long."""
    profile: bool = True
    """Skip the depth profile (linear readouts at every depth); nulls never have one."""
    strict: bool = False
    """Exit with code 3 if the verdict fails, 4 if it neither fails nor passes."""
    long: bool = False
    """Print everything: the checks with their conventions, every aggregation of Γ, profile, margins, the way to the verdict."""
    github: bool = False
    """Also print the verdict as an annotation of a GitHub workflow."""

    def execute(self) -> int:
        from creditscope.protocol import get_policy

        get_policy(self.protocol)
        null, beside = False, ""
        if not self.bundle.exists() and not _names_a_record(self.bundle):
            begun = self.bundle.with_name(f".{self.bundle.name}.partial")
            if begun.is_dir():
                raise CreditscopeError(
                    f"{self.bundle} is not trained to its end; run the same `creditscope train` again, unless it is running"
                )
            raise CreditscopeError(
                f"{self.bundle} does not exist; give the directory of a bundle, a record or a report (.json)"
            )
        if self.bundle.exists() and not self.bundle.is_file():
            bundle, pool = self.load()
            null, beside = bundle.spec.frozen, _others(bundle, pool)
            report = self.of_bundle(bundle, pool)
        else:
            report = self.of_report() if self.bundle.suffix == ".json" else self.of_record()
        if self.json:
            report.to_json(self.json)
        if self.markdown:
            write_atomic(self.markdown, report.to_markdown().encode())
        if self.github and not null:
            print(annotation(report))
        if beside:
            print(beside)
        print(report_text(report, null, long=self.long or self.full))
        tell_written(self.json, self.markdown)
        return exit_code([report]) if self.strict and not null else 0

    def of_report(self) -> DiagnosticReport:
        from creditscope.board.arithmetic import check_arithmetic
        from creditscope.protocol import DiagnosticThresholds
        from creditscope.protocol.policies import judge
        from creditscope.protocol.report import DiagnosticReport

        for name in ("null", "data_dir", "full"):
            if getattr(self, name):
                raise CreditscopeError(f"--{name.replace('_', '-')} is for bundles and {self.bundle} is a report")
        report = DiagnosticReport.from_json(self.bundle)
        check_arithmetic(report.facts, str(self.bundle))
        found = judge(report.facts, DiagnosticThresholds(), self.protocol)
        return report.model_copy(update={"verdict": found})

    def of_record(self) -> DiagnosticReport:
        from creditscope.record import read_record

        for name in ("null", "data_dir", "device"):
            if getattr(self, name) != getattr(type(self), name):
                raise CreditscopeError(
                    f"--{name.replace('_', '-')} is for bundles and {self.bundle} is a record; its header states the null"
                )
        record = read_record(self.bundle)
        options: dict[str, Any] = {} if self.profile else {"fit_batches": None}
        return record.diagnose(protocol=self.protocol, level="full" if self.full else "basic", **options)

    def load(self) -> tuple[Bundle, list[Bundle]]:
        """The bundle, and those among which its nulls are looked for."""
        inside = [] if is_bundle(self.bundle) else sorted(p.name for p in self.bundle.iterdir() if is_bundle(p))
        if inside:
            named = ", ".join(inside[:4]) + (", ..." if len(inside) > 4 else "")
            raise CreditscopeError(
                f"{self.bundle} holds {len(inside)} bundle{'s' * (len(inside) > 1)} ({named}): give one of them, or all to "
                f"`creditscope report {self.bundle}`"
            )
        return load_bundle(self.bundle), find_bundles(self.null) if self.null else siblings(self.bundle)

    def of_bundle(self, bundle: Bundle, pool: list[Bundle]) -> DiagnosticReport:
        from creditscope.cli.place import measuring
        from creditscope.data.dataset import eval_batches, profile_batches
        from creditscope.protocol.diagnosis import diagnose
        from creditscope.runs.groups import network_and_seed, nulls_for

        device = measuring(self.device)
        dataset = bundle.dataset(self.data_dir, device)
        found = nulls_for(bundle, pool)
        if self.null and not ({"matched", "bp"} & found.keys()):
            raise CreditscopeError(
                f"none of {', '.join(map(str, self.null))} is a null of {self.bundle} (same recipe and seed)"
            )
        nulls: dict[str, float] = {kind: found[kind].accuracy for kind in ("matched", "bp") if kind in found}
        return diagnose(
            bundle.model(dataset),
            eval_batches(dataset),
            headline_acc=bundle.accuracy,
            network_acc=bundle.accuracy,
            frozen_baseline_acc=None if bundle.spec.frozen else nulls or None,
            bp_acc=found["bp_trained"].accuracy if "bp_trained" in found else None,
            method_name=bundle.spec.label,
            notes=network_and_seed(bundle.spec),
            credit=bundle.rule(device=device),
            n_test=len(dataset.test_y),
            protocol=self.protocol,
            level="full" if self.full else "basic",
            run=bundle.spec.hash,
            **(profile_batches(dataset) if self.profile and not bundle.spec.frozen else {}),
        )


def _others(bundle: Bundle, pool: Iterable[Bundle]) -> str:
    """That this network is judged alone, and what judges it with its other seeds; "" where there are none."""
    from creditscope.runs.groups import recipe

    mine = recipe(bundle.spec)
    seeds = sorted({b.spec.seed for b in pool if recipe(b.spec) == mine} - {bundle.spec.seed})
    if bundle.spec.frozen or not seeds:
        return ""
    named = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    return f"Judged alone. With {named} beside it: creditscope report {bundle.path.parent}"


def _names_a_record(path: Path) -> bool:
    from creditscope.record import SUFFIXES  # imports torch, which a report does without

    return path.suffix in SUFFIXES


def siblings(path: Path) -> list[Bundle]:
    """The other bundles of the same directory."""
    return find_bundles([path.resolve().parent], left_out)
