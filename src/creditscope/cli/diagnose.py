"""creditscope diagnose"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from creditscope.cli.parse import parse
from creditscope.cli.verdict import STRICT_HELP, annotation, exit_code

if TYPE_CHECKING:
    from creditscope.protocol.report import DiagnosticReport
    from creditscope.training.bundle import Bundle


@dataclass
class Diagnose:
    bundle: Annotated[Path, tyro.conf.Positional]
    """Directory of the bundle, or a record: a .npz or .safetensors file with the arrays of a network (docs/records.md)."""
    protocol: str = "three-check"
    """Verdict policy: three-check, three-check/1.0 or four-diagnostic."""
    null: tuple[Path, ...] = ()
    """Bundles of frozen-blocks nulls (default: those beside the bundle that fit it)."""
    data_dir: Path | None = None
    """Where the CIFAR files are."""
    json: Path | None = None
    """Also write the report as JSON to this file."""
    markdown: Path | None = None
    """Also write the report as Markdown to this file."""
    full: bool = False
    """Also measure perturbation correlation, nudging and the fresh-B null."""
    profile: bool = True
    """Also fit linear readouts at every depth (the depth profile); of a null never."""
    strict: bool = False
    """Exit with code 3 if the verdict fails, 4 if it neither fails nor passes."""
    github: bool = False
    """Also print the verdict as an annotation of a GitHub workflow."""


def run(args: Sequence[str]) -> int:
    flags = parse(
        Diagnose,
        args,
        "diagnose",
        f"Measure the network of a bundle again, or the arrays of a record, and judge it. Exit code 0; {STRICT_HELP}.",
        "creditscope diagnose runs/dfa --protocol four-diagnostic --json report.json --strict",
    )
    from creditscope.files import write_atomic
    from creditscope.protocol import get_policy

    get_policy(flags.protocol)
    report = of_record(flags) if flags.bundle.is_file() else of_bundle(flags)
    if flags.json:
        report.to_json(flags.json)
    if flags.markdown:
        write_atomic(flags.markdown, report.to_markdown().encode())
    if flags.github:
        print(annotation(report))
    print(report)
    return exit_code([report]) if flags.strict else 0


def of_record(flags: Diagnose) -> DiagnosticReport:
    from creditscope.errors import CreditscopeError
    from creditscope.record import read_record

    for name in ("null", "data_dir"):
        if getattr(flags, name):
            raise CreditscopeError(
                f"--{name.replace('_', '-')} is for bundles and {flags.bundle} is a record; its header states the null"
            )
    record = read_record(flags.bundle)
    options: dict[str, Any] = {} if flags.profile else {"fit_batches": None}
    return record.diagnose(protocol=flags.protocol, level="full" if flags.full else "basic", **options)


def of_bundle(flags: Diagnose) -> DiagnosticReport:
    from creditscope.data import load_dataset
    from creditscope.data.dataset import eval_batches, profile_batches
    from creditscope.protocol.diagnosis import diagnose
    from creditscope.studies.audit import find_bundles, network_and_seed, nulls_for
    from creditscope.training.bundle import load_bundle

    bundle = load_bundle(flags.bundle)
    dataset = load_dataset(bundle.spec.dataset, flags.data_dir)
    pool = find_bundles(flags.null) if flags.null else siblings(flags.bundle)
    found = nulls_for(bundle, pool)
    if flags.null and not ({"matched", "bp"} & found.keys()):
        from creditscope.errors import CreditscopeError

        raise CreditscopeError(
            f"none of {', '.join(map(str, flags.null))} is a null of {flags.bundle} (same recipe and seed)"
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
        credit=bundle.rule(),
        n_test=len(dataset.test_y),
        protocol=flags.protocol,
        level="full" if flags.full else "basic",
        run=bundle.spec.hash,
        **(profile_batches(dataset) if flags.profile and not bundle.spec.frozen else {}),
    )


def siblings(path: Path) -> list[Bundle]:
    """The other bundles of the same directory."""
    from creditscope.studies.audit import find_bundles

    return find_bundles([path.resolve().parent], lambda text: print(f"creditscope: left out: {text}", file=sys.stderr))
