"""creditscope certify"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from creditscope.cli.output import tell_written
from creditscope.errors import CreditscopeError


@dataclass
class Certify:
    """Find out what the update of each block depends on: weights of other blocks, labels, logits, later states,
    other samples. The rule is treated as a black box: one thing is changed at a time.

    Example: creditscope certify runs/dfa --json certificate.json --figure certificate.svg
    """

    bundle: Annotated[Path, tyro.conf.Positional]
    """Directory of the bundle."""
    samples: int = 16
    """Samples in the batch; fewer are used if some weight would otherwise have no null space."""
    data_dir: Path | None = None
    """Where the CIFAR files are."""
    device: str = "cpu"
    """Where it is tested: cpu, cuda, cuda:1, mps, ..., or auto (an accelerator, if there is one)."""
    json: Path | None = None
    """Also write the certificate as JSON to this file."""
    figure: Path | None = None
    """Also draw the matrix of blocks to this file (.svg, .pdf or .png)."""

    def execute(self) -> int:
        from creditscope.cli.place import measuring
        from creditscope.files import dump_json, write_atomic
        from creditscope.render.certificate import certificate_lines, plot
        from creditscope.training.bundle import load_bundle
        from creditscope.training.certify import certify_bundle

        if self.samples < 1:
            raise CreditscopeError(f"--samples is {self.samples}; give at least 1")
        if self.figure and self.figure.suffix not in (".svg", ".pdf", ".png"):
            raise CreditscopeError(f"--figure {self.figure} has no known format; end it with .svg, .pdf or .png")
        bundle = load_bundle(self.bundle)
        if bundle.spec.frozen:
            raise CreditscopeError(
                f"{self.bundle} is a null: its blocks are not trained, so there is no update to certify; give the trained network"
            )
        found = certify_bundle(bundle, bundle.dataset(self.data_dir, measuring(self.device)), self.samples)
        if self.json:
            write_atomic(self.json, dump_json(found.to_dict()))
        if self.figure:
            plot(found).save(self.figure)
        about = f"{bundle.spec.label}, {found.conditions['samples']} samples, {found.conditions['dtype']}"
        first, *rest = certificate_lines(found)
        print("\n".join([first, f"  {about}", *rest]))
        tell_written(self.json, self.figure)
        return 0
