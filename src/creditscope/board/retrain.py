"""Train the networks behind an evaluation again from its spec: every seed, and every null."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from creditscope.board.entry import Audit, spec_of
from creditscope.measure.facts import Facts
from creditscope.protocol.report import stored_facts
from creditscope.runs.verify import LAST, Compared, compare_final
from creditscope.training.loop import train
from creditscope.training.spec import RunSpec


@dataclass(frozen=True)
class Again:
    """One network, trained again."""

    what: str
    recorded: float
    """Its accuracy as the claim states it."""
    here: float
    compared: Compared | None = None
    """Its facts against those of its report, where there is one."""

    @property
    def status(self) -> str:
        beyond = self.compared is not None and self.compared.beyond
        if beyond or abs(self.recorded - self.here) > LAST.accuracy:
            return "not reproduced"
        exact = self.recorded == self.here and (self.compared is None or not self.compared.differences)
        return "exact" if exact else "within tolerance"


def runs_of(audit: Audit) -> list[tuple[str, RunSpec, float, Facts | None]]:
    """(what, spec, stated accuracy, facts of its report) of every network of an evaluation; none where the spec is not ours."""
    spec = spec_of(audit.stated)
    if spec is None:
        return []
    facts = {report.run: report.facts for report in audit.reports}
    runs = []
    for k, seed in enumerate(audit.stated.seeds):
        own = spec.changed(seed=seed)
        runs.append((f"{spec.label}, seed {seed}", own, audit.accuracies[k], facts.get(own.hash)))
        for kind, null in audit.stated.nulls.items():
            if kind in ("matched", "bp"):
                runs.append((f"{kind} null, seed {seed}", own.null(kind), null[k], None))
    return list({run.hash: (what, run, acc, found) for what, run, acc, found in reversed(runs)}.values())[::-1]


def retrain(audit: Audit, data_dir: Path | None = None) -> Iterator[Again]:
    """Each network trained in a directory of its own, which is removed."""
    for what, spec, accuracy, facts in runs_of(audit):
        with TemporaryDirectory(prefix="creditscope-retrain-") as directory:
            bundle = train(spec, Path(directory) / "again", data_dir=data_dir)
            found = compare_final(facts, stored_facts(bundle.report), spec.epochs or 0) if facts else None
            yield Again(what, accuracy, bundle.accuracy, found)
