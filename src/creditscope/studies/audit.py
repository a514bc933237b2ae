"""The audit table: what accuracy and Γ would have claimed, next to what the protocol finds, over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError
from creditscope.protocol import DiagnosticThresholds
from creditscope.protocol.report import DiagnosticReport, make_report
from creditscope.training.bundle import Bundle, is_bundle, load_bundle
from creditscope.training.spec import RunSpec

NULL_KINDS = ("matched", "bp")


@dataclass(frozen=True)
class Group:
    """The networks of one method and recipe, one per seed, with the reports that judge each of them."""

    label: str
    spec: RunSpec
    """Spec of the first seed."""
    seeds: tuple[int, ...]
    bundles: tuple[Bundle, ...]
    reports: tuple[DiagnosticReport, ...]

    @property
    def accuracies(self) -> tuple[float, ...]:
        return tuple(b.accuracy for b in self.bundles)

    def values(self, name: str) -> list[float]:
        """growth, reference or gamma of every seed."""
        facts = [r.facts for r in self.reports]
        if name == "growth":
            return [f.scale.growth for f in facts]
        if name == "reference":
            return [f.reference.batch_mean_128[-1] for f in facts]
        return [f.aggregate.headline for f in facts if f.aggregate and f.aggregate.headline is not None]

    @property
    def claim(self) -> str:
        """What a reader of accuracy and Γ alone would conclude."""
        gammas = self.values("gamma")
        chance = 1 / 10 if self.spec.dataset != "cifar100" else 1 / 100
        learns = statistics.mean(self.accuracies) > chance
        if learns and gammas and statistics.mean(gammas) > 0:
            return "learns, credit aligned"
        return "learns" if learns else "does not learn"

    @property
    def finding(self) -> str:
        """The verdict over seeds, in one cell."""
        lines = [r.verdict.line.removeprefix("VERDICT: ") for r in self.reports]
        if len(set(lines)) == 1:
            return lines[0]
        statuses = [r.status for r in self.reports]
        return "; ".join(f"{statuses.count(s)} of {len(statuses)} seeds {s}" for s in dict.fromkeys(statuses))


def find_bundles(paths: Iterable[str | Path]) -> list[Bundle]:
    """Bundles at the given directories, or directly inside them; in order, each once."""
    found: dict[Path, Bundle] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise CreditscopeError(f"{path} is not a directory; give bundles or directories that hold bundles")
        inside = (
            [path]
            if is_bundle(path)
            else sorted(p for p in path.iterdir() if not p.name.startswith(".") and is_bundle(p))
        )
        if not inside:
            raise CreditscopeError(f"{path} holds no bundle; `creditscope train --out {path}/NAME` makes one")
        for p in inside:
            found.setdefault(p.resolve(), load_bundle(p))
    return list(found.values())


def recipe(spec: RunSpec) -> str:
    """What two runs share that differ only by their seed."""
    return RunSpec(**{**spec.model_dump(), "seed": 0}).hash


def nulls_for(bundle: Bundle, pool: Sequence[Bundle]) -> dict[str, Bundle]:
    """The frozen-blocks nulls of this run (same seed) and backpropagation itself, as far as they are in the pool."""
    by_hash = {b.spec.hash: b for b in pool}
    wanted: dict[str, RunSpec] = {kind: bundle.spec.null(kind) for kind in NULL_KINDS}  # type: ignore[arg-type]
    wanted["bp_trained"] = RunSpec(**{**wanted["bp"].model_dump(), "train_last": None, "targets": bundle.spec.targets})
    return {kind: by_hash[spec.hash] for kind, spec in wanted.items() if spec.hash in by_hash}


def audit(
    pool: Sequence[Bundle],
    *,
    n_test: int | None = None,
    protocol: str = "three-check",
    thresholds: DiagnosticThresholds | None = None,
) -> list[Group]:
    """Group the trained networks over seeds and judge each; the depth margin is paired over the seeds of the group.

    A null counts only where every seed of the group has it, so that no seed is dropped silently.
    """
    groups: dict[str, list[Bundle]] = {}
    for bundle in pool:
        if not bundle.spec.frozen:
            groups.setdefault(recipe(bundle.spec), []).append(bundle)
    result = []
    for members in groups.values():
        members.sort(key=lambda b: b.spec.seed)
        found = [nulls_for(b, pool) for b in members]
        accs: dict[str, list[float]] = {
            kind: [f[kind].accuracy for f in found]
            for kind in (*NULL_KINDS, "bp_trained")
            if all(kind in f for f in found)
        }
        nulls: dict[str, Any] = {kind: accs[kind] for kind in NULL_KINDS if kind in accs}
        reports = tuple(
            make_report(
                DiagnosticReport.from_dict(b.report, str(b.path / "report.json")).facts,
                headline_acc=[m.accuracy for m in members],
                frozen_baseline_acc=nulls or None,
                bp_acc=accs.get("bp_trained"),
                n_test=n_test or b.n_test,
                method_name=b.spec.label,
                notes=f"{b.spec.dataset}, {b.spec.arch} d={b.spec.width} L={b.spec.depth}, seed {b.spec.seed}",
                run=b.spec.hash,
                thresholds=thresholds,
                protocol=protocol,
            )
            for b in members
        )
        spec = members[0].spec
        result.append(Group(spec.label, spec, tuple(b.spec.seed for b in members), tuple(members), reports))
    return result
