"""creditscope certify"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from creditscope.cli.parse import parse


@dataclass
class Certify:
    bundle: Annotated[Path, tyro.conf.Positional]
    """Directory of the bundle."""
    samples: int = 16
    """Samples of the batch; fewer are taken where they leave no null space to some weight."""
    data_dir: Path | None = None
    """Where the CIFAR files are."""
    json: Path | None = None
    """Also write the certificate as JSON to this file."""
    figure: Path | None = None
    """Also draw the matrix of blocks to this file (.svg, .pdf or .png)."""


def run(args: Sequence[str]) -> int:
    flags = parse(
        Certify,
        args,
        "certify",
        "Find out what the update of each block depends on: weights of other blocks, labels, logits, later states, other "
        "samples. The rule of the bundle is called as a black box, with one thing changed at a time.",
        "creditscope certify runs/dfa --json certificate.json --figure certificate.svg",
    )
    from creditscope.data import load_dataset
    from creditscope.errors import CreditscopeError
    from creditscope.files import dump_json, write_atomic
    from creditscope.render.certificate import certificate_lines, plot
    from creditscope.training.bundle import load_bundle
    from creditscope.training.certify import certify_bundle

    if flags.samples < 1:
        raise CreditscopeError(f"--samples is {flags.samples}; give at least 1")
    if flags.figure and flags.figure.suffix not in (".svg", ".pdf", ".png"):
        raise CreditscopeError(f"--figure {flags.figure} has no known format; end it with .svg, .pdf or .png")
    bundle = load_bundle(flags.bundle)
    found = certify_bundle(bundle, load_dataset(bundle.spec.dataset, flags.data_dir), flags.samples)
    if flags.json:
        write_atomic(flags.json, dump_json(found.to_dict()))
    if flags.figure:
        plot(found).save(flags.figure)
    print(f"{bundle.spec.label}, {found.conditions['samples']} samples, {found.conditions['dtype']}")
    print("\n".join(certificate_lines(found)))
    return 0
