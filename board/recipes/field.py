"""The field audit's rules on CIFAR-10: python board/recipes/field.py [OUT]

Every rule of the study `field` whose runs results/ holds (facts without weights; `creditscope runs verify --store results` trains
one again) becomes an entry, with as many seeds and nulls as are there. A rule whose runs are already the evidence of another
entry (of the paper's claims) is left to it. Takes some seconds; what has not changed is left as it is, so that it can be
called again whenever results/ has more runs.
"""

from __future__ import annotations

from pathlib import Path

from common import ROOT, evidence_of, out_of, own_code, put, title

from creditscope.board.entry import find_entries, read_entry
from creditscope.board.make import slug
from creditscope.credit.registry import all_rules
from creditscope.runs.archive import Archive
from creditscope.runs.groups import audit, shape
from creditscope.studies import field

RECIPE = "python board/recipes/field.py"


def main(out: Path) -> None:
    records, problems = Archive(ROOT / "results").runs_of(field.specs("paper"))
    if problems:
        raise SystemExit("\n".join(problems))
    entries = [read_entry(path) for path in find_entries(out)] if out.is_dir() and any(out.iterdir()) else []
    taken = {
        report.run: entry.claim.name
        for entry in entries
        for evaluation in entry.audits
        if evaluation.stated.recipe != RECIPE
        for report in evaluation.reports
    }
    for group in audit(records):
        spec = group.spec
        place = out / slug(f"field-{spec.dataset}-{spec.label}")
        if other := {taken[run] for run in group.hashes if run in taken}:
            print(f"{group.label}: the runs of {', '.join(sorted(other))}")
            if place.is_dir():
                print(f"{place} is theirs now: remove it")
            continue
        fields = {
            "method": title(spec),
            "code": own_code(group.records[0].versions),
            "architecture": f"{shape(spec).partition(', ')[2]}, {spec.epochs} epochs",
            "data": "CIFAR-10",
            "claimed": {
                "accuracy": sum(group.accuracies) / len(group.accuracies),
                "convention": "mean over seeds; measured here, not published",
                "source": "the runs themselves: what the accuracy alone would have said",
            },
            "note": f"Field audit (docs/field.md). {all_rules()[spec.method].summary}"[:300],
        }
        reports, stated = evidence_of(group, records)
        put(place.name, fields, reports, out, **stated, recipe=RECIPE)


if __name__ == "__main__":
    main(out_of())
