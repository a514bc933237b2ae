"""The paper's claims next to our archived runs: python board/recipes/archived.py [OUT]

Reads audits/arxiv-2606.21126 (what is published) and results/ (our runs on CIFAR-10: facts without weights; `creditscope runs
verify --store results` trains one again). Every published accuracy becomes an entry under each reading that was run for as many
epochs. Takes a minute.
"""

from __future__ import annotations

from pathlib import Path

from common import ROOT, evidence_of, out_of, own_code, put, title

from creditscope.board.make import slug
from creditscope.runs.groups import audit, shape
from creditscope.studies.compare import Reason, read_audit
from creditscope.studies.published import Number
from creditscope.studies.shown import every_record

PAPER = {"title": "arXiv 2606.21126 (drafts v1 to final)", "url": "https://arxiv.org/abs/2606.21126", "year": 2026}
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "student": "synthetic teacher"}


def main(out: Path) -> None:
    records, problems = every_record(ROOT / "results")
    if problems:
        raise SystemExit("\n".join(problems))
    groups = {frozenset(g.hashes): g for g in audit(records)}
    lines = [
        x for x in read_audit(ROOT / "audits" / "arxiv-2606.21126").compare(records) if isinstance(x.claim, Number)
    ]
    gammas = {
        (x.claim.table, x.claim.method, x.claim.setting): x.claim.published.value
        for x in lines
        if x.claim.quantity == "gamma_all_layers" and x.claim.epoch is None
    }
    done: set[str] = set()
    for line in lines:
        claim, group = line.claim, groups.get(frozenset(line.runs))
        final = claim.quantity == "accuracy" and not claim.minus and claim.epoch is None
        if not final or group is None or claim.published.value is None or line.reason is Reason.LENGTH:
            continue
        spec = group.spec
        name = slug(
            f"{spec.dataset}-{shape(spec).partition(', ')[2]}-{spec.label}-e{spec.epochs}".replace("λ", "penalty")
        )
        if name in done:  # published twice: the first that is listed
            continue
        done.add(name)
        fields = {
            "method": title(spec),
            "paper": PAPER,
            "code": own_code(group.records[0].versions),
            "architecture": f"{shape(spec).partition(', ')[2]}, {spec.epochs} epochs",
            "data": DATASETS[spec.dataset],
            "claimed": {
                "accuracy": claim.published.value,
                "gamma": gammas.get((claim.table, claim.method, claim.setting)),
                "convention": f"mean over seeds; Γ over all layers; what the paper leaves open is read as: {line.reading}",
                "source": f"{claim.table}: {claim.source}"[:300],
                "published": True,
            },
            "note": claim.note[:300],
        }
        reports, stated = evidence_of(group, records)
        put(name, fields, reports, out, **stated, recipe="python board/recipes/archived.py")


if __name__ == "__main__":
    main(out_of())
