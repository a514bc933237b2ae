"""creditscope template"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from creditscope.cli.output import put_document
from creditscope.cli.sources import Sources, find_sources
from creditscope.errors import CreditscopeError

if TYPE_CHECKING:
    from creditscope.render.document import Section
    from creditscope.render.template import Entry


@dataclass
class Template:
    """Write the reporting section of a paper, filled from runs or reports: what was trained, protocol and
    thresholds, nulls with margins and intervals, per-layer cosines, reference norms, Γ under every aggregation, all
    seeds, verdicts. Every number stands next to the hash of its run. With --artifact the two pages that artifact reviews
    ask for instead: what is claimed, how to run it, how long it takes, what to expect.

    Example: creditscope template runs/store --latex --out section.tex
    """

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Bundles, stores, directories that hold bundles, or reports as JSON."""
    protocol: str = "three-check"
    """Verdict policy: three-check, three-check/1.0 or four-diagnostic (a report as JSON keeps its own)."""
    artifact: bool = False
    """The description of the artifact (NeurIPS, ACM) instead of the reporting section."""
    time: bool = False
    """With --artifact: time a few training steps of each kind of run here, to say how long it takes."""
    latex: bool = False
    """LaTeX (booktabs, longtable) instead of Markdown."""
    standalone: bool = False
    """Make the LaTeX a whole document."""
    out: Path | None = None
    """File to write (default: standard output)."""

    def execute(self) -> int:
        from creditscope.protocol import get_policy
        from creditscope.render.template import reporting_section

        if self.time and not self.artifact:
            raise CreditscopeError("--time belongs to --artifact; the reporting section has no times")
        get_policy(self.protocol)
        if not self.sources:
            raise CreditscopeError("template needs a bundle, a store or a report (JSON)")
        sources = find_sources(self.sources, beside=True)
        found = entries(sources, self.protocol)
        if not found:
            raise sources.without_networks()
        blocks = artifact(found, sources, self.time) if self.artifact else reporting_section(found)
        put_document(blocks, self.latex, self.standalone, self.out)
        return 0


def artifact(found: list[Entry], sources: Sources, timed: bool) -> list[Section]:
    """The description of the artifact; `timed`: with the time that each claim takes here, on one core."""
    from creditscope.render.artifact import artifact_description
    from creditscope.runs.plan import plan

    runs = [{r.run for r in entry.reports} | {n.run for n in entry.nulls} for entry in found]
    named = {run for own in runs for run in own}
    used = {b.spec.hash: b for b in sources.bundles if b.spec.hash in named}
    versions: dict[str, dict[str, None]] = {}  # in the order in which they are met
    for bundle in used.values():
        for name, version in bundle.versions.items():
            versions.setdefault(name, {})[version] = None
    hours: list[float | None] = []
    for own in runs if timed else ():
        specs = [used[run].spec for run in own if run in used]
        hours.append(plan(specs, None, 1, None).hours if specs else None)
    return artifact_description(found, {name: list(met) for name, met in versions.items()}, hours)


def entries(sources: Sources, protocol: str) -> list[Entry]:
    """One entry per group of seeds; a bundle that was named itself brings its whole group. Then the reports."""
    from creditscope.render.html.network import networks
    from creditscope.render.template import Entry, Null
    from creditscope.runs.groups import NULL_KINDS, audit, nulls_for, recipe
    from creditscope.studies.shown import full_reports

    named = {recipe(b.spec) for b in sources.single} if not sources.stores else set()
    full = [r for root in sources.stores for r in full_reports(root)]
    runs = {b.spec.hash for b in sources.bundles}
    extra = [r for r in full if r.run in runs] + [r for _, r in sources.reports if r.run in runs]
    made = []
    for group in audit(sources.bundles, protocol=protocol):
        if named and recipe(group.spec) not in named:
            continue
        own = {r.run for r in group.reports}
        reports = [n.report for n in networks([group], (), [r for r in extra if r.run in own])]
        nulls = [
            Null(kind, b.spec.seed, found[kind].spec.hash, found[kind].accuracy)
            for b in group.records
            for found in (nulls_for(b, sources.bundles),)
            for kind in (*NULL_KINDS, "bp_trained")
            if kind in found and found[kind].spec.hash != b.spec.hash
        ]
        remarks, paths = _remarks(sources, recipe(group.spec)), [str(b.path) for b in group.records]
        made.append(Entry(group.label, reports, group.accuracies, group.seeds, group.spec, nulls, remarks, paths))
    made = _told_apart(made)
    for name, report in sources.reports:
        if report.run not in runs or not report.run:
            alone = report.headline_acc[0] if len(report.headline_acc) == 1 else report.network_acc
            made.append(Entry(report.method_name or name, [report], [alone], [None], paths=[name]))
    return made


def _told_apart(entries: list[Entry]) -> list[Entry]:
    """Entries of one label and network, with the settings in which they differ behind the label."""
    from creditscope.runs.groups import differing, shape
    from creditscope.tables import grouped_by

    labels: dict[int, str] = {}
    known = [(k, e.label, e.spec) for k, e in enumerate(entries) if e.spec is not None]
    for alike in grouped_by(known, lambda item: (item[1], item[2].dataset, shape(item[2]))).values():
        specs = [spec for _, _, spec in alike]
        names = differing(specs, ("seed",))
        for k, label, spec in alike:
            labels[k] = ", ".join([label, *(f"{n.replace('_', ' ')} {getattr(spec, n)}" for n in names)])
    return [replace(entry, label=labels.get(k, entry.label)) for k, entry in enumerate(entries)]


def _remarks(sources: Sources, wanted: str) -> list[str]:
    """Runs of the same recipe that failed: no seed is left out silently."""
    from creditscope.runs.archive import open_source
    from creditscope.runs.groups import recipe
    from creditscope.training.spec import recorded_spec

    found = []
    for root in sources.stores:
        for run_hash, failure in open_source(root).failures().items():
            try:
                spec = recorded_spec(dict(failure["spec"]))
            except (CreditscopeError, TypeError, ValueError):
                continue  # a record that cannot be read names no recipe
            if recipe(spec) == wanted:
                found.append(
                    f"Seed {spec.seed} failed and is not in the table (run {run_hash[:10]}): {failure['message']}"
                )
    return found
