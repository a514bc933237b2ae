"""creditscope checklist"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from creditscope.cli.output import put, put_document
from creditscope.cli.sources import Sources, find_sources
from creditscope.errors import CreditscopeError
from creditscope.files import dump_json

if TYPE_CHECKING:
    from creditscope.protocol.report import DiagnosticReport
    from creditscope.render.checklist import Audited

FROM_A_REPORT = (1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 13, 14)
"""Pitfalls that a report alone can answer; the others need the files of a bundle and what lies beside it."""
OWN_NETWORK = {
    7: "this file does not hold the feedback; say that the trained feedback was saved, and that credit= of diagnose used it",
    9: "this file does not hold the recipe of the null; train it by run_null, give it to diagnose as "
    "frozen_baseline_acc={'matched': ...}, and state the recipe",
    15: "this file does not name the seeds; give diagnose one accuracy per seed (headline_acc=[...]), and state all seeds run",
}
"""What the author can do about the others where there is no bundle: creditscope did not train the network."""


@dataclass
class Checklist:
    """The fifteen known ways to mismeasure credit, as questions. The files answer what they can; the rest is marked
    for the author. Nulls (random-blocks baselines) are checked together with the networks they belong to.

    Example: creditscope checklist runs/dfa --out checklist.md
    """

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Bundles, stores, directories that hold bundles, or reports as JSON. Without any: the questions alone, to be filled in."""
    latex: bool = False
    """LaTeX (booktabs, longtable) instead of Markdown."""
    standalone: bool = False
    """Make the LaTeX a whole document."""
    json: bool = False
    """JSON, with the answer for every run."""
    out: Path | None = None
    """File to write (default: standard output)."""

    def execute(self) -> int:
        from creditscope.render.checklist import blank_form, checklist, checklist_document, questions

        if self.json and (self.latex or self.standalone):
            raise CreditscopeError("choose one of --json and --latex")
        audited = self._audited() if self.sources else []
        lines = checklist(audited) if audited else []
        if self.json:
            networks = [{"run": a.run, "label": a.label} for a in audited]
            asked = [line.to_dict() for line in lines] if audited else questions()
            put(dump_json({"networks": networks, "questions": asked}).decode(), self.out)
        else:
            blocks = checklist_document(lines, audited) if audited else blank_form()
            put_document(blocks, self.latex, self.standalone, self.out)
        return 0

    def _audited(self) -> list[Audited]:
        sources = find_sources(self.sources)
        if light := [str(b.path.parent.parent) for b in sources.bundles if b.path.is_file()]:
            raise CreditscopeError(
                f"{light[0]} is an archive without weights, which the checklist needs; give the store it was exported from"
            )
        if sources.damaged and not sources.reports and all(b.spec.frozen for b in sources.bundles):
            raise sources.without_networks()
        return answers(sources)


def answers(sources: Sources) -> list[Audited]:
    """Every trained network (a null only where nothing else was given), then the reports that belong to none of them."""
    from creditscope.pitfalls.evidence import read_evidence
    from creditscope.render.checklist import Audited
    from creditscope.studies.shown import full_reports

    fuller = {r.run: r for root in sources.stores for r in full_reports(root)}
    fuller |= {r.run: r for _, r in sources.reports if r.run}
    trained = [b for b in sources.bundles if not b.spec.frozen] or sources.bundles
    made = []
    for bundle in trained:
        evidence = read_evidence(bundle.path)
        if bundle.spec.hash in fuller:
            evidence = replace(evidence, report=fuller[bundle.spec.hash])
        made.append(Audited(bundle.spec.hash[:10], bundle.spec.label, evidence.answers))
    runs = {b.spec.hash for b in trained}
    made += [_from_report(name, r) for name, r in sources.reports if not r.run or r.run not in runs]
    return made


def _from_report(name: str, report: DiagnosticReport) -> Audited:
    from creditscope.pitfalls.base import Answer, unknown
    from creditscope.pitfalls.evidence import Evidence
    from creditscope.pitfalls.registry import PITFALLS
    from creditscope.render.checklist import Audited
    from creditscope.render.numbers import clip
    from creditscope.training.spec import make_spec

    # a spec that no fact-only detector reads, except that its rule has feedback (PF04 asks for the fresh-B null then)
    spec = make_spec({"method": "dfa", "credit_norm": "none"})
    evidence = Evidence(path=Path(name), spec=spec, report=report, credit=None)
    found: list[Answer] = [
        p.audit(evidence)
        if p.number in FROM_A_REPORT
        else unknown("a report alone does not say; give the bundle" if report.run else _of_the_author(p.number, report))
        for p in PITFALLS
    ]
    run = report.run[:10] or clip(name, 40)
    return Audited(run, report.method_name or name, list(zip(PITFALLS, found, strict=True)))


def _of_the_author(number: int, report: DiagnosticReport) -> str:
    """What the author of a network of their own still has to say, given what the report holds."""
    if number == 9 and report.facts.depth is not None and any(m.null == "matched" for m in report.facts.depth.margins):
        return "a matched null was given, its recipe is not in this file: state the recipe of the null"
    if number == 15 and (given := len(report.headline_acc)) > 1:
        return f"{given} accuracies were given, the seeds are not named: state them, and that no other seed was run"
    return OWN_NETWORK[number]
