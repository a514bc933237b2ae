"""Every built-in rule on the embedded data set: python board/recipes/embedded.py [OUT] [RUNS] [RULE ...]

A residual MLP (width 64, 4 blocks) trained for 8 epochs by each rule at its defaults, with its matched null, the BP null and BP
itself, one seed, then measured with its depth profile and certified. About ten minutes on one core; RUNS keeps the bundles, so
that what was trained is not trained again. No claim is published for these networks: what is claimed is what a reader of the
accuracy alone would see.
"""

from __future__ import annotations

import sys
from pathlib import Path

from common import ROOT, out_of, own_code, put, title

from creditscope.board.make import slug
from creditscope.credit.registry import all_rules
from creditscope.data import load_dataset
from creditscope.data.dataset import eval_batches, profile_batches
from creditscope.protocol.diagnosis import diagnose
from creditscope.runs.groups import network_and_seed, relatives, shape
from creditscope.studies.field import RULES
from creditscope.training.bundle import Bundle
from creditscope.training.certify import certify_bundle
from creditscope.training.loop import train
from creditscope.training.spec import RunSpec

COMMON = {"dataset": "quadratic", "width": 64, "depth": 4, "epochs": 8, "seed": 42}


def trained(spec: RunSpec, runs: Path) -> Bundle:
    return train(spec, runs / spec.slug)


def main(out: Path, runs: Path, only: list[str]) -> None:
    data = load_dataset("quadratic")
    for rule in RULES:
        spec = RunSpec(**COMMON, **rule)
        if only and spec.label not in only:
            continue
        bundle = trained(spec, runs)
        related = {kind: trained(null, runs).accuracy for kind, null in _related(spec).items()}
        bp = related.pop("bp_trained")
        report = diagnose(
            bundle.model(data),
            eval_batches(data),
            headline_acc=bundle.accuracy,
            network_acc=bundle.accuracy,
            frozen_baseline_acc=related,
            bp_acc=bp,
            method_name=spec.label,
            notes=network_and_seed(spec),
            credit=bundle.rule(),
            n_test=len(data.test_y),
            run=spec.hash,
            **profile_batches(data),
        ).with_certificate(certify_bundle(bundle, data))
        fields = {
            "method": title(spec),
            "code": own_code(bundle.versions),
            "architecture": f"{shape(spec).partition(', ')[2]}, {spec.epochs} epochs",
            "data": "embedded (quadratic)",
            "claimed": {
                "accuracy": bundle.accuracy,
                "gamma": report.facts.aggregate.gamma_all_layers if report.facts.aggregate else None,
                "convention": "one network, test set of 4,000; Γ: mean over all layers; measured here, not published",
                "source": "the run itself: what accuracy and Γ alone would have said",
            },
            "note": all_rules()[spec.method].summary[:300],
        }
        put(
            slug(f"embedded-{spec.label}"),
            fields,
            [report],
            out,
            seeds=[spec.seed],
            nulls=related,
            bp_accuracy=bp,
            device="CPU, x86_64, one thread",
            spec=spec.model_dump(mode="json"),
            recipe="python board/recipes/embedded.py",
        )


def _related(spec: RunSpec) -> dict[str, RunSpec]:
    """The runs that judge this one, as `runs.groups.relatives` names them by their hashes."""
    bp = spec.null("bp")
    made = {"matched": spec.null("matched"), "bp": bp, "bp_trained": bp.changed(train_last=None, targets=spec.targets)}
    assert {kind: s.hash for kind, s in made.items()} == relatives(spec)
    return made


if __name__ == "__main__":
    main(out_of(), Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "runs" / "board", sys.argv[3:])
